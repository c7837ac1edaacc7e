// Lab runs real Kubernetes clusters on one Linux machine, without containers around them, a
// registry or a download: each control plane is a process in a network namespace, each node a set
// of namespaces. See README.md.
//
// This package is what a user can type, one file per command or pair of commands. How things are
// called and addressed is in plan, the network in fabric, what a node is in node; Kubernetes itself
// is another binary (kube).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	var inside *exec.ExitError // of a command that ran in a node: its status is ours
	switch {
	case err == nil:
	case errors.As(err, &inside) && inside.ExitCode() > 0:
		os.Exit(inside.ExitCode())
	default:
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	l := &lab{}
	root := &cobra.Command{
		Use:           "lab",
		Short:         "Real Kubernetes clusters on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return l.resolve(cmd.Flags().Changed("dir"), cmd.Flags().Changed("kubeconfigs"))
		},
	}
	root.PersistentFlags().StringVar(&l.dir, "dir", "/var/lib/subctl-lab",
		"where the lab keeps everything; gone after down")
	root.PersistentFlags().StringVar(&l.kubeconfigs, "kubeconfigs", defaultKubeconfigs(),
		"where kubeconfigs are written")
	root.AddCommand(newUp(l), newDown(l), newStatus(l), newKubeconfig(l), newKubectl(), newExec(l), newLoadImage(l),
		newKill(l), newStart(l), newCut(l), newHeal(l), newFavor(l), newNAT(l), newMTU(l), newNetwork(l), newHost(l),
		newImage(), newAPIServer(), newNodeInit())
	return root
}
