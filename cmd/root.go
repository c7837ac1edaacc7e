// Package cmd is the command line. It reads flags, calls the packages that do the work,
// and prints. Each command has a file that is named like it (show_connections.go,
// cable_policy_add.go), so that a list of the files is the help. These files are shared
// by all commands, as they are about every command line:
//
//   - root.go: the tree of commands, and what is reported about a wrong command line
//   - globals.go, config.go: flags, environment variables and the configuration file
//   - kubeconfig.go, client.go: from a kubeconfig to the client of an API server
//   - output.go, exit.go: how data is printed, and exit codes
//
// agent_linux.go and agent_other.go belong to agent.go, which gives the agent a kernel.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"subctl/internal/words"
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

// prepare finishes the command tree under root.
func (g *globals) prepare(root *cobra.Command) {
	g.config.flags = allFlags(root)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return g.config.apply(c) }
	root.SetFlagErrorFunc(flagError)
	root.SetUsageTemplate(usageTemplate(root.UsageTemplate()))
	each(root, func(c *cobra.Command) {
		if c.HasSubCommands() && !c.Runnable() {
			c.Args = noSuchCommand
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
			c.DisableFlagsInUseLine = true
		}
		run := c.RunE
		c.RunE = func(c *cobra.Command, args []string) error {
			g.started = true
			return run(c, args)
		}
	})
}

// each calls do for c and all commands under it.
func each(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		each(sub, do)
	}
}

// noSuchCommand is the Args of a command that only groups others.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	err := fmt.Errorf("there is no command %q", c.CommandPath()+" "+args[0])
	if found := c.SuggestionsFor(args[0]); len(found) > 0 {
		return fmt.Errorf("%w: did you mean %q?", err, c.CommandPath()+" "+found[0])
	}
	return fmt.Errorf("%w: see %q", err, c.CommandPath()+" --help")
}

// flagError adds the most similar flag to the error about an unknown one.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("%w: see %q", err, c.CommandPath()+" --help")
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := words.Nearest(unknown.GetSpecifiedName(), names); near != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, near)
	}
	return fmt.Errorf("%w: see %q", err, c.CommandPath()+" --help")
}

// usageTemplate replaces the flags that every command takes, which would bury the
// command's own, by a pointer to where they are listed.
func usageTemplate(cobras string) string {
	before, rest, _ := strings.Cut(cobras, "{{if .HasAvailableInheritedFlags}}")
	_, after, _ := strings.Cut(rest, "{{end}}")
	return strings.Replace(before, "{{if .HasAvailableLocalFlags}}", "{{if and .HasParent .HasAvailableLocalFlags}}", 1) +
		"\n\nEvery command takes --context, --kubeconfig and the other flags that\n\"subctl options\" lists." + after
}
