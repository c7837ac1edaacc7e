package cmd

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable/drivers"
	"subctl/internal/cli"
	"subctl/internal/kube"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/policy/catalog"
	"subctl/policy/impact"
)

const cablePolicyLong = `Choose the cables between clusters.

A cable policy specifies the cable driver of pairs of clusters. It selects the two clusters of
a pair by their labels. The most specific policy that matches a pair decides. If no policy
matches, the policy "default" decides, and without that policy the clusters' own default
driver. All clusters of a clusterset share all policies, no matter on which cluster a policy
was created.

The current cluster may be a member or the broker. If it is both, these commands work on the
member unless --broker is set.`

const cablePolicyExample = `  # IPsec between production clusters, VXLAN between all others
  subctl cable-policy add default --cable-driver vxlan --replace --context hub
  subctl cable-policy add secure --cable-driver ipsec \
    --left-cluster-selector env=production --right-cluster-selector env=production

  # show which pair gets which cable, and why
  subctl cable-policy list
  subctl cable-policy explain east west`

func newCablePolicy(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:     "cable-policy",
		Aliases: []string{"cable-policies"},
		Short:   "Choose the cables between clusters",
		Long:    cablePolicyLong,
		Example: cablePolicyExample,
	}
	cli.Lacks(c, "contexts",
		"clusters of a clusterset share their cable policies, so one of them is enough: choose it with --context")
	c.AddCommand(newCablePolicyAdd(g), newCablePolicyList(g), newCablePolicyDelete(g), newCablePolicyExplain(g),
		newCablePolicyAdopt(g))
	return c
}

// policyOptions are the options of all cable-policy commands, which choose the cluster.
type policyOptions struct {
	*globals
	broker bool
	set    string
	file   string // the join file with the administrator's key
}

// addFlags declares the flags of a command that works on a cluster's policies.
func (s *policyOptions) addFlags(c *cobra.Command) {
	c.Flags().BoolVar(&s.broker, "broker", false, "work on the broker if the cluster is both member and broker")
}

// addSet declares the flag that chooses a clusterset.
func (s *policyOptions) addSet(c *cobra.Command, usage string) {
	c.Flags().StringVar(&s.set, "clusterset", "", usage)
	cli.Complete(c, "clusterset", func(ctx context.Context) ([]string, error) {
		all, _, err := s.open(ctx)
		if err != nil {
			return nil, err
		}
		return all.Sets, nil
	})
}

// open reads the policies, and the clusters they select, from the current cluster.
func (s *policyOptions) open(ctx context.Context) (*catalog.Catalog, client.Client, error) {
	c, err := s.Client(ctx)
	if err != nil {
		return nil, nil, err
	}
	policies, err := look.ReadPolicies(ctx, c, s.broker)
	return policies, c, err
}

// openWithUses is like open, and also reads what the gateways of the cluster report. If the
// user may not read that, it prints a warning.
func (s *policyOptions) openWithUses(ctx context.Context) (*catalog.Catalog, error) {
	clock := &look.Clock{Local: s.Now}
	c, err := s.ClientWith(ctx, *s.Flags.Context, clock.Wrap)
	if err != nil {
		return nil, err
	}
	all, err := look.ReadPolicies(ctx, c, s.broker)
	if err != nil {
		return nil, err
	}
	all.Uses, err = look.ReadUses(ctx, c, clock)
	if kube.Unreadable(err) {
		s.progress().Warn("what the gateways do is not known: %v", err)
		err = nil
	}
	return all, err
}

// ownNames returns the names of the policies that were created on this cluster.
func (s *policyOptions) ownNames(ctx context.Context) ([]string, error) {
	all, _, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	return all.Names(true), nil
}

// settings returns the names of the ConfigMaps that a new policy can name.
func (s *policyOptions) settings(ctx context.Context) ([]string, error) {
	all, c, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	var p v1alpha1.CablePolicies
	if err := all.Place(&p, s.set); err != nil {
		return nil, err
	}
	return look.SettingsNames(ctx, c, p.Namespace)
}

// printChange prints the pairs that change their cable. In a structured format they are
// messages, and the data are objects.
func (g *globals) printChange(
	format printer.Format,
	dryRun bool,
	change impact.Change,
	scheme *runtime.Scheme,
	objects []client.Object,
) error {
	print := func() error { return look.PrintChange(g.Out, g.progress(), change) }
	if format.Structured() {
		if err := look.PrintChange(g.ErrOut, g.progress(), change); err != nil {
			return err
		}
		print = func() error { return cli.PrintObjects(g.Out, scheme, format, dryRun, objects) }
	}
	if dryRun {
		return cli.PrintDryRun(g.IOStreams, format, print)
	}
	return print()
}

// completeDrivers completes --cable-driver.
func completeDrivers(c *cobra.Command) {
	cli.Complete(c, "cable-driver", func(context.Context) ([]string, error) {
		var names []string
		for _, d := range drivers.All() {
			names = append(names, d.Name())
		}
		return names, nil
	})
}

// completeClusters completes the arguments of a command with cluster IDs.
func (s *policyOptions) completeClusters(
	c *cobra.Command,
	args []string,
	_ string,
) ([]string, cobra.ShellCompDirective) {
	all, _, err := s.open(c.Context())
	if err != nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(all.ClusterIDs(),
		func(id string) bool { return slices.Contains(args, id) }), cobra.ShellCompDirectiveNoFileComp
}
