package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"subctl/agent/dns"
	"subctl/dataplane"
	"subctl/internal/cli"
	"subctl/internal/proxy"
	"subctl/services"
)

// dnsAgent are the flags of "subctl agent dns".
type dnsAgent struct {
	*globals
	options   dns.Options
	logFormat string
	logLevel  string
}

// newAgentDNS returns the command that runs in the pods of the DNS server.
func newAgentDNS(g *globals) *cobra.Command {
	o := &dnsAgent{globals: g}
	c := &cobra.Command{
		Use: "dns", Short: "Answer DNS questions for names under " + services.Domain, Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	f := c.Flags()
	f.StringVar(&o.options.ClusterID, "cluster-id", "", "ID of the cluster (required)")
	f.BoolVar(&o.options.ClusterNames, "cluster-names", false, "answer for <cluster>.<service>.<namespace>.svc."+
		services.Domain+" with the endpoints of that cluster")
	f.StringVar(&o.options.Listen, "listen", fmt.Sprintf(":%d", dataplane.DNSPort), "address of DNS, over UDP and TCP")
	f.StringVar(&o.options.MetricsAddr, "metrics-address", fmt.Sprintf(":%d", dataplane.DNSMetricsPort),
		"address of /metrics")
	f.StringVar(&o.options.ProbeAddr, "probe-address", fmt.Sprintf("127.0.0.1:%d", dataplane.DNSProbePort),
		"address of /healthz and /readyz")
	f.StringVar(&o.logFormat, "log-format", "json", "json or text")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	return c
}

func (o *dnsAgent) run(ctx context.Context) error {
	var level slog.LevelVar
	log, err := newLogger(o.ErrOut, o.logFormat, o.logLevel, &level)
	if o.options.ClusterID == "" {
		err = errors.Join(errors.New("--cluster-id is missing: the ID of the cluster the server runs in"), err)
	}
	if err != nil {
		return cli.UsageError(err)
	}
	o.options.Log = log
	proxy.TakeFromEnvironment() // the API server is not reached through a proxy
	if o.options.Config, err = o.podConfig(); err != nil {
		return err
	}
	return dns.Run(ctx, o.options)
}
