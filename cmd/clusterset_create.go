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
	"subctl/internal/printer"
)

const clustersetCreateExample = `  subctl clusterset create hub-a hub-b --context hub
  subctl join broker-info.subm --clusterset hub-a`

type clustersetCreate struct {
	setsFlags
	names  []string
	dryRun bool
	format *printer.Flag
}

func newClusterSetCreate(g *globals) *cobra.Command {
	o := &clustersetCreate{setsFlags: setsFlags{globals: g}}
	c := &cobra.Command{
		Use:     "create SET...",
		Short:   "Create clustersets",
		Long:    "Create clustersets on the broker. Clusters that join can then be in them, and subctl\nclusterset add adds clusters that have joined.",
		Example: clustersetCreateExample,
		Args: func(_ *cobra.Command, args []string) error {
			if o.names = args; len(args) == 0 {
				return errors.New("create requires the names of clustersets: subctl clusterset create SET")
			}
			var errs []error
			for _, name := range args {
				errs = append(errs, broker.CheckClusterSet(name))
			}
			return errors.Join(errs...)
		},
		RunE: func(c *cobra.Command, _ []string) error { return forAdministrators(o.run(c.Context())) },
	}
	o.add(c)
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "print what would change, without changing it")
	o.format = cli.DryRunOutput(c, &o.dryRun, printer.Table, printer.JSON, printer.YAML)
	return c
}

func (o *clustersetCreate) run(ctx context.Context) error {
	s, err := o.read(ctx)
	if err != nil {
		return err
	}
	var actions []string
	for _, name := range o.names {
		if slices.Contains(s.names(), name) {
			return fmt.Errorf("clusterset %q exists already", name)
		}
		actions = append(actions, "create clusterset "+name)
	}
	if o.dryRun {
		return cli.PrintActions(o.IOStreams, o.format.Format(), actions)
	}
	if err := broker.CreateSets(ctx, s.client, s.broker, o.names); err != nil {
		return err
	}
	for _, name := range o.names {
		o.progress().Done("created clusterset %s", name)
	}
	return nil
}

const clustersetDeleteExample = `  subctl clusterset delete hub-a --context hub

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
		Long:    "Delete a clusterset of the broker. It must have no members, unless --force is set: its\nmembers are then removed from it first.",
		Example: clustersetDeleteExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("delete requires the name of one clusterset: subctl clusterset delete SET")
			}
			if o.set = args[0]; o.set == submarinerv1.DefaultClusterSet {
				return fmt.Errorf("clusterset %s cannot be deleted: its namespace has the broker's own objects", o.set)
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return forAdministrators(o.run(c.Context())) },
	}
	o.flags(c)
	c.ValidArgsFunction = cli.CompleteArgument(o.completeSets)
	return c
}

func (o *clustersetDelete) run(ctx context.Context) error {
	s, err := o.read(ctx)
	if err != nil {
		return err
	}
	set, err := s.find(o.set)
	if err != nil {
		return err
	}
	o.clusters, o.remove = set.Members, true
	if len(o.clusters) > 0 {
		if err := o.change(ctx, s); err != nil || o.dryRun {
			return err
		}
	} else if o.dryRun {
		return cli.PrintActions(o.IOStreams, o.format.Format(), []string{"delete clusterset " + o.set})
	}
	if err := broker.DeleteSet(ctx, s.client, o.namespace, o.set); err != nil {
		return err
	}
	o.progress().Done("deleted clusterset %s", o.set)
	return nil
}
