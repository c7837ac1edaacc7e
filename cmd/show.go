package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		brokersTable(), clustersTable(), connectionsTable(), endpointsTable(), gatewaysTable(), networksTable(), trustTable(), versionsTable(),
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
}

// addFlags gives c the flags of a command that shows clusters.
func (s *show) addFlags(c *cobra.Command) {
	s.format = output(c, printer.Table, printer.Wide, printer.JSON, printer.YAML)
	c.Flags().StringSliceVar(&s.contexts, "contexts", nil, "kubeconfig contexts of the clusters to show, in this order (instead of --context)")
	s.addWatch(c)
	before(c, func() error {
		if c.Flags().Changed("contexts") && (len(s.contexts) == 0 || slices.Contains(s.contexts, "")) { // an unset variable
			return errors.New("--contexts contains an empty name: specify contexts of the kubeconfig, or omit the flag to show all clusters")
		}
		return nil
	})
	complete(c, "contexts", func(context.Context) ([]string, error) { return s.globals.contexts() })
}

// addWatch gives c the flag --watch.
func (s *show) addWatch(c *cobra.Command) {
	c.Flags().BoolVarP(&s.watch, "watch", "w", false, "show the output again whenever it changes, until interrupted; JSON has one document per line")
}

// newShowTable returns the subcommand that shows one table.
func newShowTable(g *globals, t look.Section) *cobra.Command {
	s := &show{globals: g}
	c := &cobra.Command{
		Use:     t.Noun,
		Short:   t.Short,
		Long:    t.Short + ".\n\n" + t.Long,
		Example: "  subctl show " + t.Noun + "\n  subctl show " + t.Noun + " --contexts west,east -o json",
		Args:    noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return s.run(c.Context(), look.NewPanel(t)) },
	}
	s.addFlags(c)
	if t.Noun == connectionsNoun {
		s.addWait(c)
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
	targets, err := s.targets()
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
			if err := s.print(now); exitCode(err) == exitFailed {
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
		return trouble()
	}
	return p.Err
}

// targets returns the clusters to show: the clusters of --contexts, the cluster of --context,
// or all clusters of the kubeconfig.
func (s *show) targets() ([]*look.Target, error) {
	names := s.contexts
	if len(names) == 0 && *s.kube.Context == "" {
		return s.everyCluster()
	}
	if len(names) == 0 {
		names = []string{*s.kube.Context}
	}
	var out []*look.Target
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		t, _, err := s.target(name)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// everyCluster returns each API server of the kubeconfig once. If several contexts are for
// the same server, it uses the current context, or else the first by name.
func (s *show) everyCluster() ([]*look.Target, error) {
	raw, err := s.kubeconfig()
	if err != nil {
		return nil, err
	}
	names, err := s.globals.contexts()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 { // in a pod, or with --server
		t, _, err := s.target("")
		return []*look.Target{t}, err
	}
	var out []*look.Target
	at := map[string]int{}
	for _, name := range names {
		t, host, err := s.target(name)
		if err != nil { // one broken context must not hide the other clusters
			out = append(out, &look.Target{Context: name, Cluster: name, Err: err})
			continue
		}
		i, again := at[host]
		switch {
		case !again:
			at[host] = len(out)
			out = append(out, t)
		case name == raw.CurrentContext:
			out[i] = t
		}
	}
	return out, nil
}

// target returns the cluster of a context, and its API server; "" is the current context.
func (s *show) target(name string) (t *look.Target, host string, err error) {
	cfg, err := s.restConfigFor(name)
	if err != nil {
		return nil, "", err
	}
	raw, err := s.kubeconfig()
	if err != nil {
		return nil, "", err
	}
	t = &look.Target{Context: name, Clock: &look.Clock{Local: s.now}}
	if c := raw.Contexts[cmp.Or(name, raw.CurrentContext)]; c != nil {
		t.Cluster = c.Cluster
	}
	t.Cluster = cmp.Or(t.Cluster, name, cfg.Host)
	cfg.Wrap(t.Clock.Wrap)
	t.Connect = func(ctx context.Context) (client.Client, error) {
		c, err := s.connect(ctx, cfg)
		if err != nil {
			return nil, noAnswer(cfg, name, err)
		}
		return c, nil
	}
	return t, cfg.Host, nil
}
