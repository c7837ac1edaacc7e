package cmd

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/internal/cli"
	"subctl/internal/kube"
	"subctl/internal/look"
	"subctl/internal/printer"
)

func newExport(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "export",
		Short: "Let other clusters reach a Service",
		Args:  cli.NoSuchCommand,
	}
	c.AddCommand(newExportService(g))
	return c
}

// serviceChange has the flags and the argument of export service and unexport service.
type serviceChange struct {
	*globals
	name, namespace string
	dryRun          bool
	format          *printer.Flag
	clock           *look.Clock // of the API server
}

// addFlags gives c the flags and the argument of a command that changes whether a Service is
// exported. names lists the Services of a namespace that can be its argument.
func (o *serviceChange) addFlags(
	c *cobra.Command,
	names func(context.Context, client.Client, string) ([]string, error),
) {
	cli.Lacks(c, "contexts", "a Service belongs to one cluster: choose it with --context")
	c.Args = func(_ *cobra.Command, args []string) error { return o.parse(c, args) }
	addNamespace(c, o.globals, &o.namespace, "namespace of the Service (default: that of the context, else default)")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "print what would change, without changing it")
	o.format = cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	c.ValidArgsFunction = cli.CompleteArgument(o.Reading(func(ctx context.Context, c client.Client) ([]string, error) {
		if err := o.choose(); err != nil {
			return nil, err
		}
		return names(ctx, c, o.namespace)
	}))
}

// parse reads the name of the Service.
func (o *serviceChange) parse(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("the name of the Service is missing: %s NAME", c.CommandPath())
	case len(args) > 1:
		return fmt.Errorf("%s takes one Service: omit %q", c.CommandPath(), args[1])
	case len(validation.IsDNS1123Label(args[0])) > 0:
		return fmt.Errorf(
			"%.80q is not the name of a Service: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends, and specify the namespace with --namespace",
			args[0])
	}
	o.name = args[0]
	return nil
}

// choose chooses the namespace of the context unless the command line has one.
func (o *serviceChange) choose() (err error) {
	if o.namespace == "" {
		o.namespace, err = o.Namespace()
	}
	return err
}

// open connects to the cluster of the current context.
func (o *serviceChange) open(ctx context.Context) (client.Client, error) {
	if err := o.choose(); err != nil {
		return nil, err
	}
	o.clock = &look.Clock{Local: o.Now}
	return o.ClientWith(ctx, *o.Flags.Context, o.clock.Wrap)
}

func (o *serviceChange) key() client.ObjectKey {
	return client.ObjectKey{Namespace: o.namespace, Name: o.name}
}

// service names the Service in messages.
func (o *serviceChange) service() string { return "Service " + o.key().String() }

// find returns the ServiceExport of the Service; nil if there is none.
func (o *serviceChange) find(ctx context.Context, c client.Client) (*mcsv1alpha1.ServiceExport, error) {
	return kube.Optional(ctx, c, &mcsv1alpha1.ServiceExport{}, o.key())
}

// print prints what is written as objects, or with --dry-run as text.
func (o *serviceChange) print(c client.Client, export *mcsv1alpha1.ServiceExport, action string) error {
	format := o.format.Format()
	objects := func() error {
		plain := &mcsv1alpha1.ServiceExport{}
		plain.Name = export.Name
		plain.Namespace = export.Namespace
		plain.Labels = export.Labels
		plain.Annotations = maps.Clone(export.Annotations)
		delete(plain.Annotations, corev1.LastAppliedConfigAnnotation) // of kubectl apply
		return cli.PrintObjects(o.Out, c.Scheme(), format, o.dryRun, []client.Object{plain})
	}
	switch {
	case !format.Structured() && o.dryRun:
		return cli.PrintActions(o.IOStreams, format, []string{action})
	case !format.Structured():
		return nil
	case o.dryRun:
		return cli.PrintDryRun(o.IOStreams, format, objects)
	}
	return objects()
}

// forEditors adds the remedy to the error of a command that needs the ClusterRole edit in the
// namespace of the Service.
func (o *serviceChange) forEditors(err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf(
		"%w: ask an administrator for the ClusterRole edit in namespace %s, or choose another user or context (docs/permissions.md)",
		err, o.namespace)
}

// exports returns the names of the exported Services of a namespace, sorted.
func exports(ctx context.Context, c client.Client, namespace string) ([]string, error) {
	var list mcsv1alpha1.ServiceExportList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil && !kube.NotThere(err) {
		return nil, fmt.Errorf("reading the ServiceExports: %w", err)
	}
	return namesOf(list.Items), nil
}

// namesOf returns the names of objects, sorted.
func namesOf[T any, P interface {
	*T
	client.Object
}](list []T) []string {
	var out []string
	for i := range list {
		out = append(out, P(&list[i]).GetName())
	}
	slices.Sort(out)
	return out
}
