package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/internal/cli"
	"subctl/internal/words"
)

const clustersetDeleteExample = `  subctl clusterset delete hub-b --context hub

  # show which connections would end with it, and delete it
  subctl clusterset delete hub-a --context hub --force --dry-run
  subctl clusterset delete hub-a --context hub --force`

type clustersetDelete struct {
	clustersetChange
}

func newClusterSetDelete(g *globals) *cobra.Command {
	o := &clustersetDelete{clustersetChange{setsFlags: setsFlags{globals: g}}}
	c := &cobra.Command{
		Use:     "delete SET",
		Short:   "Delete a clusterset",
		Long:    "Delete a clusterset of the broker. It must have no members, unless --force is set: its\nmembers are then removed from it first. If it was deleted by hand, or a deletion was\ninterrupted, the grants of its former members are renewed without it. As with subctl\nclusterset remove, pods may then send in clear text to clusters that are disconnected.",
		Example: clustersetDeleteExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("delete requires the name of one clusterset: subctl clusterset delete SET")
			}
			if o.set = args[0]; o.set == submarinerv1.DefaultClusterSet {
				return fmt.Errorf("clusterset %s cannot be deleted: its namespace has the broker's own objects", o.set)
			}
			return checkSetArgument(o.set)
		},
		RunE: func(c *cobra.Command, _ []string) error { return forAdministrators(o.run(c.Context())) },
	}
	o.flags(c)
	c.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.completeSets(c, []string{submarinerv1.DefaultClusterSet}, typed) // which cannot be deleted
	}
	return c
}

func (o *clustersetDelete) run(ctx context.Context) error {
	s, err := o.read(ctx)
	if err != nil {
		return err
	}
	granted, err := broker.Granted(ctx, s.client, s.broker)
	if err != nil {
		return err
	}
	set, err := s.find(o.set)
	left := slices.DeleteFunc(granted[o.set], func(id string) bool { return slices.Contains(set.Members, id) })
	if err != nil && len(left) == 0 {
		return err
	}
	if len(left) > 0 { // deleted by hand, or not to the end
		o.progress().Warn(
			"clusters without rights in clusterset %s still have grants for it, which are renewed without it: %s",
			o.set, words.List(left))
	}
	if policies := s.policiesOf(o.set); len(policies) > 0 {
		o.progress().Warn("the broker's cable policies for clusterset %s are deleted with it: %s", o.set,
			words.List(policies))
	}
	o.clusters = slices.Sorted(slices.Values(slices.Concat(set.Members, left)))
	o.members = set.Members
	o.remove = true
	o.deletes = true
	if len(o.clusters) > 0 {
		o.readKey(s)
		if err := o.change(ctx, s); err != nil || o.dryRun {
			return err
		}
	} else if o.dryRun {
		return cli.PrintActions(o.IOStreams, o.format.Format(), []string{"delete clusterset " + o.set})
	}
	o.progress().Step("deleting clusterset %s", o.set)
	if err := broker.DeleteSet(ctx, s.client, o.namespace, o.set); err != nil {
		return err
	}
	o.progress().Done("deleted clusterset %s", o.set)
	return nil
}

// policiesOf returns the names of the broker's own cable policies for a clusterset.
func (s *sets) policiesOf(set string) []string {
	var out []string
	for _, p := range s.catalog.Policies {
		if s.catalog.Maker(p) == submarinerv1.BrokerID && slices.Contains(p.ClusterSets(), set) {
			out = append(out, p.Name)
		}
	}
	return out
}
