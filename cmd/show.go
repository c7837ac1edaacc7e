package cmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"subctl/internal/printer"
)

const showLong = `Show how clusters are connected.

Without --context or --contexts, every cluster of the kubeconfig is shown once. What can
be read is shown even when a cluster cannot be reached.

The exit code is 0 when all is well, 1 when a cluster could not be read or none of them
is joined, and 3 when everything was read and something is wrong: stderr says what.`

func newShow(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "show",
		Short: "Show how clusters are connected",
		Long:  showLong,
		Example: `  subctl show connections
  subctl show connections --contexts west,east -o json
  subctl show all --watch`,
	}
	c.AddCommand(
		newShowView(g, connectionsView().section(), connectionsLong),
		newShowView(g, gatewaysView().section(), gatewaysLong),
		newShowView(g, endpointsView().section(), endpointsLong),
		newShowView(g, networksView().section(), networksLong),
		newShowView(g, versionsView().section(), versionsLong),
		newShowView(g, brokersView().section(), brokersLong),
		newShowAll(g),
		newShowPlan(g),
	)
	return c
}

// show is the options of all subcommands that show clusters.
type show struct {
	*globals
	contexts []string
	format   *printer.Flag
	watch    bool
}

// addFlags gives c the flags of a command that shows clusters.
func (s *show) addFlags(c *cobra.Command) {
	s.format = output(c, printer.Table, printer.Wide, printer.JSON, printer.YAML)
	c.Flags().StringSliceVar(&s.contexts, "contexts", nil, "show the clusters of these kubeconfig contexts, in this order, instead of that of --context")
	c.Flags().BoolVarP(&s.watch, "watch", "w", false, "show again when something changes, until interrupted")
	err := c.RegisterFlagCompletionFunc("contexts", func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		names, err := s.globals.contexts()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		before := typed[:strings.LastIndex(typed, ",")+1]
		for i := range names {
			names[i] = before + names[i]
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag was declared above
	}
}

// newShowView makes the subcommand that shows one section.
func newShowView(g *globals, v section, long string) *cobra.Command {
	s := &show{globals: g}
	c := &cobra.Command{
		Use:   v.noun,
		Short: v.short,
		Long:  v.short + ".\n\n" + long,
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return s.run(c.Context(), panel{sections: []section{v}, data: v.data})
		},
	}
	s.addFlags(c)
	return c
}

// watchPeriod is how often --watch looks: agents write their reports every few
// seconds.
const watchPeriod = 2 * time.Second

// run shows p once, or again whenever it changes.
func (s *show) run(ctx context.Context, p panel) error {
	targets, err := s.targets()
	if err != nil {
		return err
	}
	if !s.watch {
		return s.look(ctx, targets, p).tell(s.globals)
	}
	var last picture
	for {
		now := s.look(ctx, targets, p)
		if ctx.Err() != nil {
			return nil // interrupted, which is how watching ends
		}
		if now.differs(last) {
			if last.data != "" && !s.format.Format().Structured() {
				fmt.Fprintln(s.Out) // parts it from the last
			}
			if err := now.tell(s.globals); exitCode(err) == exitFailed {
				s.progress().Fail("%v", err) // it may come right
			}
			last = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPeriod):
		}
	}
}
