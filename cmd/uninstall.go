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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/cluster"
	"subctl/cluster/uninstall"
	"subctl/internal/cli"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/policy/impact"
)

const uninstallLong = `Remove the cluster of the current context from its clustersets, and delete everything that
join created in it.

First the Services that the cluster exports are withdrawn, and two seconds later no other
cluster uses their endpoints. Then the agents clean their nodes and report it, the cluster
revokes its own grant, so that nobody can publish in its name with a copy of its keys, and is
removed from the broker; and the agents are deleted. Everything that join did not create is
kept: a broker on the same cluster, other objects in namespace submariner-operator, and gateway
labels that a person has set. Pods that still send to addresses of other clusters, and pods
there that send to this one, then send in clear text, over the default routes of their nodes, as
before it joined: see "After a cluster has left" in docs/cable-policies.md for what to do
before. To finish an interrupted uninstall, run the same command again.

The cable policies that were created on the cluster are deleted with it. If that changes the
cables of pairs of other clusters, these pairs are printed, and uninstall continues only with
--force=policies; with --dry-run, the exit code is then 3. The broker can keep the policies:
see subctl cable-policy adopt.

--force names what uninstall ignores, one or several of these, or "all":
  policies  other clusters need the cable policies of this cluster: they lose them
  nodes     nodes cannot be cleaned: they keep devices, routes and rules until they restart
  broker    the broker cannot be reached: it keeps the objects of this cluster, whose grant is not
            revoked: run subctl revoke on the cluster of the broker`

const uninstallExample = `  # show what would be removed, and remove it
  subctl uninstall --context west --dry-run
  subctl uninstall --context west --yes

  # remove a cluster whose broker is gone
  subctl uninstall --context west --force=broker

  # let the broker keep the cable policies that were created on the cluster
  subctl cable-policy adopt --context hub --from west`

type uninstallOptions struct {
	yes, dryRun bool
	force       forceFlag
	timeout     time.Duration
	format      *printer.Flag
}

func newUninstall(g *globals) *cobra.Command {
	o := &uninstallOptions{}
	c := &cobra.Command{
		Use:     "uninstall",
		Aliases: []string{"unjoin"},
		Short:   "Remove a cluster from the network",
		Long:    uninstallLong,
		Example: uninstallExample,
		Args:    g.noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context(), g) },
	}
	cli.Lacks(c, "contexts",
		"clusters are removed one at a time, each after its own confirmation: choose the cluster with --context")
	f := c.Flags()
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the actions without performing them")
	o.force.add(c, uninstall.Obstacles())
	cli.TimeLimit(c, &o.timeout, 2*time.Minute, "time limit for cleaning the nodes, and for deleting the namespace")
	o.format = cli.DryRunOutput(c, &o.dryRun, printer.Table, printer.JSON, printer.YAML)
	return c
}

func (o *uninstallOptions) run(ctx context.Context, g *globals) error {
	side, err := g.MemberSide(ctx)
	if err != nil {
		return err
	}
	report := g.progress()
	if err := uninstall.CheckRights(ctx, side); err != nil {
		return err
	}
	remains, err := uninstall.ReadRemains(ctx, side.Client)
	if err != nil {
		return err
	}
	if remains.Empty() {
		report.Done("the cluster at %s is not joined: there is nothing to remove", side.URL)
		if remains.Kept != "" {
			report.Warn("the CustomResourceDefinitions are kept: %s", remains.Kept)
		}
		if remains.Exports != "" {
			report.Warn("kept: %s", remains.Exports)
		}
		return nil
	}
	others, lost, err := o.affected(ctx, g, side.Client, remains)
	if err != nil {
		return err
	}
	accepted := o.force.has(uninstall.Policies)
	if lost != nil && accepted {
		report.Warn("%v", lost)
	}
	if o.dryRun {
		if err := cli.PrintActions(g.IOStreams, o.format.Format(), remains.Lines(side.Client)); err != nil ||
			lost == nil ||
			accepted {
			return err
		}
		report.Warn("%v\nwithout --force=%s, uninstall is refused", lost, uninstall.Policies)
		return cli.Trouble()
	}
	if lost != nil && !accepted {
		return fmt.Errorf(
			"%w\nnothing was changed: let the broker keep these policies with subctl cable-policy adopt --from %s --context BROKER, or continue with --force=%s",
			lost, remains.Submariner.Spec.ClusterID, uninstall.Policies)
	}
	if !o.yes {
		if err := g.confirm(ctx, uninstallQuestion(remains, others, side.URL)); err != nil {
			return err
		}
	}
	u := &uninstall.Operation{
		Cluster: side, Report: report, Connect: g.Connect, Proxy: g.BrokerProxy, Force: o.force.obstacles,
		Timeout: o.timeout,
	}
	if err = u.Run(ctx, remains); errors.Is(err, cluster.ErrOutOfTime) {
		return cli.Waited(ctx, err)
	}
	return err
}

// affected prints the pairs of clusters that change their cable, and returns the clusters that are
// disconnected. lost describes the pairs of other clusters that change theirs because the policies
// that were created on the cluster are deleted; it is nil if there are none.
func (o *uninstallOptions) affected(
	ctx context.Context, g *globals, c client.Client, r *uninstall.Remains,
) (disconnected []string, lost, err error) {
	if r.Submariner == nil {
		return nil, nil, nil
	}
	all, err := look.ReadPolicies(ctx, c, false)
	if err != nil {
		return nil, nil, err
	}
	id := r.Submariner.Spec.ClusterID
	change := impact.Leaving(all, id)
	if !change.Empty() {
		out := g.Out
		if o.format.Format().Structured() {
			out = g.ErrOut
		}
		if err := look.PrintChange(out, g.progress(), change); err != nil {
			return nil, nil, err
		}
	}
	for _, x := range change.On(id) {
		disconnected = append(disconnected, x.Other(id))
	}
	return disconnected, change.Dependents(id, "this cluster"), nil
}

func uninstallQuestion(r *uninstall.Remains, others []string, where string) string {
	if r.Submariner == nil {
		return fmt.Sprintf("Remove the remains of an earlier join from the cluster at %s?", where)
	}
	from := "all other clusters"
	if len(others) > 0 {
		from = words.List(others)
	}
	return fmt.Sprintf("Disconnect cluster %q, at %s, from %s, and delete everything that join created in it?",
		r.Submariner.Spec.ClusterID, where, from)
}

// confirm asks a question on stderr and returns nil if the answer is yes. It returns an error
// if stdin is not a terminal.
func (g *globals) confirm(ctx context.Context, question string) error {
	file, ok := g.In.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return cli.UsageError(errors.New("stdin is not a terminal, so the confirmation is missing: add --yes"))
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
		fmt.Fprintln(g.ErrOut) // the prompt is on a line without end
		return errors.New("interrupted: nothing was changed")
	case line := <-answer:
		if line != "y" && line != "yes" {
			return errors.New("not confirmed: nothing was changed")
		}
		return nil
	}
}
