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
	"subctl/internal/printer"
)

const uninstallLong = `Remove the cluster of the current context from its clustersets, and delete everything that
join created in it.

First the agents clean their nodes and report it. Then the cluster is removed from the
broker, and the agents are deleted. Everything that join did not create is kept: a broker on
the same cluster, other objects in namespace submariner-operator, and gateway labels that a
person has set. To finish an interrupted uninstall, run the same command again.`

const uninstallExample = `  # show what would be removed, and remove it
  subctl uninstall --context west --dry-run
  subctl uninstall --context west --yes`

type uninstallOptions struct {
	yes, dryRun, force bool
	timeout            time.Duration
	format             *printer.Flag
}

func newUninstall(g *globals) *cobra.Command {
	o := &uninstallOptions{}
	c := &cobra.Command{
		Use:     "uninstall",
		Aliases: []string{"unjoin"},
		Short:   "Remove a cluster from the network",
		Long:    uninstallLong,
		Example: uninstallExample,
		Args:    noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context(), g) },
	}
	f := c.Flags()
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the actions without performing them")
	f.BoolVar(&o.force, "force", false, "continue even if nodes cannot be cleaned or the broker cannot be reached")
	f.DurationVar(&o.timeout, "timeout", 2*time.Minute, "time limit for cleaning the nodes, and for deleting the namespace")
	o.format = dryRunOutput(c, &o.dryRun, printer.Table, printer.JSON, printer.YAML)
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
		return g.printActions(o.format.Format(), remains.Lines(side.Client))
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
		return fmt.Sprintf("Remove the remains of an earlier join from the cluster at %s?", where)
	}
	return fmt.Sprintf("Disconnect cluster %q, at %s, from all other clusters and delete everything that join created in it?", r.Submariner.Spec.ClusterID, where)
}

// confirm asks a question on stderr and returns nil if the answer is yes. It returns an error
// if stdin is not a terminal.
func (g *globals) confirm(ctx context.Context, question string) error {
	file, ok := g.In.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return usageError(errors.New("stdin is not a terminal, so the confirmation is missing: add --yes"))
	}
	if _, err := fmt.Fprintf(g.ErrOut, "%s [y/N] ", question); err != nil {
		return err
	}
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(g.In).ReadString('\n') // end of file means no
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
