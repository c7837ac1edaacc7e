package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/cli"
	"subctl/internal/drain"
	"subctl/internal/look"
	"subctl/internal/printer"
)

const gatewayLong = `Change which nodes of the cluster of the current context are gateways, and take gateways out of
service and put them back.

The share of a gateway in service is its weight: annotate its node with
gateway.submariner.io/weight=N, from 1 to 100; the default is 100. docs/failover.md describes
weights, and what happens to connections.`

func newGateway(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:     "gateway",
		Aliases: []string{"gateways"},
		Short:   "Add and remove gateways, and take them out of service",
		Long:    gatewayLong,
		Args:    cli.NoSuchCommand,
	}
	c.AddCommand(newGatewayAdd(g), newGatewayRemove(g), newGatewayDrain(g), newGatewayUndrain(g))
	return c
}

// gatewayChange has the flags and the arguments of the commands that change gateways.
type gatewayChange struct {
	*globals
	names        []string
	dryRun, wait bool
	timeout      time.Duration
	format       *printer.Flag
}

// addFlags gives c the flags and the arguments of a command that changes gateways. names returns
// the nodes that can be its arguments. waits describes --wait, which the command does not have if
// it is empty, and limits describes --timeout.
func (o *gatewayChange) addFlags(
	c *cobra.Command, names func(look.Site) []string, waits string, limit time.Duration, limits string,
) {
	cli.Lacks(c, "contexts", "a node belongs to one cluster: choose it with --context")
	c.Args = func(_ *cobra.Command, args []string) error { return o.parse(c, args) }
	f := c.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would change, without changing it")
	if waits != "" {
		f.BoolVar(&o.wait, "wait", o.wait, waits)
	}
	cli.TimeLimit(c, &o.timeout, limit, limits)
	o.format = cli.DryRunOutput(c, &o.dryRun, printer.Table, printer.JSON, printer.YAML)
	c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		_, _, s, err := o.read(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return slices.DeleteFunc(names(s), func(n string) bool { return slices.Contains(args, n) }),
			cobra.ShellCompDirectiveNoFileComp
	}
}

// parse reads the names of gateways, and returns all mistakes in them.
func (o *gatewayChange) parse(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("the name of the node is missing: %s NODE", c.CommandPath())
	}
	var errs []error
	for i, name := range args {
		switch {
		case name == "": // an unset variable
			errs = append(errs, errors.New(`"" is not the name of a node: specify a gateway node`))
		case slices.Contains(args[:i], name):
			errs = append(errs, fmt.Errorf("node %q is specified twice", name))
		}
	}
	o.names = args
	return errors.Join(errs...)
}

// read reads the cluster of the current context.
func (o *gatewayChange) read(ctx context.Context) (client.Client, *look.Target, look.Site, error) {
	c, err := o.Client(ctx)
	if err != nil {
		return nil, nil, look.Site{}, err
	}
	targets, err := o.Targets([]string{*o.Flags.Context})
	if err != nil {
		return nil, nil, look.Site{}, err
	}
	sites, errs := look.ReadAll(ctx, targets, drain.Reads...)
	if errs[0] == nil && !sites[0].Joined() {
		errs[0] = fmt.Errorf(
			"cluster %q has not joined, so it has no gateways: choose the cluster with --context, or run \"subctl join\"",
			sites[0].Name)
	}
	return c, targets[0], sites[0], errs[0]
}

// carryOut makes the change, unless the command line has --dry-run.
func (o *gatewayChange) carryOut(ctx context.Context, c client.Client, p drain.Plan, force bool) error {
	for _, note := range p.Notes {
		o.progress().Warn("%s", note)
	}
	switch {
	case p.Lost != nil && o.dryRun:
		if err := cli.PrintActions(o.IOStreams, o.format.Format(), p.Lines()); err != nil {
			return err
		}
		if o.progress().Warn("%v", p.Lost); force {
			return nil
		}
		o.progress().Warn("without --force, this change is refused")
		return cli.Trouble()
	case o.dryRun:
		return cli.PrintActions(o.IOStreams, o.format.Format(), p.Lines())
	case p.Lost != nil && !force:
		return fmt.Errorf(
			"%w\nnothing was changed: put another gateway into service (subctl gateway undrain NODE), or make another node a gateway "+
				"(subctl gateway add NODE); to drain it nevertheless, add --force",
			p.Lost,
		)
	case p.Lost != nil:
		o.progress().Warn("%v: it stays in use until another gateway works", p.Lost)
	}
	return p.Apply(ctx, c)
}
