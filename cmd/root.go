// Package cmd is the command line: one file per command. It reads flags, calls the
// packages that do the work, and prints. Of cable-policy it also has the work that is for
// people only: what a change means for whom, and what is wrong with it.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// The groups under which commands are listed in the help.
const (
	groupJoin = "join"
	groupSay  = "say"
	groupLook = "look"
)

const rootLong = `subctl joins Kubernetes clusters into one network: pods and services of one cluster
reach those of another, through cables between gateway nodes.

One cluster becomes the broker, where the clusters meet; every cluster joins with the
file that deploy-broker writes.

Data goes to stdout and everything else to stderr. The exit code is 0 when the command
did its work, 1 when it failed, 2 when the command line has a mistake, and 3 when it
found a problem, such as a connection that is down.`

const rootExample = `  # make the cluster of context "hub" the broker, and join two clusters
  subctl deploy-broker --context hub
  subctl join broker-info.subm --context west --clusterid west --image registry.example/subctl:v1
  subctl join broker-info.subm --context east --clusterid east --image registry.example/subctl:v1

  # see how they are connected
  subctl show connections`

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
	return run(ctx, newGlobals(io), args)
}

func run(ctx context.Context, g *globals, args []string) int {
	root := newRoot(g)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err != nil && !g.started: // refused before it did anything
		err = usageError(err)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		err = errors.New("interrupted")
	}
	var quiet *exitError
	if err != nil && (!errors.As(err, &quiet) || quiet.err != nil) {
		fmt.Fprintf(g.ErrOut, "Error: %v\n", err)
	}
	return exitCode(err)
}

// NewRoot returns a fresh command tree.
func NewRoot(io genericiooptions.IOStreams) *cobra.Command { return newRoot(newGlobals(io)) }

func newRoot(g *globals) *cobra.Command {
	root := &cobra.Command{
		Use:               "subctl",
		Short:             "Join Kubernetes clusters into one network",
		Long:              rootLong,
		Example:           rootExample,
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
	}
	root.SetIn(g.In)
	root.SetOut(g.Out)
	root.SetErr(g.ErrOut)
	root.AddGroup(
		&cobra.Group{ID: groupJoin, Title: "Joining clusters:"},
		&cobra.Group{ID: groupSay, Title: "Saying how they are joined:"},
		&cobra.Group{ID: groupLook, Title: "Looking at them:"},
	)

	add(root, groupJoin, newDeployBroker(g), newRecoverBrokerInfo(g), newJoin(g), newRotateKey(g), newUninstall(g))
	add(root, groupSay, newCablePolicy(g))
	add(root, groupLook, newShow(g))
	add(root, "", newVersion(g), newOptions(g), newAgent(g))

	g.addFlags(root)
	g.prepare(root)
	return root
}

// add puts commands into a group of the root command's help.
func add(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
		root.AddCommand(c)
	}
}
