package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/cli"
	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/sdewan/view"
)

const sdewanLong = `Configure network functions (CNFs) by Kubernetes objects: uplinks and which traffic
takes which of them, a firewall, and IPsec tunnels to other sites.

A CNF is the pods of a Deployment with the label sdewanPurpose. Rules are objects of the kinds
Mwan3Policy, Mwan3Rule, FirewallZone, FirewallRule, FirewallSNAT, FirewallDNAT,
FirewallForwarding, NetworkFirewallRule, IpsecProposal, IpsecSite, IpsecHost, CNFService, CNFNAT,
CNFRoute and CNFRouteRule, and apply to the CNF with the same label in the same namespace. A cluster need not have joined others for this.`

func newSdewan(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "sdewan",
		Short: "Configure network functions by Kubernetes objects",
		Long:  sdewanLong,
		Args:  cli.NoSuchCommand,
	}
	cli.Lacks(c, "contexts", "rules belong to one cluster: choose it with --context")
	c.AddCommand(newSdewanInstall(g), newSdewanUninstall(g), newSdewanCNF(g), newSdewanSites(g),
		newSdewanShow(g), newSdewanPlan(g), newSdewanExplain(g))
	return c
}

// sdewanLook has the flags of the commands of sdewan that only read.
type sdewanLook struct {
	*globals
	namespace string
	all       bool
}

// addFlags gives c the flags that choose namespaces.
func (o *sdewanLook) addFlags(c *cobra.Command) {
	addNamespace(c, o.globals, &o.namespace, "namespace of the CNFs (default: that of the context, else default)")
}

// addNamespace gives c the flag --namespace.
func addNamespace(c *cobra.Command, g *globals, namespace *string, usage string) {
	c.Flags().StringVarP(namespace, "namespace", "n", "", usage)
	cli.Before(c, func() error {
		if !c.Flags().Changed("namespace") {
			return nil
		}
		return checkNamespace(*namespace)
	})
	cli.Complete(c, "namespace", g.Reading(func(ctx context.Context, c client.Client) ([]string, error) {
		var list corev1.NamespaceList
		err := c.List(ctx, &list)
		return namesOf(list.Items), err
	}))
}

// checkNamespace returns an error if the value of --namespace cannot name a namespace.
func checkNamespace(namespace string) error {
	if len(validation.IsDNS1123Label(namespace)) > 0 {
		return fmt.Errorf(
			"--namespace %.80q is not a valid namespace: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends",
			namespace)
	}
	return nil
}

// read connects to the cluster, and reads its CNFs and rules.
func (o *sdewanLook) read(ctx context.Context) (client.Client, *view.View, error) {
	if o.namespace == "" && !o.all {
		var err error
		if o.namespace, err = o.Namespace(); err != nil {
			return nil, nil, err
		}
	}
	c, err := o.Client(ctx)
	if err != nil {
		return nil, nil, err
	}
	v, err := view.Read(ctx, c, o.namespace)
	if err == nil && len(v.Hidden) > 0 {
		o.progress().Warn("without %s, which this user may not list: %s", words.List(v.Hidden), o.whyHidden(v.Hidden))
	}
	return c, v, o.remedy(err)
}

// remedy adds what to do to an error about missing rights to read.
func (o *sdewanLook) remedy(err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf(
		"%w: ask an administrator for the ClusterRole view%s, or choose another user or context (docs/permissions.md)",
		err, o.where())
}

// whyHidden tells what to do about resources that the user may not list. The ClusterRole view
// contains all resources except those with keys.
func (o *sdewanLook) whyHidden(resources []string) string {
	for _, r := range resources {
		if strings.HasPrefix(r, "ipsecsites.") || strings.HasPrefix(r, "ipsechosts.") {
			return "IpsecSites and IpsecHosts contain keys: ask an administrator for the ClusterRole edit" + o.where()
		}
	}
	return "ask an administrator for the ClusterRole view" + o.where()
}

// where names the namespaces in messages.
func (o *sdewanLook) where() string {
	if o.namespace == "" {
		return " in all namespaces"
	}
	return " in namespace " + o.namespace
}

// cnf returns the CNF with a purpose, or with the name of its Deployment.
func (o *sdewanLook) cnf(v *view.View, name string) (view.CNF, error) {
	found := v.Find(name)
	if len(found) == 1 {
		return found[0], nil
	}
	if len(found) > 1 {
		return view.CNF{}, fmt.Errorf("several Deployments%s have the label sdewanPurpose=%s: delete all but one",
			o.where(), name)
	}
	names := purposes(v)
	if len(names) == 0 {
		return view.CNF{}, fmt.Errorf(
			"there is no CNF%s: no Deployment has the label sdewanPurpose; specify another namespace with --namespace",
			o.where())
	}
	return view.CNF{}, fmt.Errorf("there is no CNF %q%s, which has %s%s", name, o.where(), words.List(names),
		words.Meant(name, names))
}

// purposes returns the purposes of all CNFs, sorted.
func purposes(v *view.View) (names []string) {
	for _, c := range v.CNFs {
		names = append(names, c.Purpose())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// completions lists names of CNFs or rules for the completion of an argument.
func (o *sdewanLook) completions(list func(*view.View) []string) cobra.CompletionFunc {
	return cli.CompleteArgument(func(ctx context.Context) ([]string, error) {
		_, v, err := o.read(ctx)
		if err != nil {
			return nil, err
		}
		return list(v), nil
	})
}

// oneArgument returns the Args of a command that takes one name.
func oneArgument(what string, name *string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 || args[0] == "":
			return fmt.Errorf("the name of the %s is missing: %s", what, c.UseLine())
		case len(args) > 1:
			return fmt.Errorf("%s takes one argument: omit %q", c.CommandPath(), args[1])
		}
		*name = args[0]
		return nil
	}
}

// trouble prints problems, and returns the error for them.
func (g *globals) trouble(problems []string) error {
	for _, p := range problems {
		g.progress().Warn("%s", printer.CleanLines(p))
	}
	if len(problems) > 0 {
		return cli.Trouble()
	}
	return nil
}
