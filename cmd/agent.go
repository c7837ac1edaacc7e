package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"subctl/agent"
	"subctl/dataplane"
)

// agentOptions are the flags of "subctl agent".
type agentOptions struct {
	*globals
	options   agent.Options
	addr      string
	logFormat string
	logLevel  string
}

// newAgent is what runs in the pods that join deploys. It is hidden: a person has
// no use for it.
func newAgent(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use: "agent", Short: "Run in a pod and program the node", Hidden: true,
	}
	c.AddCommand(
		newAgentRole(g, agent.Gateway{}, dataplane.GatewayMetricsPort, &agent.GatewayOptions{Lease: agent.DefaultLease}),
		newAgentRole(g, agent.Route{}, dataplane.RouteMetricsPort, nil),
	)
	return c
}

func newAgentRole(g *globals, role agent.Role, port int, gateway *agent.GatewayOptions) *cobra.Command {
	o := &agentOptions{globals: g, options: agent.Options{Role: role, Gateway: gateway}}
	c := &cobra.Command{
		Use: role.Name(), Short: "Run the " + role.Name() + " agent of a node", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	f := c.Flags()
	f.StringVar(&o.options.Node, "node", "", "name of the node (required)")
	f.StringVar(&o.addr, "metrics-address", fmt.Sprintf(":%d", port), "where /metrics, /healthz and /readyz are served")
	f.StringVar(&o.logFormat, "log-format", "json", "json or text")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	if gateway != nil {
		f.StringVar(&gateway.BrokerDir, "broker-secret", "/run/secrets/submariner.io/submariner-broker-secret", "directory with the token and ca.crt of the broker")
		f.StringVar(&gateway.Secrets, "secrets", "/var/run/secrets/submariner.io", "directory with the Secrets of the cables' keys, each in a directory of its name")
		f.DurationVar(&gateway.Lease.Duration, "lease-duration", gateway.Lease.Duration, "an active gateway not heard of for so long is replaced")
		f.DurationVar(&gateway.Lease.Renew, "renew-deadline", gateway.Lease.Renew, "an active gateway gives up renewing its lease after so long")
		f.DurationVar(&gateway.Lease.Retry, "retry-period", gateway.Lease.Retry, "time between tries to get or renew the lease")
	}
	return c
}

func (o *agentOptions) run(ctx context.Context) error {
	var errs []error
	if o.options.Node == "" {
		errs = append(errs, errors.New("--node is missing: the name of the node the agent runs on"))
	}
	log, err := newLogger(o.ErrOut, o.logFormat, o.logLevel)
	errs = append(errs, err)
	if gw := o.options.Gateway; gw != nil {
		if l := gw.Lease; l.Retry <= 0 || l.Renew <= l.Retry || l.Duration <= l.Renew {
			errs = append(errs, fmt.Errorf("--lease-duration %v must be longer than --renew-deadline %v, and that longer than --retry-period %v", l.Duration, l.Renew, l.Retry))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return usageError(err)
	}
	o.options.Log = log.With("role", o.options.Role.Name(), "node", o.options.Node)
	o.options.Addr = o.addr
	if o.options.Config, err = o.agentConfig(); err != nil {
		return err
	}
	if o.options.Kernel, err = newKernel(); err != nil {
		return err
	}
	return agent.Run(ctx, o.options)
}

// agentConfig is the pod's own service account, or what the flags say.
func (o *agentOptions) agentConfig() (*rest.Config, error) {
	if c, err := rest.InClusterConfig(); err == nil {
		return c, nil
	}
	return o.restConfig()
}

func newLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q is unknown: use debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("--log-format %q is unknown: use json or text", format)
}
