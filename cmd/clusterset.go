package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cable"
	"subctl/internal/cli"
	"subctl/internal/kube"
	"subctl/internal/look"
	"subctl/internal/words"
	"subctl/policy/catalog"
	"subctl/policy/impact"
)

const clustersetLong = `Create and delete clustersets, and change which clusters are in them.

A clusterset is a group of clusters that are connected to each other. A cluster may be in
several clustersets, and forwards nothing from one of them to another. What is not in a
clusterset of a cluster does not exist for that cluster: the API server of the broker does not
show it, and gateways do not connect it.

All commands work on the broker on the cluster of the current context.`

func newClusterSet(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:     "clusterset",
		Aliases: []string{"clustersets"},
		Short:   "Change which clusters are connected",
		Long:    clustersetLong,
		Args:    cli.NoSuchCommand,
	}
	c.AddCommand(newClusterSetCreate(g), newClusterSetDelete(g), newClusterSetAdd(g), newClusterSetRemove(g),
		newClusterSetList(g), newClusterSetShow(g), newClusterSetCan(g))
	return c
}

// sets holds the clustersets and the members of a broker, for the commands of clusterset.
type sets struct {
	client  client.Client
	broker  *v1alpha1.Broker
	sets    []broker.ClusterSet
	catalog *catalog.Catalog
	silent  []string // the members that have published nothing
}

// setsFlags are the flags of the commands of clusterset.
type setsFlags struct {
	*globals
	namespace string
}

func (o *setsFlags) add(c *cobra.Command) {
	cli.Lacks(c, "contexts", "a broker is on one cluster: choose it with --context")
	c.Flags().StringVarP(&o.namespace, "namespace", "n", submarinerv1.BrokerNamespace, "namespace of the broker")
	cli.Before(c, func() error { return checkNamespace(o.namespace) })
}

// inContext returns the command line of another command for the same cluster.
func (o *setsFlags) inContext(command string) string {
	line := "subctl " + command
	if *o.Flags.Context != "" {
		line += " --context " + *o.Flags.Context
	}
	return line
}

// onBroker returns the command line of another command of clusterset for the same broker.
func (o *setsFlags) onBroker(command string) string {
	line := o.inContext(command)
	if o.namespace != submarinerv1.BrokerNamespace {
		line += " --namespace " + o.namespace
	}
	return line
}

func (o *setsFlags) read(ctx context.Context) (*sets, error) {
	c, err := o.Client(ctx)
	if err != nil {
		return nil, err
	}
	s := &sets{client: c}
	if s.broker, err = readBroker(ctx, c, o.namespace); err != nil {
		return nil, err
	}
	if s.sets, err = broker.ClusterSets(ctx, c, o.namespace); err != nil {
		return nil, err
	}
	if s.catalog, err = look.ReadBrokerPolicies(ctx, c, s.broker); err != nil {
		return nil, err
	}
	for _, id := range s.members() { // by their rights, not by what they have published so far
		if _, is := s.catalog.Cluster(id); !is {
			s.silent = append(s.silent, id)
		}
		s.catalog = s.catalog.InSets(id, s.of(id))
	}
	return s, nil
}

// names returns the names of the clustersets.
func (s *sets) names() []string {
	var out []string
	for _, set := range s.sets {
		out = append(out, set.Name)
	}
	return out
}

// members returns the IDs of all members, sorted.
func (s *sets) members() []string {
	var out []string
	for _, set := range s.sets {
		out = append(out, set.Members...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// of returns the clustersets of a cluster.
func (s *sets) of(id string) []string {
	var out []string
	for _, set := range s.sets {
		if slices.Contains(set.Members, id) {
			out = append(out, set.Name)
		}
	}
	return out
}

// find returns a clusterset, or an error that suggests the nearest name.
func (s *sets) find(name string) (broker.ClusterSet, error) {
	for _, set := range s.sets {
		if set.Name == name {
			return set, nil
		}
	}
	return broker.ClusterSet{}, broker.NoSuchSet(name, s.names())
}

// checkSetArgument returns an error if a clusterset is named "", which is the value of an unset
// variable.
func checkSetArgument(name string) error {
	if name == "" {
		return errors.New(`"" is not a clusterset: specify one of the clustersets that subctl clusterset list prints`)
	}
	return nil
}

// all returns the IDs of all members of the broker, also of those that are in no clusterset. It is
// for completion: if they cannot be read, there are none.
func (s *sets) all(ctx context.Context) []string {
	state, _ := broker.Look(ctx, s.client, s.broker.Namespace)
	return state.Members
}

// checkMember returns an error unless a cluster is a member of the broker. One that was removed
// from its last clusterset has an identity still.
func checkMember(state broker.State, id string) error {
	if slices.Contains(state.Members, id) {
		return nil
	}
	return fmt.Errorf("the broker has no member %q: it has %s%s", id, cmp.Or(words.List(state.Members), "no members"),
		words.Meant(id, state.Members))
}

// completeSets completes the names of the clustersets that are not among the arguments.
func (o *setsFlags) completeSets(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return o.complete(c.Context(), typed, args, (*sets).names)
}

// complete completes what is not among the arguments. Errors are not printed while the user is
// typing.
func (o *setsFlags) complete(
	ctx context.Context,
	typed string,
	args []string,
	list func(*sets) []string,
) ([]string, cobra.ShellCompDirective) {
	s, err := o.read(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(list(s),
		func(x string) bool {
			return !strings.HasPrefix(x, typed) || slices.Contains(args, x)
		}), cobra.ShellCompDirectiveNoFileComp
}

// networks returns the networks of the members, by cluster ID. Those that agents ignore are left
// out.
func (s *sets) networks(ctx context.Context) (map[string]impact.Networks, error) {
	lists := make([]submarinerv1.ClusterList, len(s.sets))
	err := kube.ForEach(s.sets, func(i int, set broker.ClusterSet) error {
		if err := s.client.List(ctx, &lists[i], client.InNamespace(set.Namespace)); err != nil {
			return fmt.Errorf("reading the networks of the members of clusterset %s: %w", set.Name, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	grants, err := broker.Grants(ctx, s.client, s.broker)
	if err != nil {
		return nil, err
	}
	out := map[string]impact.Networks{}
	for _, list := range lists {
		for _, c := range list.Items {
			if out[c.Name].Announced != nil {
				continue
			}
			n := impact.Networks{Announced: valid(c.Spec.Announced()), Own: s.catalog.Addresses(c.Name)}
			if len(c.Spec.GlobalCIDR) > 0 {
				n.Own = slices.Concat(n.Own, valid(c.Spec.ServiceCIDR), valid(c.Spec.ClusterCIDR))
			}
			out[c.Name] = n
		}
	}
	for id, g := range grants {
		// it publishes nothing: it was removed from its last clusterset, or has just joined
		if out[id].Announced == nil {
			out[id] = impact.Networks{Announced: g.Networks, Own: out[id].Own}
		}
	}
	return out, nil
}

// valid parses networks, and skips those that agents ignore.
func valid(texts []string) (out []netip.Prefix) {
	for _, text := range texts[:min(len(texts), cable.MaxSubnets)] {
		if n, err := cable.ParseCIDR(text); err == nil {
			out = append(out, n)
		}
	}
	return out
}
