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
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"subctl/internal/words"
)

// The groups of commands in the help, by what a person wants to do.
const (
	groupJoin    = "join"
	groupCables  = "cables"
	groupInspect = "inspect"
)

const rootLong = `subctl joins Kubernetes clusters into one network: pods and Services of one cluster reach
pods and Services of the others through cables between gateway nodes.

One cluster hosts the broker, through which the clusters exchange their addresses. Every
cluster joins with the file that deploy-broker writes.

Commands print data on stdout and messages on stderr. The exit code is 0 if the command
succeeded, 1 if it failed, 2 if the command line has a mistake, and 3 if it found a
problem, such as a connection that is down, or made its change but the result did not
appear within --timeout.`

const rootExample = `  # deploy the broker on the cluster of context "hub", and join two clusters
  subctl deploy-broker --context hub
  subctl join broker-info.subm --context west --clusterid west --image registry.example/subctl:v1
  subctl join broker-info.subm --context east --clusterid east --image registry.example/subctl:v1

  # show how they are connected
  subctl show connections`

// Main runs subctl and returns its exit code: 0 success, 1 failure, 2 wrong usage, 3 a
// problem was found.
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
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
	}
	root.SetIn(g.In)
	root.SetOut(g.Out)
	root.SetErr(g.ErrOut)
	root.AddGroup(
		&cobra.Group{ID: groupJoin, Title: "Join clusters:"},
		&cobra.Group{ID: groupCables, Title: "Choose cables:"},
		&cobra.Group{ID: groupInspect, Title: "Inspect:"},
	)

	add(root, groupJoin, newDeployBroker(g), newRecoverBrokerInfo(g), newInvite(g), newJoin(g), newRotateKey(g), newUninstall(g), newRevoke(g))
	add(root, groupCables, newCablePolicy(g), newLabel(g))
	add(root, groupInspect, newShow(g))
	add(root, "", newVersion(g), newOptions(g), newAgent(g))

	g.addFlags(root)
	root.SetHelpCommand(newHelp())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	g.prepare(root)
	return root
}

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
	g.config.flags = allFlags(root)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		twice := checkContexts(c) // of the command line, before others set flags
		err := g.config.apply(c)
		if err != nil && offline(c) {
			g.progress().Warn("%v", err)
			return nil
		}
		if err := errors.Join(twice, err); err != nil {
			return err
		}
		return g.checkTimeout()
	}
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { help(c) })
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

// each calls do for c and all its subcommands.
func each(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		each(sub, do)
	}
}

// noSuchCommand is the Args of a command that only groups other commands.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	err := fmt.Errorf("unknown command %q", c.CommandPath()+" "+args[0])
	if found := c.SuggestionsFor(args[0]); len(found) > 0 {
		return fmt.Errorf("%w: did you mean %q?", err, c.CommandPath()+" "+found[0])
	}
	return fmt.Errorf("%w: see %q", err, c.CommandPath()+" --help")
}

// noArguments is the Args of a command that takes only flags.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s takes no arguments: omit %q", c.CommandPath(), args[0])
}

// newHelp returns the command help, which prints the same as --help. Unlike cobra's, it
// reports names that are not a command.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Print the help of a command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			if err == nil {
				err = noSuchCommand(about, rest)
			}
			if err != nil {
				return usageError(err)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// flagError adds the remedy to an error about a flag: the most similar flag if it is unknown,
// the kind of value that it takes, or else where the flags are described.
func flagError(c *cobra.Command, err error) error {
	if lacks := lackingError(c, err); lacks != nil {
		return lacks
	}
	err = invalidValue(err)
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

// valuesOf describes the values of the types of flags whose own errors are about Go.
var valuesOf = map[string]string{
	"bool":     "true or false",
	"duration": "a duration, such as 30s, 5m or 24h",
	"int":      "a whole number",
	"uint":     "a whole number, not negative",
	"uint64":   "a whole number, not negative",
}

// invalidValue returns err, or an error in its place that describes the values of the flag.
func invalidValue(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) || valuesOf[invalid.GetFlag().Value.Type()] == "" {
		return err
	}
	return fmt.Errorf("%suse %s", strings.TrimSuffix(err.Error(), invalid.Unwrap().Error()), valuesOf[invalid.GetFlag().Value.Type()])
}

// help prints what a command does, examples, the rest of the description, and the flags.
func help(c *cobra.Command) {
	summary, description, _ := strings.Cut(cmp.Or(c.Long, c.Short), "\n\n")
	text := summary + "\n\n"
	if c.Example != "" {
		text += "Examples:\n" + c.Example + "\n\n"
	}
	if description != "" {
		text += description + "\n\n"
	}
	c.Print(text + c.UsageString())
}

// usageTemplate returns cobra's template without the examples, which help prints, and
// without the global flags, which would bury the command's own flags.
func usageTemplate(cobras string) string {
	before, rest, _ := strings.Cut(cobras, "{{if .HasExample}}")
	_, rest, _ = strings.Cut(rest, "{{end}}")
	cobras = before + rest
	before, rest, _ = strings.Cut(cobras, "{{if .HasAvailableInheritedFlags}}")
	_, after, _ := strings.Cut(rest, "{{end}}")
	return strings.Replace(before, "{{if .HasAvailableLocalFlags}}", "{{if and .HasParent .HasAvailableLocalFlags}}", 1) +
		"\n\nEvery command takes --context, --kubeconfig and the other flags that\n\"subctl options\" lists." + after
}
