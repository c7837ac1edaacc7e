package cmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"subctl/cluster/rotate"
)

const rotateKeyLong = `Give the cluster of the context in use a new key, and wait until its connections use it.

The secrets of encrypted cables, one for each pair of clusters, are derived from this key,
that of the other cluster, and the pre-shared key of the join file. The new key replaces
the old one in Secret submariner-cluster-key. The active gateway reads it, and publishes
its public half to the other clusters.

Traffic goes on: cables that are up keep their sessions until these expire. The pre-shared
key, which all clusters share, does not change.`

const rotateKeyExample = `  # see what would be done, and do it
  subctl rotate-key --context west --dry-run
  subctl rotate-key --context west`

func newRotateKey(g *globals) *cobra.Command {
	k := &rotate.Operation{}
	var dryRun bool
	c := &cobra.Command{
		Use:     "rotate-key",
		Short:   "Give a cluster a new key",
		Long:    rotateKeyLong,
		Example: rotateKeyExample,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return rotateKey(c.Context(), g, k, dryRun) },
	}
	f := c.Flags()
	f.BoolVar(&dryRun, "dry-run", false, "print what would be done, and change nothing")
	f.DurationVar(&k.Timeout, "timeout", 4*time.Minute, "how long to wait for the gateway and its connections")
	return c
}

func rotateKey(ctx context.Context, g *globals, k *rotate.Operation, dryRun bool) error {
	var err error
	if k.Cluster, err = g.memberSide(ctx); err != nil {
		return err
	}
	k.Report = g.progress()
	r, err := k.Check(ctx)
	if err != nil {
		return err
	}
	if dryRun {
		_, err := fmt.Fprintln(g.Out, strings.Join(r.Lines(), "\n"))
		return err
	}
	return k.Run(ctx, r)
}
