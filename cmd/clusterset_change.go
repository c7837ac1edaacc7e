package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/cli"
	"subctl/internal/guard"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/policy/impact"
)

// clustersetChange adds clusters to a clusterset, or removes them from it.
type clustersetChange struct {
	setsFlags
	set, file     string
	clusters      []string
	remove        bool
	deletes       bool        // deletes the clusterset; clusters are its members, and who still has a grant for it
	members       []string    // the members of the clusterset that it deletes
	guard         guard.Guard // Wait and Timeout
	dryRun, force bool
	format        *printer.Flag
	key           trust.Key
	keyless       error // why there is no key
}

func (o *clustersetChange) command(verb, short, long, example string) *cobra.Command {
	c := &cobra.Command{
		Use: verb + " SET CLUSTER...", Short: short, Long: long, Example: example,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return fmt.Errorf(
					"%s requires a clusterset and the IDs of clusters: subctl clusterset %[1]s SET CLUSTER", verb)
			}
			o.set = args[0]
			o.clusters = slices.Compact(slices.Sorted(slices.Values(args[1:])))
			errs := []error{checkSetArgument(o.set)}
			for _, id := range o.clusters {
				errs = append(errs, submarinerv1.CheckClusterID(id))
			}
			return errors.Join(errs...)
		},
		RunE: func(c *cobra.Command, _ []string) error { return forAdministrators(o.run(c.Context())) },
	}
	o.flags(c)
	c.ValidArgsFunction = o.completeArguments
	return c
}

func (o *clustersetChange) flags(c *cobra.Command) {
	o.add(c)
	f := c.Flags()
	f.StringVar(
		&o.file,
		"broker-info",
		"",
		"join file with the administrator's key, which signs the grants; - for stdin (default: "+broker.JoinFileName+
			")",
	)
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would change, without changing it")
	f.BoolVar(&o.force, "force", false,
		"continue even if clusters lose connections or encryption, or use the same addresses")
	o.guard = guard.New(o.ErrOut, o.AllTargets)
	o.guard.AddWait(c)
	o.format = cli.DryRunOutput(c, &o.dryRun, printer.Table, printer.JSON, printer.YAML)
}

// completeArguments completes the name of a clusterset, and then the IDs of clusters that can be
// added to it, or removed from it.
func (o *clustersetChange) completeArguments(
	c *cobra.Command,
	args []string,
	typed string,
) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return o.completeSets(c, args, typed)
	}
	return o.complete(c.Context(), typed, args[1:], func(s *sets) []string {
		return slices.DeleteFunc(s.all(c.Context()),
			func(id string) bool { return slices.Contains(s.of(id), args[0]) != o.remove })
	})
}

func (o *clustersetChange) run(ctx context.Context) error {
	s, err := o.read(ctx)
	if err != nil {
		return err
	}
	state, err := broker.Look(ctx, s.client, o.namespace)
	if err != nil {
		return err
	}
	_, err = s.find(o.set)
	if err != nil && o.remove {
		granted, unread := broker.Granted(ctx, s.client, s.broker)
		if unread != nil {
			return unread
		}
		if !slices.ContainsFunc(o.clusters, func(id string) bool { return !slices.Contains(granted[o.set], id) }) {
			o.progress().Warn(
				"the broker has no clusterset %s any more: this removes it from the grants of its former members",
				o.set)
			err = nil
		}
	}
	errs := []error{err}
	for _, id := range o.clusters {
		errs = append(errs, checkMember(state, id))
	}
	o.readKey(s)
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, o.keyless)
	}
	for _, id := range o.clusters { // not an error: an earlier change may have been interrupted
		switch in := slices.Contains(s.of(id), o.set); {
		case in && !o.remove:
			o.progress().Note("cluster %s is in clusterset %s already: renewing its rights and its grant", id, o.set)
		case !in && o.remove:
			o.progress().Warn("cluster %s is not in clusterset %s: this removes what is left of it there", id, o.set)
		}
	}
	return o.change(ctx, s)
}

// readKey reads the administrator's key. A dry run does not need it.
func (o *clustersetChange) readKey(s *sets) {
	if o.dryRun {
		return
	}
	general, err := o.generalFile(o.file)
	if err != nil {
		o.keyless = err
		return
	}
	if err := general.CheckBroker(s.broker); err != nil {
		o.keyless = fmt.Errorf("%s %w", cmp.Or(o.file, broker.JoinFileName), err)
	}
	o.key = general.AdministratorKey()
}

// change prints what changes, and changes it unless clusters lose connections that they may not
// lose.
func (o *clustersetChange) change(ctx context.Context, s *sets) error {
	now := s.catalog
	for _, id := range o.clusters { // a cluster that is in no clusterset may be unknown to the catalog
		now = now.InSets(id, s.of(id))
	}
	then := now
	for _, id := range o.clusters {
		then = then.InSets(id, o.of(id).Apply(s.of(id)))
	}
	change := impact.Of(now, then)
	networks, err := s.networks(ctx)
	if err != nil {
		return err
	}
	change.Conflicts = impact.NewConflicts(now, then, networks)
	lost := errors.Join(o.losesMembers(), change.Refusal())
	if o.dryRun {
		if err := o.print(change); err != nil {
			return err
		}
		if lost != nil && !o.force {
			o.progress().Warn("%v\nwithout --force, this is refused", lost)
			return cli.Trouble()
		}
		return nil
	}
	if lost != nil && !o.force {
		if !change.Empty() {
			if err := look.PrintChange(o.Out, o.progress(), change); err != nil {
				return err
			}
		}
		return fmt.Errorf("%w\nnothing was changed: to continue nevertheless, add --force",
			errors.Join(o.keyless, lost))
	}
	if o.keyless != nil {
		return o.keyless
	}
	if err := look.PrintChange(o.Out, o.progress(), change); err != nil {
		return err
	}
	wait, err := o.guard.Await(ctx, now, change)
	if err != nil {
		return err
	}
	did := "added cluster %s to clusterset %s"
	if o.remove {
		did = "removed cluster %s from clusterset %s"
	}
	var errs []error
	// also after an error: a cluster that publishes no grant must not keep the others in
	for _, id := range o.clusters {
		r := broker.Reservation{Kinds: exchange.KindsFrom(s.broker.Spec.PoliciesFrom)}
		_, err := broker.ChangeSets(ctx, s.client, o.namespace, s.names(), o.of(id), r, o.key, o.Now())
		if ctx.Err() != nil {
			return cmp.Or(err, ctx.Err())
		}
		if errs = append(errs, err); err != nil {
			continue
		}
		switch in := slices.Contains(s.of(id), o.set); {
		case o.remove && !in:
			o.progress().Done("nothing is left of cluster %s in clusterset %s", id, o.set)
		case in && !o.remove:
			o.progress().Done("renewed the rights and the grant of cluster %s in clusterset %s", id, o.set)
		default:
			o.progress().Done(did, id, o.set)
		}
	}
	if o.remove { // also after an error: rights end first
		errs = append(errs, o.endWatches(ctx, s.client, words.List(o.clusters)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return wait(ctx)
}

// of returns the change of a cluster.
func (o *clustersetChange) of(id string) broker.SetChange {
	if o.remove {
		return broker.SetChange{Cluster: id, Remove: []string{o.set}}
	}
	return broker.SetChange{Cluster: id, Add: []string{o.set}}
}

// losesMembers returns an error if the clusterset is deleted and has members; nil if not.
func (o *clustersetChange) losesMembers() error {
	if !o.deletes || len(o.members) == 0 {
		return nil
	}
	return fmt.Errorf("clusterset %s has members, which would be removed from it: %s", o.set, words.List(o.members))
}

func (o *clustersetChange) print(change impact.Change) error {
	verb := "add %s to clusterset %s"
	if o.remove {
		verb = "remove %s from clusterset %s"
	}
	if !o.format.Format().Structured() {
		if o.deletes {
			o.progress().Done("clusterset %s would be deleted", o.set)
		}
		return cli.PrintDryRun(o.IOStreams, o.format.Format(),
			func() error { return look.PrintChange(o.Out, o.progress(), change) })
	}
	var actions []string
	for _, id := range o.clusters {
		actions = append(actions, fmt.Sprintf(verb, "cluster "+id, o.set))
	}
	for _, x := range change.Cables {
		actions = append(actions, fmt.Sprintf("%s: %s -> %s", x.Pair, x.Now, x.Then))
	}
	if o.deletes {
		actions = append(actions, "delete clusterset "+o.set)
	}
	return cli.PrintActions(o.IOStreams, o.format.Format(), actions)
}
