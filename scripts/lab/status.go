package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"subctl/lab/cgroup"
	"subctl/lab/fabric"
	"subctl/lab/kubeapi"
	"subctl/lab/node"
	"subctl/lab/plan"
)

func newStatus(l *lab) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what there is, what runs and what is cut",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			clusters, err := l.running()
			if err != nil {
				return err
			}
			tree, err := cgroup.Find()
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tADDRESS\tPODS\tSERVICES\tSTATE")
			for _, c := range clusters {
				l.statusOf(cmd.Context(), w, c, tree)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			return showWays(cmd, clusters)
		},
	}
}

func (l *lab) statusOf(ctx context.Context, w *tabwriter.Writer, c plan.Cluster, tree cgroup.Tree) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	client, err := kubeapi.New(l.clusterDir(c), c.Server())
	if err == nil {
		err = client.Ready(ctx)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", c.Name(), c.Server(), c.Pods(), c.Services(),
		state(err == nil, "ready", "not ready"))
	for _, n := range c.Members() {
		pid, runs, _ := node.Find(n, tree)
		text := "does not run"
		if runs {
			text = fmt.Sprintf("runs (pid %d)", pid)
			if err == nil {
				ready, _ := client.NodeReady(ctx, n.Name(), time.Time{})
				text = state(ready, "Ready", "not Ready") + fmt.Sprintf(" (pid %d)", pid)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t\t%s\n", n.Name(), n.Addr().Addr(), n.Pods(), text)
	}
}

// showWays says what is cut and who is translated.
func showWays(cmd *cobra.Command, clusters []plan.Cluster) error {
	cuts, err := fabric.Cuts()
	if err != nil {
		return err
	}
	name := map[string]string{plan.Host.Link: plan.Host.Name, plan.Host.Addr.Addr().String(): plan.Host.Name}
	for _, c := range clusters {
		for _, p := range c.Ports() {
			name[p.Link] = p.Name
			name[p.Addr.Addr().String()] = p.Name
		}
	}
	for _, cut := range cuts {
		fmt.Fprintf(cmd.OutOrStdout(), "cut: %s -> %s\n", name[cut.Link], name[cut.Addr])
	}
	translated, err := fabric.Translated(clusters)
	for _, c := range translated {
		fmt.Fprintf(cmd.OutOrStdout(), "translated: %s is seen as %s\n", c.Name(), c.Gateway().Addr())
	}
	return err
}

func state(yes bool, then, otherwise string) string {
	if yes {
		return then
	}
	return otherwise
}
