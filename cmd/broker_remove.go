package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/cluster/uninstall"
	"subctl/internal/cli"
	"subctl/internal/printer"
	"subctl/internal/words"
)

const brokerRemoveLong = `Delete the broker on the cluster of the current context, and everything that deploy-broker
created there: the namespaces of all clustersets, and the admission policies. The custom
resources and the ClusterRoles of their users are kept while the cluster is joined to a broker,
or hosts another one.

Remove the clusters from it first, with subctl uninstall. While clusters are joined, the command
refuses. A cluster that is joined to a broker that is gone gets no changes of other clusters any
more, may lose its connections at any time, and is removed with subctl uninstall --force=broker.
The grants of these clusters are not revoked: delete all join files, which contain the keys.

To finish an interrupted removal, run the same command again. If Kubernetes does not delete
a namespace within --timeout, the command prints what keeps it, and the exit code is 3.

--force names what the command ignores, one or both of these, or "all":
  members  clusters are joined to the broker
  objects  its namespaces contain objects of others, which are deleted with them`

const brokerRemoveExample = `  # show what would be deleted, and delete it
  subctl broker remove --context hub --dry-run
  subctl broker remove --context hub --yes

  # although clusters are joined that cannot be reached any more
  subctl broker remove --context hub --force=members --yes`

type brokerRemove struct {
	*globals
	force       forceFlag
	namespace   string
	yes, dryRun bool
	timeout     time.Duration
	format      *printer.Flag
}

func newBrokerRemove(g *globals) *cobra.Command {
	o := &brokerRemove{globals: g}
	c := &cobra.Command{
		Use:     "remove",
		Short:   "Delete the broker on a cluster",
		Long:    brokerRemoveLong,
		Example: brokerRemoveExample,
		Args:    g.noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return forAdministrators(o.run(c.Context())) },
	}
	cli.Lacks(c, "contexts", "a broker is on one cluster: choose it with --context")
	f := c.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", submarinerv1.BrokerNamespace, "namespace of the broker")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the actions without performing them")
	o.force.add(c, uninstall.BrokerObstacles())
	cli.TimeLimit(c, &o.timeout, 2*time.Minute, "time limit for the deletion of each namespace")
	o.format = cli.DryRunOutput(c, &o.dryRun, printer.Table, printer.JSON, printer.YAML)
	return c
}

func (o *brokerRemove) run(ctx context.Context) error {
	side, err := o.MemberSide(ctx)
	if err != nil {
		return err
	}
	if err := uninstall.CheckBrokerRights(ctx, side, o.namespace); err != nil {
		return err
	}
	remains, err := uninstall.ReadBroker(ctx, side.Client, o.namespace)
	if err != nil {
		return err
	}
	report := o.progress()
	if remains.Empty() {
		report.Done("the cluster at %s has no broker in namespace %s: there is nothing to remove", side.URL,
			o.namespace)
		return nil
	}
	refused := o.refusal(remains)
	if o.dryRun {
		if err := cli.PrintActions(o.IOStreams, o.format.Format(), remains.Lines(side.Client)); err != nil ||
			refused == nil {
			return err
		}
		report.Warn("%v", refused)
		return cli.Trouble()
	}
	if refused != nil {
		return fmt.Errorf("%w\nnothing was changed", refused)
	}
	if !o.yes {
		if err := o.confirm(ctx, removalQuestion(remains, side.URL)); err != nil {
			return err
		}
	}
	if err := remains.Remove(ctx, side.Client, report, o.timeout); errors.Is(err, cluster.ErrOutOfTime) {
		return cli.Waited(ctx, err)
	} else if err != nil {
		return err
	}
	for _, kept := range []string{remains.Kept, remains.Exports} {
		if kept != "" {
			report.Warn("the CustomResourceDefinitions are kept: %s", kept)
		}
	}
	report.Done("the broker is deleted; delete its join files, too: they contain keys, and nobody can join with them " +
		"any more")
	return nil
}

// refusal returns an error that names the obstacles that are not forced; nil if there are none.
func (o *brokerRemove) refusal(r *uninstall.BrokerRemains) error {
	var errs []error
	if len(r.Members) > 0 && !o.force.has(uninstall.Members) {
		errs = append(errs, fmt.Errorf("the broker has members: %s: remove each with subctl uninstall, or, if it "+
			"cannot be reached, with subctl revoke; to disconnect them, continue with --force=%s",
			words.List(r.Members), uninstall.Members))
	}
	if len(r.OthersIn) > 0 && !o.force.has(uninstall.Objects) {
		errs = append(errs, fmt.Errorf("the namespaces of the broker contain objects of others: %s: move them, or "+
			"delete them, too, with --force=%s",
			words.List(r.OthersIn), uninstall.Objects))
	}
	return errors.Join(errs...)
}

func removalQuestion(r *uninstall.BrokerRemains, where string) string {
	var more strings.Builder
	if len(r.Members) > 0 {
		fmt.Fprintf(&more, " It disconnects these clusters from each other: %s.", words.List(r.Members))
	}
	if len(r.Invited) > 0 {
		fmt.Fprintf(&more, " The join files of these clusters end: %s.", words.List(r.Invited))
	}
	if len(r.OthersIn) > 0 {
		fmt.Fprintf(&more, " It deletes objects of others: %s.", words.List(r.OthersIn))
	}
	return fmt.Sprintf("Delete the broker at %s?%s", where, more.String())
}
