package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"subctl/cluster/uninstall"
)

const uninstallLong = `Take the cluster of the context in use out of its clustersets, and remove everything
that join made in it.

The agents clean their nodes first, and say so; then the broker forgets the cluster, and
the agents are deleted. What join did not make stays: a broker on the same cluster, other
things in namespace submariner-operator, gateway labels that a person set. The same
command finishes an uninstall that was interrupted.`

const uninstallExample = `  # see what would be removed, and remove it
  subctl uninstall --context west --dry-run
  subctl uninstall --context west --yes`

type uninstallOptions struct {
	yes, dryRun, force bool
	timeout            time.Duration
}

func newUninstall(g *globals) *cobra.Command {
	o := &uninstallOptions{}
	c := &cobra.Command{
		Use:     "uninstall",
		Aliases: []string{"unjoin"},
		Short:   "Remove a cluster from the network",
		Long:    uninstallLong,
		Example: uninstallExample,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context(), g) },
	}
	f := c.Flags()
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be done, and change nothing")
	f.BoolVar(&o.force, "force", false, "continue even if nodes cannot be cleaned or the broker cannot be reached")
	f.DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long to wait for the nodes, and for the namespace")
	return c
}

func (o *uninstallOptions) run(ctx context.Context, g *globals) error {
	side, err := g.memberSide(ctx)
	if err != nil {
		return err
	}
	report := g.progress()
	remains, err := uninstall.ReadRemains(ctx, side.Client)
	if err != nil {
		return err
	}
	if remains.Empty() {
		report.Done("the cluster at %s is not joined: there is nothing to remove", side.URL)
		return nil
	}
	if o.dryRun {
		_, err := fmt.Fprintln(g.Out, strings.Join(remains.Lines(side.Client), "\n"))
		return err
	}
	if !o.yes {
		if err := g.confirm(ctx, uninstallQuestion(remains, side.URL)); err != nil {
			return err
		}
	}
	u := &uninstall.Operation{Cluster: side, Report: report, Connect: g.connect, Force: o.force, Timeout: o.timeout}
	return u.Run(ctx, remains)
}

func uninstallQuestion(r *uninstall.Remains, where string) string {
	if r.Submariner == nil {
		return fmt.Sprintf("Remove what is left of an earlier join from the cluster at %s?", where)
	}
	return fmt.Sprintf("Cut cluster %q, at %s, off from all others and remove everything that join made in it?", r.Submariner.Spec.ClusterID, where)
}

// confirm asks a question on stderr and returns nil if the answer is yes. It is an
// error if nobody is at a terminal to answer.
func (g *globals) confirm(ctx context.Context, question string) error {
	file, ok := g.In.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return usageError(errors.New("stdin is no terminal, so nobody can be asked: add --yes"))
	}
	if _, err := fmt.Fprintf(g.ErrOut, "%s [y/N] ", question); err != nil {
		return err
	}
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(g.In).ReadString('\n') // an end of file is a no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case line := <-answer:
		if line != "y" && line != "yes" {
			return errors.New("not confirmed: nothing was changed")
		}
		return nil
	}
}
