package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/cluster"
	"subctl/internal/cli"
	"subctl/internal/drain"
	"subctl/internal/look"
	"subctl/internal/wake"
)

const gatewayRemoveLong = `Drain gateways, and make their nodes workers when they are drained.

Draining lets the connections that a gateway has end, as subctl gateway drain does, which
describes it. The gateway announces to other clusters that it is drained before it goes, so they
show it as leaving, and not as a fault. If it is not drained within --timeout, it stays a gateway
that is draining, and the exit code is 3: run the command again, or put it back with subctl
gateway undrain.

No other node replaces a removed gateway. Removing the last working gateway requires --force, and
disconnects the cluster; with --dry-run, the exit code is then 3. Afterwards no node becomes a
gateway without subctl gateway add, or subctl join --gateways.`

const gatewayRemoveExample = `  # print what would change, and remove a gateway
  subctl gateway remove gw-2 --dry-run
  subctl gateway remove gw-2

  # without time for connections to end
  subctl gateway remove gw-2 --grace-period 0s`

type gatewayRemove struct{ drainFlags }

func newGatewayRemove(g *globals) *cobra.Command {
	o := &gatewayRemove{drainFlags{gatewayChange: gatewayChange{globals: g}}}
	c := &cobra.Command{
		Use:     "remove NODE ...",
		Short:   "Drain gateways, and make their nodes workers",
		Long:    gatewayRemoveLong,
		Example: gatewayRemoveExample,
		RunE:    func(c *cobra.Command, _ []string) error { return forAdministrators(o.run(c.Context())) },
	}
	o.addDraining(c, gatewayNodes, "", "draining", "remove")
	return c
}

// gatewayNodes returns the gateway nodes of a cluster.
func gatewayNodes(s look.Site) []string {
	return append(drain.Names(s, false), drain.Names(s, true)...)
}

func (o *gatewayRemove) run(ctx context.Context) error {
	c, target, site, err := o.read(ctx)
	if err != nil {
		return err
	}
	draining, err := drain.Drain(site, o.names, o.grace, o.regrace)
	if err != nil {
		return err
	}
	draining.Notes = nil // that it is draining already is as good
	removal := drain.Remove(site, o.names)
	if o.dryRun {
		return o.printBoth(draining, removal)
	}
	if draining.Lost != nil && !o.force {
		return fmt.Errorf("%w\nnothing was changed: add another gateway first (subctl gateway add NODE); to remove "+
			"it nevertheless, add --force", draining.Lost)
	}
	if draining.Lost != nil {
		o.progress().Warn("%v", draining.Lost)
	}
	if err := draining.Apply(ctx, c); err != nil {
		return err
	}
	if !o.timeLimited {
		o.timeout = draining.Grace + afterGrace
	}
	if err := drain.Wait(ctx, target, o.progress(), draining.Awaited, drain.IsDrained, o.timeout); err != nil {
		return err
	}
	return o.unlabel(ctx, c, target)
}

// printBoth prints what draining and the removal change.
func (o *gatewayRemove) printBoth(draining, removal drain.Plan) error {
	lines := append(draining.Lines(), "wait until it is drained")
	if err := cli.PrintActions(o.IOStreams, o.format.Format(), append(lines, removal.Lines()...)); err != nil ||
		draining.Lost == nil {
		return err
	}
	if o.progress().Warn("%v", draining.Lost); o.force {
		return nil
	}
	o.progress().Warn("without --force, this change is refused")
	return cli.Trouble()
}

// unlabel takes the nodes, as they are now, from the gateways.
func (o *gatewayRemove) unlabel(ctx context.Context, c client.Client, target *look.Target) error {
	sites, errs := look.ReadAll(ctx, []*look.Target{target}, drain.Reads...)
	if errs[0] != nil {
		return errs[0]
	}
	removal := drain.Remove(sites[0], o.names)
	if removal.Kept != nil {
		if err := removal.Lower(ctx, c); err != nil {
			return err
		}
		if err := wake.After(ctx, cluster.Poll); err != nil { // the agent that replaces gateway nodes reads it first
			return err
		}
	}
	if err := removal.Apply(ctx, c); err != nil {
		return err
	}
	for _, name := range o.names {
		o.progress().Done("node %s is no gateway any more: its cables end within seconds", name)
	}
	return nil
}
