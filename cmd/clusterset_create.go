package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker"
	"subctl/internal/cli"
	"subctl/internal/printer"
)

const clustersetCreateExample = `  subctl clusterset create hub-a hub-b --context hub`

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
			if len(args) == 0 {
				return errors.New("create requires the names of clustersets: subctl clusterset create SET")
			}
			o.names = slices.Compact(slices.Sorted(slices.Values(args)))
			var errs []error
			for _, name := range o.names {
				errs = append(errs, broker.CheckClusterSet(name))
			}
			return errors.Join(errs...)
		},
		RunE: func(c *cobra.Command, _ []string) error { return forAdministrators(o.run(c.Context())) },
	}
	c.ValidArgsFunction = cobra.NoFileCompletions
	o.add(c)
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "print what would change, without changing it")
	o.format = cli.DryRunOutput(c, &o.dryRun, printer.Table, printer.JSON, printer.YAML)
	return c
}

func (o *clustersetCreate) run(ctx context.Context) error {
	c, err := o.Client(ctx)
	if err != nil {
		return err
	}
	hub, err := readBroker(ctx, c, o.namespace)
	if err != nil {
		return err
	}
	there, err := broker.SetNames(ctx, c, o.namespace)
	if err != nil {
		return err
	}
	objects, err := broker.NewSets(ctx, c, hub, o.names)
	if err != nil {
		return err
	}
	var actions []string
	var errs []error
	for _, name := range o.names {
		if slices.Contains(there, name) {
			errs = append(errs, o.checkPartial(ctx, c, name))
		}
		actions = append(actions, "create clusterset "+name)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if o.dryRun {
		return cli.PrintActions(o.IOStreams, o.format.Format(), actions)
	}
	if err := broker.Apply(ctx, c, objects); err != nil {
		return err
	}
	for _, name := range o.names {
		o.progress().Done("created clusterset %s", name)
	}
	return nil
}

// checkPartial returns an error about a clusterset that exists, unless its creation was
// interrupted: the rest is created then.
func (o *clustersetCreate) checkPartial(ctx context.Context, c client.Client, name string) error {
	switch whole, err := broker.IsWhole(ctx, c, o.namespace, name); {
	case err != nil:
		return err
	case whole:
		return fmt.Errorf("clusterset %s exists already: choose another name", name)
	}
	o.progress().Warn("clusterset %s was not created to the end: this creates the rest", name)
	return nil
}
