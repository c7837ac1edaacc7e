package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

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
	s, err := o.read(ctx)
	if err != nil {
		return err
	}
	var actions []string
	var errs []error
	for _, name := range o.names {
		if slices.Contains(s.names(), name) {
			errs = append(errs, fmt.Errorf("clusterset %s exists already: choose another name", name))
		}
		actions = append(actions, "create clusterset "+name)
	}
	if err := errors.Join(errs...); err != nil {
		return err
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
