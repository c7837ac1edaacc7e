package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/internal/cli"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/policy/catalog"
	"subctl/policy/impact"
)

const revokeLong = `Remove a lost or hostile cluster, without its help, from the broker on the cluster of the
current context.

The identity of the cluster on the broker and all its objects are deleted, and a revocation
is published, signed with the administrator's key, in the clustersets that show a trace of the
cluster; if none does, in all of them. The other clusters disconnect the cluster
and remember the revocation: nobody can publish in its name with the keys and the invitations
that it had. All watches of what clusters publish end, and members read again, so that it reads
nothing more. If it can be reached, use subctl uninstall on it instead. To let it join again,
invite it again: it gets a new grant. Pods that still send to its addresses then send in clear
text, over the default routes of their nodes, as before it joined: see "After a cluster has
left" in docs/cable-policies.md for what to do before.

The pre-shared key, which the cluster knows, does not change (see docs/keys.md).

--join-files revokes no cluster, but the tokens of all general join files that deploy-broker
and recover-broker-info wrote: deploy-broker writes a new one. Clusters that have joined stay
members.`

const revokeExample = `  # show which pairs of clusters are affected, and remove cluster "east"
  subctl revoke east --context hub --dry-run
  subctl revoke east --context hub --yes

  # invalidate all files that were written until now
  subctl revoke --join-files --context hub --yes`

type revokeOptions struct {
	policyOptions
	cluster            string
	namespace          string
	joinFiles          bool
	yes, dryRun, force bool
	format             *printer.Flag
}

func newRevoke(g *globals) *cobra.Command {
	o := &revokeOptions{policyOptions: policyOptions{globals: g, broker: true}}
	c := &cobra.Command{
		Use:     "revoke [CLUSTER]",
		Short:   "Remove a lost cluster from the broker",
		Long:    revokeLong,
		Example: revokeExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || (len(args) == 0) != o.joinFiles {
				return errors.New("specify either the ID of one cluster, subctl revoke CLUSTER, or --join-files")
			}
			if o.cluster = strings.Join(args, ""); !o.joinFiles {
				return submarinerv1.CheckClusterID(o.cluster)
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return forAdministrators(o.run(c.Context())) },
	}
	cli.Lacks(c, "contexts", "a broker is on one cluster: choose it with --context")
	f := c.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", submarinerv1.BrokerNamespace, "namespace of the broker")
	f.StringVar(
		&o.file,
		"broker-info",
		"",
		"join file with the administrator's key, which signs the revocation; - for stdin (default: "+
			broker.JoinFileName+")",
	)
	f.BoolVar(&o.joinFiles, "join-files", false,
		"make the tokens of all general join files void, instead of removing a cluster")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would change, without changing it")
	f.BoolVar(&o.force, "force", false,
		"continue even if pairs of other clusters need the cable policies of the cluster, or if no clusterset shows a trace of the cluster")
	o.format = cli.DryRunOutput(c, &o.dryRun, printer.Table, printer.JSON, printer.YAML)
	c.ValidArgsFunction = o.completeClusters
	return c
}

func (o *revokeOptions) run(ctx context.Context) error {
	c, err := o.Client(ctx)
	if err != nil {
		return err
	}
	hub, err := readBroker(ctx, c, o.namespace)
	if err != nil {
		return err
	}
	if o.joinFiles {
		return o.revokeFiles(ctx, c)
	}
	all, err := look.ReadBrokerPolicies(ctx, c, hub)
	if err != nil {
		return err
	}
	state, err := broker.Look(ctx, c, o.namespace)
	if err != nil {
		return err
	}
	state.Broker = hub
	return o.revoke(ctx, c, state, all)
}

// revoke removes the cluster from the broker, which has the state.
func (o *revokeOptions) revoke(ctx context.Context, c client.Client, state broker.State, all *catalog.Catalog) error {
	general, err := o.generalFile(o.file)
	if err != nil {
		return err
	}
	if err := general.CheckBroker(state.Broker); err != nil { // no member would accept the revocation
		return fmt.Errorf("%s %w", cmp.Or(o.file, broker.JoinFileName), err)
	}
	in, isKnown, err := broker.RevokedIn(ctx, c, o.namespace, all.Sets, o.cluster, general.AdministratorKey().Public())
	if err != nil {
		return err
	}
	if !isKnown && !o.force {
		return o.unknown(state)
	}
	lost, err := o.affected(all)
	if err != nil {
		return err
	}
	if lost != nil && o.force {
		o.progress().Warn("%v", lost)
	}
	if !isKnown {
		o.progress().Warn(
			"nothing on the broker shows in which clustersets cluster %s was: all clusters of the broker learn its ID, as the revocation is published in clusterset %s",
			o.cluster, strings.Join(in, ", "))
	}
	if o.dryRun {
		return o.printActions(all.Sets, in, lost)
	}
	if lost != nil && !o.force {
		return fmt.Errorf(
			"%w\nnothing was changed: let the broker keep these policies with subctl cable-policy adopt --from %s, or continue with --force",
			lost, o.cluster)
	}
	if !o.yes {
		if err := o.confirm(
			ctx,
			fmt.Sprintf(
				"Remove cluster %q from the broker, disconnect it from all other clusters, and revoke its grant?",
				o.cluster),
		); err != nil {
			return err
		}
	}
	err = broker.Revoke(ctx, c, o.namespace, all.Sets, o.cluster, general.AdministratorKey(), o.Now())
	if ctx.Err() != nil {
		return cmp.Or(err, ctx.Err())
	}
	if err == nil {
		o.progress().Done(
			"revoked cluster %s: the other clusters disconnect it as soon as they read the revocation (subctl show trust)",
			o.cluster)
	}
	// also after an error: rights may have ended before it
	return errors.Join(err, o.endWatches(ctx, c, "cluster "+o.cluster))
}

// printActions prints what revoke would change in the clustersets sets, and in which it would
// publish the revocation. lost is the error of affected.
func (o *revokeOptions) printActions(sets, in []string, lost error) error {
	err := cli.PrintActions(o.IOStreams, o.format.Format(), []string{
		"delete the identity of cluster " + o.cluster + " on the broker",
		"delete its objects in clusterset " + strings.Join(sets, ", "),
		"publish a revocation of its grants and invitations in clusterset " + strings.Join(in, ", "),
		"end all watches of what clusters publish",
	})
	if err == nil && lost != nil && !o.force {
		o.progress().Warn("%v\nwithout --force, this is refused", lost)
		err = cli.Trouble()
	}
	return err
}

// unknown returns the error of a cluster of which no clusterset shows a trace.
func (o *revokeOptions) unknown(state broker.State) error {
	known := slices.Concat(state.Members, state.Invited)
	if slices.Contains(known, o.cluster) {
		return fmt.Errorf(
			"cluster %q has an identity on the broker, but nothing shows in which clustersets it was: to publish a revocation in all clustersets, whose members learn its ID, add --force",
			o.cluster)
	}
	slices.Sort(known)
	return fmt.Errorf(
		"the broker does not show that cluster %q is or was a member, or is invited: it has %s; to publish a revocation in all clustersets nevertheless, add --force",
		o.cluster, cmp.Or(words.List(slices.Compact(known)), "none"))
}

// affected prints the pairs that change their cable, and returns an error about the pairs of other
// clusters; nil if there are none.
func (o *revokeOptions) affected(all *catalog.Catalog) (lost, err error) {
	out := o.Out
	if o.format.Format().Structured() {
		out = o.ErrOut
	}
	change := impact.Leaving(all, o.cluster)
	if err := look.PrintChange(out, o.progress(), change); err != nil {
		return nil, err
	}
	return change.Dependents(o.cluster, "cluster "+o.cluster), nil
}

// revokeFiles makes the tokens of the general join files void.
func (o *revokeOptions) revokeFiles(ctx context.Context, c client.Client) error {
	if o.dryRun {
		return cli.PrintActions(o.IOStreams, o.format.Format(),
			[]string{"make the tokens of all general join files void"})
	}
	if !o.yes {
		if err := o.confirm(ctx,
			"Make all join files void that deploy-broker and recover-broker-info have written?"); err != nil {
			return err
		}
	}
	if err := broker.VoidJoinFiles(ctx, c, o.namespace); err != nil {
		return err
	}
	o.progress().Done("the tokens of all general join files are void: subctl deploy-broker writes a new file")
	return o.endWatches(ctx, c, "holders of these files")
}
