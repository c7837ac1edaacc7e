package cmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/cli"
	"subctl/internal/drain"
	"subctl/internal/look"
	"subctl/internal/words"
)

const gatewayDrainLong = `Take gateways out of service, such as before their nodes are rebooted.

A gateway that is draining keeps its cables and the connections that it has, and gets no new
ones from its own cluster. From other clusters, it gets those between addresses that are
connected through it already, and a few by chance. Kernels without resilient next hop groups
(before Linux 5.13) cannot tell new connections from old ones; there, connections through it
take another gateway at once. When the connections have ended, or have had no packet for 120 s,
or when the grace period is over, the gateway is drained: other nodes and clusters do not use
it. Connections that it still has then move to another gateway: those from pod to pod continue,
and one to a Service does if that gateway chooses the same pod (docs/failover.md). Connections
of pods on the node itself are not counted.

With one active gateway in the cluster, another gateway takes over its role at once, and 10 s
later the gateway is drained, whatever the grace period is: connections move then.

A gateway stays drained until subctl gateway undrain, even if its node is rebooted. Draining the
last working gateway requires --force; with --dry-run, the exit code is then 3, and also if the
gateways are not drained within --timeout. Of the connections that a gateway carries, 20 are
listed, and the others are counted.`

const gatewayDrainExample = `  # print what would change, drain a gateway, and wait until its node can be rebooted
  subctl gateway drain gw-1 --dry-run
  subctl gateway drain gw-1 --wait

  # give connections an hour to end
  subctl gateway drain gw-1 --grace-period 1h`

// afterGrace is the time that --wait gives gateways in addition to their grace period, unless
// --timeout is set.
const afterGrace = time.Minute

// drainFlags are the flags of a command that drains gateways.
type drainFlags struct {
	gatewayChange
	grace                time.Duration
	regrace, timeLimited bool // the command line has --grace-period, and --timeout
	force                bool
}

// addDraining adds the flags to a command that is for candidates. wait is the help of --wait, empty
// if there is none; purpose is that of --timeout, and verb what --force does.
func (o *drainFlags) addDraining(c *cobra.Command, candidates func(look.Site) []string, wait, purpose, verb string) {
	o.addFlags(c, candidates, wait, submarinerv1.DefaultGrace+afterGrace,
		"time limit for "+purpose+"; by default, a minute longer than the grace period of the gateways")
	f := c.Flags()
	f.Lookup("timeout").DefValue = "0s" // the help names no default, as it depends on the grace period
	addGrace(c, &o.grace)
	f.BoolVar(&o.force, "force", false, verb+" the gateways even if no other gateway works")
	cli.Before(c, func() error {
		o.regrace = f.Changed("grace-period")
		o.timeLimited = f.Changed("timeout")
		return nil
	})
}

type gatewayDrain struct{ drainFlags }

func newGatewayDrain(g *globals) *cobra.Command {
	o := &gatewayDrain{drainFlags{gatewayChange: gatewayChange{globals: g}}}
	c := &cobra.Command{
		Use:     "drain NODE ...",
		Short:   "Take gateways out of service, and keep connections",
		Long:    gatewayDrainLong,
		Example: gatewayDrainExample,
	}
	o.addDraining(c, func(s look.Site) []string { return drain.Names(s, false) },
		"wait until the gateways are drained, and list the connections that they still have", "--wait", "drain")
	c.RunE = func(c *cobra.Command, _ []string) error { return forAdministrators(o.run(c.Context())) }
	return c
}

// addGrace gives a command the flag --grace-period.
func addGrace(c *cobra.Command, grace *time.Duration) {
	c.Flags().DurationVar(grace, "grace-period", submarinerv1.DefaultGrace,
		"time that the connections of a gateway are given to end")
	cli.Before(c, func() error {
		if *grace < 0 || *grace > submarinerv1.MaxGrace {
			return fmt.Errorf("--grace-period %v: it must be from 0s to %.0fh", *grace, submarinerv1.MaxGrace.Hours())
		}
		return nil
	})
}

func (o *gatewayDrain) run(ctx context.Context) error {
	c, target, site, err := o.read(ctx)
	if err != nil {
		return err
	}
	p, err := drain.Drain(site, o.names, o.grace, o.regrace)
	if err != nil {
		return err
	}
	if o.dryRun {
		o.listCarried(site)
	}
	if err := o.carryOut(ctx, c, p, o.force); err != nil || o.dryRun {
		return err
	}
	if o.wait {
		if !o.timeLimited {
			o.timeout = p.Grace + afterGrace
		}
		return drain.Wait(ctx, target, o.progress(), p.Awaited, drain.IsDrained, o.timeout)
	}
	for _, n := range p.Nodes {
		o.progress().Done("gateway %s %s; see subctl show gateways", n.Name,
			drainBegins(site, n.Name, p.Lost == nil, o.grace))
	}
	o.listCarried(site)
	return nil
}

// listCarried prints the connections that the gateways carry, as far as they are known.
func (o *gatewayDrain) listCarried(s look.Site) {
	for _, name := range o.names {
		if text, list := drain.Carried(s, name); text != "" {
			o.progress().List(text, list)
		}
	}
}

// drainBegins tells what follows for a gateway that is to be drained from now on, or gets another
// grace period. others is whether another gateway works.
func drainBegins(s look.Site, name string, others bool, grace time.Duration) string {
	switch {
	case drain.Drained(s, name):
		return "is drained already"
	case !others || s.Submariner.Spec.MultiActiveGatewayEnabled:
		return fmt.Sprintf(
			"is draining: it gets no new connections, and is drained when those that it has have ended, after %s at the latest",
			words.Duration(grace))
	case s.HAStatus(name) == submarinerv1.HAStatusPassive:
		return "is a standby: it is drained at once, and is used only if no other gateway works"
	default:
		return "is draining: another gateway takes over its role, and 10 s later it is drained"
	}
}
