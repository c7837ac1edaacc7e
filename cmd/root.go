// Package cmd is the command line: one file per command. It parses and prints;
// what a command does is in the packages it calls.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// globals is what every command shares. There are no package variables.
type globals struct {
	genericiooptions.IOStreams
	kube *genericclioptions.ConfigFlags
}

// Main runs subctl and returns its exit code: 0 done, 1 failed, 2 usage, 3 looked
// and found trouble.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	io := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	return Run(ctx, io, os.Args[1:])
}

// Run runs subctl with args on the given streams and returns its exit code.
func Run(ctx context.Context, io genericiooptions.IOStreams, args []string) int {
	root := NewRoot(io)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	var quiet *exitError
	if !errors.As(err, &quiet) || quiet.err != nil {
		fmt.Fprintf(io.ErrOut, "Error: %v\n", err)
	}
	return exitCode(err)
}

// NewRoot returns a fresh command tree.
func NewRoot(io genericiooptions.IOStreams) *cobra.Command {
	g := &globals{IOStreams: io, kube: genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use:           "subctl",
		Short:         "Join Kubernetes clusters into one network",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(io.Out)
	root.SetErr(io.ErrOut)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(err) })
	g.kube.AddFlags(root.PersistentFlags())
	root.AddCommand(newVersion(g))
	return root
}
