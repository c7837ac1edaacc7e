package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"subctl/agent"
	"subctl/agent/parts"
	"subctl/agent/role"
	"subctl/agent/roles"
	"subctl/internal/cli"
	"subctl/internal/proxy"
)

// agentOptions are the flags of "subctl agent".
type agentOptions struct {
	*globals
	options   agent.Options
	logFormat string
	logLevel  string
}

// newAgent returns the command that runs in the pods that join deploys. It is hidden:
// people have no use for it.
func newAgent(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use: "agent", Short: "Run in a pod and program the node", Hidden: true,
	}
	cli.Lacks(c, "contexts", "an agent runs in one cluster")
	cli.Lacks(c, "output", "an agent prints no data: see --log-format")
	for _, role := range roles.All() {
		c.AddCommand(newAgentRole(g, role))
	}
	c.AddCommand(newAgentSdewan(g), newAgentSdewanWebhook(g), newAgentCNF(g), newAgentDNS(g))
	return c
}

// cores is the number of cores of its node that an agent uses at a time. Most of what an idle
// agent costs is waking up, and with one core Go does not wake other threads to look for work.
const cores = 1

func newAgentRole(g *globals, agentRole role.Role) *cobra.Command {
	o := &agentOptions{globals: g, options: agent.Options{Role: agentRole, Lease: parts.DefaultLease}}
	of := "a node"
	if agentRole.Nodeless() {
		of = "the cluster"
	}
	c := &cobra.Command{
		Use: agentRole.Name, Short: "Run the " + agentRole.Name + " agent of " + of, Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	f := c.Flags()
	f.StringVar(&o.options.Node, "node", "", "name of the node (required)")
	f.StringVar(&o.options.MetricsAddr, "metrics-address", fmt.Sprintf(":%d", agentRole.MetricsPort),
		"address of /metrics")
	f.StringVar(&o.options.ProbeAddr, "probe-address", fmt.Sprintf("127.0.0.1:%d", agentRole.ProbePort),
		"address of /healthz and /readyz")
	f.StringVar(&o.logFormat, "log-format", "json", "json or text")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	if agentRole.Nodeless() {
		f.StringVar(&o.options.Pod, "pod", "", "name of the pod, which holds the Lease of the role")
	}
	if slices.Contains(agentRole.Parts, role.Exchange) {
		f.StringVar(&o.options.BrokerDir, "broker-secret", "/run/secrets/submariner.io/submariner-broker-secret",
			"directory with the token and ca.crt of the broker")
	}
	if slices.Contains(agentRole.Parts, role.KeyRing) {
		f.StringVar(&o.options.Secrets, "secrets", "/var/run/secrets/submariner.io",
			"directory with the Secrets of the cables' keys, each in a directory of its name")
	}
	if l := &o.options.Lease; slices.Contains(agentRole.Parts, role.Election) {
		f.DurationVar(&l.Duration, "lease-duration", l.Duration,
			"time after which an active gateway that does not renew its lease is replaced")
		f.DurationVar(&l.Renew, "renew-deadline", l.Renew,
			"time after which an active gateway gives up renewing its lease")
		f.DurationVar(&l.Retry, "retry-period", l.Retry, "time between attempts to get or renew the lease")
	}
	return c
}

func (o *agentOptions) run(ctx context.Context) error {
	var errs []error
	if o.options.Node == "" {
		errs = append(errs, errors.New("--node is missing: the name of the node the agent runs on"))
	}
	var level slog.LevelVar
	log, err := newLogger(o.ErrOut, o.logFormat, o.logLevel, &level)
	errs = append(errs, err)
	if l := o.options.Lease; l.Retry <= 0 || l.Renew <= l.Retry || l.Duration <= l.Renew {
		errs = append(
			errs,
			fmt.Errorf(
				"--lease-duration %v must be longer than --renew-deadline %v, which must be longer than --retry-period %v",
				l.Duration, l.Renew, l.Retry),
		)
	}
	if err := errors.Join(errs...); err != nil {
		return cli.UsageError(err)
	}
	// The pods' own API server is never reached through a proxy, which a webhook may have put into
	// the environment.
	o.options.Proxy = proxy.TakeFromEnvironment()
	o.options.Debug = followDebug(&level)
	o.options.Log = log.With("role", o.options.Role.Name, "node", o.options.Node)
	if o.options.Config, err = o.podConfig(); err != nil {
		return err
	}
	o.options.Kernel = agent.NoKernel()
	if !o.options.Role.Nodeless() {
		if o.options.Kernel, err = newKernel(); err != nil {
			return err
		}
	}
	runtime.GOMAXPROCS(cores)
	return agent.Run(ctx, o.options)
}

// podConfig returns the client configuration of the pod, or else of the flags.
func (g *globals) podConfig() (*rest.Config, error) {
	if c, err := rest.InClusterConfig(); err == nil {
		return c, nil
	}
	return g.RestConfig()
}

// followDebug returns a function that sets level to debug, or back to its present value.
func followDebug(level *slog.LevelVar) func(debug bool) {
	configured := level.Level()
	return func(debug bool) {
		if debug {
			level.Set(min(configured, slog.LevelDebug))
		} else {
			level.Set(configured)
		}
	}
}

// newLogger returns a logger, and sets its level to the level of that name.
func newLogger(w io.Writer, format, level string, l *slog.LevelVar) (*slog.Logger, error) {
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
