package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"subctl/cluster"
	"subctl/internal/cli"
	"subctl/internal/printer"
	"subctl/sdewan/install"
)

const sdewanInstallLong = `Install what applies rules to CNFs: the kinds of the rules, and the controller with its
admission webhooks, in namespace sdewan-system.

The webhooks create and renew their certificates themselves. Users with the ClusterRole view in
a namespace may read the rules there that hold no keys; users with edit may read all of them, and
write them except those of type basic. Run the command again to change the image, or to repair what
was deleted: rules and CNFs stay as they are.

The command waits until the controller is ready.`

const sdewanInstallExample = `  # print what would be applied, and install
  subctl sdewan install --image registry.example/subctl:v1 --dry-run -o yaml
  subctl sdewan install --image registry.example/subctl:v1`

type sdewanInstall struct {
	*globals
	options install.Options
	dryRun  bool
	wait    bool
	timeout time.Duration
	format  *printer.Flag
}

func newSdewanInstall(g *globals) *cobra.Command {
	o := &sdewanInstall{globals: g}
	c := &cobra.Command{
		Use:     "install",
		Short:   "Install the controller of CNFs and its webhooks",
		Long:    sdewanInstallLong,
		Example: sdewanInstallExample,
		Args:    g.noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	f := c.Flags()
	f.StringVar(&o.options.Image, "image", "", "image of the controller (default: the image of this version of subctl)")
	f.Int32Var(&o.options.Replicas, "replicas", 2,
		"pods of the controller: one works, the others stand by, and all serve the webhooks")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be applied, without applying it")
	f.BoolVar(&o.wait, "wait", true, "wait until the controller is ready")
	cli.Before(c, func() error { return o.options.Validate() })
	cli.TimeLimit(c, &o.timeout, 2*time.Minute, "time limit for --wait")
	o.format = cli.DryRunOutput(c, &o.dryRun, printer.Table, printer.JSON, printer.YAML)
	return c
}

func (o *sdewanInstall) run(ctx context.Context) error {
	side, err := o.MemberSide(ctx)
	if err != nil {
		return err
	}
	if o.options.Platform.SCC, err = cluster.HasSCC(side); err != nil {
		return err
	}
	objects, err := install.Render(o.options)
	if err != nil {
		return err
	}
	if o.dryRun {
		if format := o.format.Format(); format.Structured() {
			return cli.PrintDryRun(o.IOStreams, format,
				func() error { return cli.PrintObjects(o.Out, side.Scheme(), format, true, objects) })
		}
		return cli.PrintActions(o.IOStreams, o.format.Format(), install.Lines(side.Scheme(), "apply", objects))
	}
	if err := install.CheckRights(ctx, side.Client, side.URL, objects, o.wait); err != nil {
		return err
	}
	op := &install.Operation{Client: side.Client, Report: o.progress(), Timeout: o.timeout}
	if err := op.Apply(ctx, objects); err != nil || !o.wait {
		return err
	}
	return cli.Waited(ctx, op.Await(ctx))
}
