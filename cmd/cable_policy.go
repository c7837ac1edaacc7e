package cmd

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/cable/drivers"
	"subctl/internal/look"
	"subctl/policy/catalog"
)

const cablePolicyLong = `Choose the cables between clusters.

A cable policy says which cable driver joins which pairs of clusters. It selects the
clusters at each end by their labels. The most specific policy that matches a pair
decides; if none matches, the policy "default" does, and without that one the clusters'
own default driver. All clusters of a clusterset share all policies, no matter which
cluster they were made on.

The cluster in use may be a member or the broker. If it is both, these commands work on
the member unless --broker is given.`

const cablePolicyExample = `  # IPsec between production clusters, VXLAN between all others
  subctl cable-policy add --name default --cable-driver vxlan
  subctl cable-policy add --name secure --cable-driver ipsec \
    --left-cluster-selector env=production --right-cluster-selector env=production

  # which pair gets which cable, and why
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
	c.AddCommand(newCablePolicyAdd(g), newCablePolicyList(g), newCablePolicyDelete(g), newCablePolicyExplain(g))
	return c
}

// policyOptions are those of all cable-policy commands: whose policies.
type policyOptions struct {
	*globals
	broker bool
	set    string
}

// addFlags gives c the flags of a command that works on a cluster's policies. The flag
// --kubecontext is --context under the name that the proposal gives it.
func (s *policyOptions) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(s.kube.Context, "kubecontext", "", "kubeconfig context to use, the same as --context")
	f.BoolVar(&s.broker, "broker", false, "work on the broker, on a cluster that is both member and broker")
	complete(c, "kubecontext", func(context.Context) ([]string, error) { return s.contexts() })
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if c.Flags().Changed("context") && c.Flags().Changed("kubecontext") {
			return errors.New("--context and --kubecontext are the same: leave one out (it may come from SUBCTL_CONTEXT or the configuration file)")
		}
		return nil
	}
}

// addSet gives c the flag that chooses a clusterset.
func (s *policyOptions) addSet(c *cobra.Command, usage string) {
	c.Flags().StringVar(&s.set, "clusterset", "", usage)
	complete(c, "clusterset", func(ctx context.Context) ([]string, error) {
		all, _, err := s.open(ctx)
		if err != nil {
			return nil, err
		}
		return all.Sets, nil
	})
}

// open reads everything that policies are about, from the cluster in use.
func (s *policyOptions) open(ctx context.Context) (*catalog.Catalog, client.Client, error) {
	c, err := s.client(ctx)
	if err != nil {
		return nil, nil, err
	}
	policies, err := look.ReadPolicies(ctx, c, s.broker)
	return policies, c, err
}

// completeNames makes --name complete from the policies there are; own from those that
// may be changed here.
func (s *policyOptions) completeNames(c *cobra.Command, own bool) {
	complete(c, "name", func(ctx context.Context) ([]string, error) {
		all, _, err := s.open(ctx)
		if err != nil {
			return nil, err
		}
		return all.Names(own), nil
	})
}

// completeDrivers makes --cable-driver complete.
func completeDrivers(c *cobra.Command) {
	complete(c, "cable-driver", func(context.Context) ([]string, error) {
		var names []string
		for _, d := range drivers.All() {
			names = append(names, d.Name())
		}
		return names, nil
	})
}

// completeClusters completes the arguments of a command from cluster IDs.
func (s *policyOptions) completeClusters(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	all, _, err := s.open(c.Context())
	if err != nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(all.ClusterIDs(), func(id string) bool { return slices.Contains(args, id) }), cobra.ShellCompDirectiveNoFileComp
}
