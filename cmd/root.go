// Package cmd is the command line. It reads flags, calls the packages that do the work,
// and prints. Each command has a file that is named like it (show_connections.go,
// cable_policy_add.go), so that a list of the files is the help; root.go is subctl itself.
// agent_linux.go and agent_other.go belong to agent.go, which gives the agent a kernel.
//
// Commands share packages instead of files: cli has what all command lines have in common,
// connect leads from a kubeconfig to clients of API servers, guard protects cables from
// changes, look reads clusters and draws tables, and printer and progress print.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"subctl/internal/cli"
	"subctl/internal/connect"
	"subctl/internal/printer"
	"subctl/internal/progress"
	"subctl/internal/version"
)

// The groups of commands in the help, by what a person wants to do.
const (
	groupJoin    = "join"
	groupCables  = "cables"
	groupExport  = "export"
	groupNodes   = "gateways"
	groupSdewan  = "sdewan"
	groupInspect = "inspect"
)

const rootLong = `subctl joins Kubernetes clusters into one network: pods and Services of one cluster reach
pods and Services of the others through cables between gateway nodes.

One cluster hosts the broker, through which the clusters exchange their addresses. Every
cluster joins with the file that deploy-broker writes.

Commands print data on stdout and messages on stderr. The exit code is 0 if the command
succeeded, 1 if it failed, 2 if the command line has a mistake, and 3 if it found a
problem, such as a connection that is down, or made its change but the result did not
appear within --timeout. Something that is not found in a cluster, and a file that cannot be read
or written, are a failure (1); a context that the kubeconfig does not have is a mistake (2). After
Ctrl-C, the exit code is 130; of show --watch, which ends in no other way, it is 0.`

const rootExample = `  # deploy the broker on the cluster of context "hub", and join two clusters
  subctl deploy-broker --context hub
  subctl join broker-info.subm --context west --clusterid west --image registry.example/subctl:v1
  subctl join broker-info.subm --context east --clusterid east --image registry.example/subctl:v1

  # show how they are connected
  subctl show connections`

// Main runs subctl and returns its exit code: see package cli.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	io := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	if code, ok := runComponent(io, os.Args[0], os.Args[1:]); ok {
		return code
	}
	return Run(ctx, io, os.Args[1:])
}

// Run runs subctl with args on the given streams and returns its exit code.
func Run(ctx context.Context, io genericiooptions.IOStreams, args []string) int {
	return run(ctx, newGlobals(io), args)
}

func run(ctx context.Context, g *globals, args []string) int {
	if len(args) == 0 || args[0] != "agent" {
		silence()
	}
	root := newRoot(g)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err != nil && !g.started: // a mistake on the command line
		err = cli.UsageError(err)
	case err != nil && ctx.Err() != nil:
		err = interruption(err)
	}
	if err != nil && !cli.Reported(err) {
		fmt.Fprintf(g.ErrOut, "Error: %s\n", printer.CleanLines(err.Error())) // it may quote an API server
	}
	return cli.ExitCode(err)
}

// interruption returns the error of a command that was interrupted and returned err: without the
// errors of the requests that ended with it.
func interruption(err error) error {
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	return cli.Interruption(err)
}

// silence discards the logs of libraries: what a user must know is in the messages and the
// error of a command.
func silence() {
	ctrllog.SetLogger(logr.Discard()) // otherwise it prints a warning with a stack trace after 30 s
	klog.SetLogger(logr.Discard())
}

// NewRoot returns a fresh command tree.
func NewRoot(io genericiooptions.IOStreams) *cobra.Command { return newRoot(newGlobals(io)) }

func newRoot(g *globals) *cobra.Command {
	root := &cobra.Command{
		Use:               "subctl",
		Short:             "Join Kubernetes clusters into one network",
		Long:              rootLong,
		Example:           rootExample,
		Version:           version.Version,
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
	}
	root.SetVersionTemplate("subctl version: {{.Version}}\n") // as subctl version
	root.SetIn(g.In)
	root.SetOut(g.Out)
	root.SetErr(g.ErrOut)
	root.AddGroup(&cobra.Group{ID: groupJoin, Title: "Join clusters:"},
		&cobra.Group{ID: groupCables, Title: "Choose cables:"},
		&cobra.Group{ID: groupExport, Title: "Export Services:"},
		&cobra.Group{ID: groupNodes, Title: "Maintain gateways:"},
		&cobra.Group{ID: groupSdewan, Title: "Configure network functions:"},
		&cobra.Group{ID: groupInspect, Title: "Inspect:"})

	add(root, groupJoin, newDeployBroker(g), newRecoverBrokerInfo(g), newInvite(g), newUninvite(g), newJoin(g),
		newRotateKey(g), newUninstall(g), newRevoke(g), newBroker(g), newClusterSet(g))
	add(root, groupCables, newCablePolicy(g), newLabel(g))
	add(root, groupExport, newExport(g), newUnexport(g))
	add(root, groupNodes, newGateway(g))
	add(root, groupSdewan, newSdewan(g))
	add(root, groupInspect, newShow(g))
	add(root, "", newVersion(g), newOptions(g), newAgent(g))

	for flag, names := range g.AddFlags(root.PersistentFlags()) {
		cli.Complete(root, flag, func(context.Context) ([]string, error) { return names() })
	}
	root.SetHelpCommand(newHelp())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		cli.ContactsNoCluster(completion, "")
		cli.Lacks(completion, "output", "it prints a script for the shell")
	}
	g.prepare(root)
	return root
}

// globals is the state that all commands share. There are no package variables.
type globals struct {
	genericiooptions.IOStreams
	*connect.Kubeconfig

	started bool // the command line is valid, and the command runs
}

func newGlobals(io genericiooptions.IOStreams) *globals {
	return &globals{IOStreams: io, Kubeconfig: connect.New(io.ErrOut)}
}

// progress returns a reporter on stderr.
func (g *globals) progress() *progress.Reporter { return progress.New(g.ErrOut) }

// add adds commands to root, in a group of its help.
func add(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// prepare gives all commands under root their common behaviour: flags from the
// configuration, messages about mistakes, and help.
func (g *globals) prepare(root *cobra.Command) {
	config := cli.NewConfig(root)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		mistakes := errors.Join(cli.CheckContexts(c), cli.CheckEmpty(c)) // of the command line, before others set flags
		err := config.Apply(c)
		if err != nil && cli.Offline(c) {
			g.progress().Warn("%v", err)
			return mistakes
		}
		return errors.Join(mistakes, err)
	}
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { cli.Help(c) })
	root.SetUsageTemplate(cli.UsageTemplate(root.UsageTemplate()))
	cli.Each(root, func(c *cobra.Command) {
		if c.HasSubCommands() && !c.Runnable() {
			c.Args = noSuchCommand
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
			c.DisableFlagsInUseLine = true
		}
		cli.CompleteNoFiles(c, c.Name() == "join")
		run := c.RunE
		c.RunE = func(c *cobra.Command, args []string) error {
			g.started = true
			return run(c, args)
		}
	})
}

// newHelp returns the command help, which prints the same as --help. Unlike cobra's, it
// reports names that are not a command.
func newHelp() *cobra.Command {
	c := &cobra.Command{
		Use:   "help [command]",
		Short: "Print the help of a command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			if err == nil {
				err = noSuchCommand(about, rest)
			}
			if err != nil {
				return cli.UsageError(err)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
	cli.ContactsNoCluster(c, "")
	cli.Lacks(c, "output", "it prints text for people")
	return c
}
