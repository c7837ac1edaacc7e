package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"subctl/internal/cli"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/wake"
)

const showLong = `Show how clusters are connected.

Without --context or --contexts, every cluster of the kubeconfig is shown once. If a cluster
cannot be reached, the others are shown.

The exit code is 0 if there is no problem, 1 if a cluster could not be read or no cluster
has joined, and 3 if everything was read and there is a problem, which stderr describes.`

func newShow(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "show",
		Short: "Show how clusters are connected",
		Long:  showLong,
		Example: `  subctl show connections
  subctl show connections --contexts west,east -o json
  subctl show all --watch`,
	}
	for _, table := range tables() {
		c.AddCommand(newShowTable(g, table))
	}
	c.AddCommand(newShowAll(g), newShowPlan(g))
	return c
}

// tables returns the tables of "subctl show". Each is in the file with its name, and "show
// all" shows all of them.
func tables() []look.Section {
	return []look.Section{
		brokersTable(), clustersTable(), clustersetsTable(), connectionsTable(), endpointsTable(), gatewaysTable(),
		globalnetTable(), networksTable(),
		servicesTable(serviceFilter{}), trustTable(), versionsTable(),
	}
}

// connectionsNoun is the subcommand that can wait.
const connectionsNoun = "connections"

// show are the options of all subcommands that show clusters.
type show struct {
	*globals
	contexts []string
	format   *printer.Flag
	watch    bool
	wait     bool          // only for connections
	timeout  time.Duration // of wait
	who      netip.Addr    // only for globalnet: valid if set
}

// addFlags gives c the flags of a command that shows clusters.
func (s *show) addFlags(c *cobra.Command) {
	s.format = cli.Output(c, printer.Table, printer.Wide, printer.JSON, printer.YAML)
	c.Flags().StringSliceVar(&s.contexts, "contexts", nil,
		"kubeconfig contexts of the clusters to show, in this order (instead of --context)")
	s.addWatch(c)
	cli.Complete(c, "contexts", func(context.Context) ([]string, error) { return s.Contexts() })
}

// addWatch gives c the flag --watch.
func (s *show) addWatch(c *cobra.Command) {
	c.Flags().BoolVarP(&s.watch, "watch", "w", false,
		"show the output again whenever it changes, until interrupted; JSON has one document per line")
}

// newShowTable returns the subcommand that shows one table.
func newShowTable(g *globals, t look.Section) *cobra.Command {
	s := &show{globals: g}
	c := &cobra.Command{
		Use:     t.Noun,
		Short:   t.Short,
		Long:    t.Short + ".\n\n" + t.Long,
		Example: "  subctl show " + t.Noun + "\n  subctl show " + t.Noun + " --contexts west,east -o json",
		Args:    g.noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return s.run(c.Context(), look.NewPanel(t)) },
	}
	s.addFlags(c)
	switch t.Noun {
	case connectionsNoun:
		s.addWait(c)
	case globalnetNoun:
		s.addWho(c)
	case servicesNoun:
		s.addServices(c)
	}
	return c
}

// watchPeriod is the interval at which --watch reads the clusters. Agents write their reports
// every few seconds.
const watchPeriod = 2 * time.Second

// run shows p once, or whenever it changes.
func (s *show) run(ctx context.Context, p look.Panel) error {
	if s.wait {
		return s.await(ctx, look.NewPanel(awaitedTable()))
	}
	if s.who.IsValid() {
		return s.answerWho(ctx)
	}
	targets, err := s.Targets(s.contexts)
	if err != nil {
		return err
	}
	if !s.watch {
		return s.print(p.Look(ctx, targets, s.format.Format()))
	}
	return s.follow(ctx, func() look.Picture { return p.Look(ctx, targets, s.format.Format().Stream()) })
}

// follow prints pictures whenever they change, until ctx is done.
func (s *show) follow(ctx context.Context, draw func() look.Picture) error {
	var last look.Picture
	for {
		now := draw()
		if ctx.Err() != nil {
			return nil // interrupted, the normal end
		}
		if now.Differs(last) {
			if last.Data != "" && !s.format.Format().Structured() {
				fmt.Fprintln(s.Out) // a blank line between outputs
			}
			if err := s.print(now); cli.ExitCode(err) == cli.ExitFailed {
				s.progress().Fail("%v", err) // the next read may succeed
			}
			last = now
		}
		if wake.After(ctx, watchPeriod) != nil {
			return nil
		}
	}
}

// print prints a picture and returns its error.
func (s *show) print(p look.Picture) error {
	if _, err := io.WriteString(s.Out, p.Data); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	if _, err := io.WriteString(s.ErrOut, p.Notes); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	if errors.Is(p.Err, look.ErrTrouble) {
		return cli.Trouble()
	}
	return p.Err
}
