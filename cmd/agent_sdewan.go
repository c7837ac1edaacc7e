package cmd

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"subctl/internal/cli"
	"subctl/internal/proxy"
	"subctl/sdewan/manager"
	"subctl/sdewan/webhook"
)

// sdewanAgent are the flags of "subctl agent sdewan" and "subctl agent sdewan-webhook".
type sdewanAgent struct {
	*globals
	options   manager.Options
	logFormat string
	logLevel  string
}

// newAgentSdewan returns the command that runs in the pods of the controller.
func newAgentSdewan(g *globals) *cobra.Command {
	o := &sdewanAgent{globals: g}
	return o.command("sdewan", "Run the controller of CNFs", manager.RunController)
}

// newAgentSdewanWebhook returns the command that runs in the pods of the webhooks.
func newAgentSdewanWebhook(g *globals) *cobra.Command {
	o := &sdewanAgent{globals: g}
	c := o.command("sdewan-webhook", "Serve the webhooks of rules of CNFs", manager.RunWebhooks)
	c.Flags().IntVar(&o.options.WebhookPort, "webhook-port", webhook.Port, "port of the webhooks")
	return c
}

func (o *sdewanAgent) command(name, short string, run func(context.Context, manager.Options) error) *cobra.Command {
	c := &cobra.Command{
		Use: name, Short: short, Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context(), run) },
	}
	f := c.Flags()
	f.StringVar(&o.options.MetricsAddr, "metrics-address", ":8080", "address of /metrics")
	f.StringVar(&o.options.ProbeAddr, "probe-address", ":8081", "address of /healthz and /readyz")
	f.StringVar(&o.logFormat, "log-format", "json", "json or text")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	return c
}

func (o *sdewanAgent) run(ctx context.Context, run func(context.Context, manager.Options) error) error {
	var level slog.LevelVar
	log, err := newLogger(o.ErrOut, o.logFormat, o.logLevel, &level)
	if err != nil {
		return cli.UsageError(err)
	}
	o.options.Log = log
	proxy.TakeFromEnvironment() // neither the API server nor CNFs are reached through a proxy
	if o.options.Config, err = o.podConfig(); err != nil {
		return err
	}
	return run(ctx, o.options)
}
