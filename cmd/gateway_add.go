package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"subctl/internal/drain"
)

const gatewayAddLong = `Make nodes gateways, and wait until they are connected to other clusters.

A gateway gets new connections of the cluster with several active gateways (subctl join
--multi-active-gateway); else it is a standby. The cluster keeps one gateway node more from then
on for each that is added: if one is gone, another node takes its place (docs/failover.md). A node
that is named here is not replaced while it exists, as with subctl join --gateway-nodes. A cluster
that has joined with --label-gateway=false, or whose last gateway was removed, keeps no number of
them: subctl join --gateways makes it keep one again.`

const gatewayAddExample = `  # print what would change, and make a node a gateway
  subctl gateway add gw-2 --dry-run
  subctl gateway add gw-2`

func newGatewayAdd(g *globals) *cobra.Command {
	o := &gatewayChange{globals: g, wait: true}
	c := &cobra.Command{
		Use:     "add NODE ...",
		Short:   "Make nodes gateways",
		Long:    gatewayAddLong,
		Example: gatewayAddExample,
		RunE:    func(c *cobra.Command, _ []string) error { return forAdministrators(o.add(c.Context())) },
	}
	o.addFlags(c, drain.Candidates, "wait until the gateways work", 2*time.Minute, "time limit for --wait")
	return c
}

func (o *gatewayChange) add(ctx context.Context) error {
	c, target, site, err := o.read(ctx)
	if err != nil {
		return err
	}
	p, err := drain.Add(site, o.names)
	if err != nil {
		return err
	}
	if err := o.carryOut(ctx, c, p, false); err != nil || o.dryRun {
		return err
	}
	if o.wait {
		return drain.Wait(ctx, target, o.progress(), p.Awaited, drain.Works, o.timeout)
	}
	for _, n := range p.Nodes {
		o.progress().Done("node %s becomes a gateway; see subctl show gateways", n.Name)
	}
	return nil
}
