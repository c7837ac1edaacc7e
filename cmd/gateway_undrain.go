package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"subctl/internal/drain"
	"subctl/internal/words"
)

const gatewayUndrainLong = `Put gateways back into service that were drained.

A gateway gets new connections again at once, as its weight says. Connections through other
gateways stay there. A weight of 0, which drains a gateway, too, is removed.`

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
	o.addFlags(c, true, "wait until the gateways are in service", 2*time.Minute)
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
	if o.wait {
		return drain.Wait(ctx, target, o.progress(), o.names, false, o.timeout)
	}
	if len(p.Nodes) > 0 {
		o.progress().Done("%s: in service again", words.List(o.names))
	}
	return nil
}
