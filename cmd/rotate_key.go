package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"subctl/cluster/rotate"
	"subctl/internal/cli"
	"subctl/internal/printer"
)

const rotateKeyLong = `Replace the key of the cluster of the current context, and wait until its connections use
the new key.

The secret of an encrypted cable is derived from the keys of both clusters and the
pre-shared key of the join file. The new key replaces the old key in Secret
submariner-cluster-key. The active gateway reads it, and publishes the public key to the
other clusters.

Traffic is not interrupted: cables keep their current sessions until the sessions expire.
The pre-shared key, which all clusters share, does not change.`

const rotateKeyExample = `  # show what would be done, and do it
  subctl rotate-key --context west --dry-run
  subctl rotate-key --context west`

func newRotateKey(g *globals) *cobra.Command {
	k := &rotate.Operation{}
	var dryRun bool
	var format *printer.Flag
	c := &cobra.Command{
		Use:     "rotate-key",
		Short:   "Replace the key of a cluster",
		Long:    rotateKeyLong,
		Example: rotateKeyExample,
		Args:    g.noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return rotateKey(c.Context(), g, k, dryRun, format) },
	}
	cli.Lacks(c, "contexts",
		"keys are replaced one cluster at a time, so that at most one end of a connection changes: choose the cluster with --context")
	f := c.Flags()
	f.BoolVar(&dryRun, "dry-run", false, "print the actions without performing them")
	cli.TimeLimit(c, &k.Timeout, 4*time.Minute, "time limit for the gateway and its connections")
	format = cli.DryRunOutput(c, &dryRun, printer.Table, printer.JSON, printer.YAML)
	return c
}

func rotateKey(ctx context.Context, g *globals, k *rotate.Operation, dryRun bool, format *printer.Flag) error {
	var err error
	if k.Cluster, err = g.MemberSide(ctx); err != nil {
		return err
	}
	k.Report = g.progress()
	r, err := k.Check(ctx)
	if err != nil {
		return err
	}
	if dryRun {
		return cli.PrintActions(g.IOStreams, format.Format(), r.Lines())
	}
	if err := k.Run(ctx, r); err != nil {
		return err
	}
	return cli.Waited(ctx, k.Wait(ctx, r))
}
