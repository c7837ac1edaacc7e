package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/internal/drain"
	"subctl/internal/look"
)

const gatewayUndrainLong = `Put gateways back into service that were drained.

A gateway gets new connections again at once, as its weight says. Connections through other
gateways stay there. With one active gateway in the cluster, it is a standby. A weight of 0,
which drains a gateway, too, is removed.`

const gatewayUndrainExample = `  subctl gateway undrain gw-1
  subctl gateway undrain gw-1 --dry-run`

func newGatewayUndrain(g *globals) *cobra.Command {
	o := &gatewayChange{globals: g}
	c := &cobra.Command{
		Use:     "undrain NODE ...",
		Short:   "Put gateways back into service",
		Long:    gatewayUndrainLong,
		Example: gatewayUndrainExample,
		RunE:    func(c *cobra.Command, _ []string) error { return forAdministrators(o.undrain(c.Context())) },
	}
	o.addFlags(c, func(s look.Site) []string { return drain.Names(s, true) }, "wait until the gateways are in service",
		2*time.Minute, "time limit for --wait")
	return c
}

func (o *gatewayChange) undrain(ctx context.Context) error {
	c, target, site, err := o.read(ctx)
	if err != nil {
		return err
	}
	p, err := drain.Undrain(site, o.names)
	if err != nil {
		return err
	}
	if err := o.carryOut(ctx, c, p, false); err != nil || o.dryRun {
		return err
	}
	for _, n := range p.Nodes {
		if o.wait && cluster.IsGateway(*n) {
			continue
		}
		what := "in service again"
		switch {
		case !cluster.IsGateway(*n):
			what = "not drained any more, and no gateway: its node has no label " + submarinerv1.GatewayNodeLabel +
				"=true"
		case !site.Submariner.Spec.MultiActiveGatewayEnabled && site.HAStatus(n.Name) != submarinerv1.HAStatusActive:
			what += ", as a standby: the active gateway keeps its role"
		}
		o.progress().Done("gateway %s is %s", n.Name, what)
	}
	if o.wait && len(p.Awaited) > 0 {
		return drain.Wait(ctx, target, o.progress(), p.Awaited, drain.InService, o.timeout)
	}
	return nil
}
