package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/internal/cli"
	"subctl/internal/kube"
	"subctl/internal/look"
)

const servicesNoun = "services"

// serviceFilter chooses Services by name and namespace. Where it is empty, it chooses all.
type serviceFilter struct{ name, namespace string }

func (f serviceFilter) leavesOut(namespace, name string) bool {
	return f.name != "" && f.name != name || f.namespace != "" && f.namespace != namespace
}

// none returns the note about a cluster without such a Service.
func (f serviceFilter) none() string {
	what := "no Service"
	if f.name != "" {
		what += " " + f.name
	}
	if f.namespace != "" {
		what += " of namespace " + f.namespace
	}
	return what + " is exported or imported: subctl export service NAME exports one"
}

// addServices gives the command for services its argument and the flag --namespace.
func (s *show) addServices(c *cobra.Command) {
	f := &serviceFilter{}
	c.Use = servicesNoun + " [NAME]"
	c.Example += "\n  subctl show services web -n shop"
	c.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > 1:
			return fmt.Errorf("show services takes one Service: omit %q", args[1])
		case len(args) == 0:
			return nil
		case len(validation.IsDNS1123Label(args[0])) > 0:
			return fmt.Errorf("%.80q is not the name of a Service: use at most 63 lower case letters, digits and '-', "+
				"with a letter or digit at both ends, and specify the namespace with --namespace", args[0])
		}
		f.name = args[0]
		return nil
	}
	addNamespace(c, s.globals, &f.namespace, "show the Services of this namespace only (default: of all)")
	c.RunE = func(c *cobra.Command, _ []string) error { return s.run(c.Context(), look.NewPanel(servicesTable(*f))) }
	c.ValidArgsFunction = cli.CompleteArgument(s.Reading(func(ctx context.Context, c client.Client) ([]string, error) {
		names, err := exports(ctx, c, f.namespace)
		if err != nil {
			return nil, err
		}
		var imports mcsv1alpha1.ServiceImportList
		if err := c.List(ctx, &imports, client.InNamespace(f.namespace)); err != nil && !kube.NotThere(err) {
			return nil, fmt.Errorf("reading the ServiceImports: %w", err)
		}
		names = append(names, namesOf(imports.Items)...)
		slices.Sort(names)
		return slices.Compact(names), nil
	}))
}
