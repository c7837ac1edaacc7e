package cmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/cli"
	"subctl/internal/guard"
	"subctl/internal/kube"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/policy/catalog"
	"subctl/policy/impact"
)

const labelLong = `Set and remove labels of a cluster, which the selectors of cable policies match.

KEY=VALUE sets a label, and KEY- removes it. The labels are in Submariner.spec.clusterLabels of
the cluster, and every cluster of its clustersets reads them. Without --context, subctl looks
for the cluster in all contexts of the kubeconfig.

The pairs of clusters whose cable changes are printed on stdout. With -o json or yaml they are
printed on stderr, and the Submariner with its new labels on stdout. A change that leaves a pair
without a cable, or removes its encryption, is refused unless --force is set; with --dry-run,
the exit code is then 3.`

const labelExample = `  # show which pairs of clusters change their cable, and change them
  subctl label west site=cloud --dry-run
  subctl label west site=cloud --wait

  # remove a label
  subctl label west site-`

type labelOptions struct {
	*globals
	guard.Guard
	format  *printer.Flag
	cluster string
	set     map[string]string
	remove  []string
}

func newLabel(g *globals) *cobra.Command {
	o := &labelOptions{globals: g, Guard: guard.New(g.ErrOut, g.AllTargets), set: map[string]string{}}
	c := &cobra.Command{
		Use:               "label CLUSTER KEY=VALUE|KEY- ...",
		Short:             "Change the labels of a cluster",
		Long:              labelLong,
		Example:           labelExample,
		Args:              func(_ *cobra.Command, args []string) error { return o.parse(args) },
		ValidArgsFunction: o.complete,
		RunE:              func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	cli.Lacks(c, "contexts", "each cluster has its own labels: choose it by its name")
	o.Guard.AddFlags(c)
	o.format = cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	return c
}

// parse reads the arguments, and returns all mistakes in them.
func (o *labelOptions) parse(args []string) error {
	if len(args) < 2 {
		return errors.New("label requires a cluster ID and at least one label: subctl label CLUSTER KEY=VALUE KEY-")
	}
	o.cluster = args[0]
	named := map[string]string{} // all labels, to check their names
	var errs []error
	for _, arg := range args[1:] {
		k, v, sets := strings.Cut(arg, "=")
		if !sets {
			var removes bool
			if k, removes = strings.CutSuffix(arg, "-"); !removes {
				errs = append(errs,
					fmt.Errorf("%q is neither KEY=VALUE, which sets a label, nor KEY-, which removes it", arg))
				continue
			}
		}
		if _, twice := named[k]; twice {
			errs = append(errs, fmt.Errorf("label %q is specified twice", k))
		}
		if named[k] = v; sets {
			o.set[k] = v
		} else {
			o.remove = append(o.remove, k)
		}
	}
	return errors.Join(
		append(errs, submarinerv1.CheckClusterID(o.cluster), submarinerv1.CheckLabels("subctl label", named))...)
}

func (o *labelOptions) run(ctx context.Context) error {
	c, all, err := o.open(ctx)
	if err != nil {
		return err
	}
	var sub v1alpha1.Submariner
	if err := c.Get(ctx, client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: v1alpha1.SubmarinerName},
		&sub); err != nil {
		return fmt.Errorf("reading the Submariner: %w", err)
	}
	self, _ := all.Cluster(o.cluster)
	for _, k := range o.remove {
		if _, there := self.Labels[k]; !there {
			o.progress().Warn("cluster %s has no label %s", o.cluster, k)
		}
	}
	if err := submarinerv1.CheckLabels("subctl label", o.changed(sub.ClusterLabels())); err != nil {
		return err
	}
	change := impact.Of(all, all.Labelled(o.cluster, o.changed(self.Labels)))
	was := sub.DeepCopy()
	sub.Spec.ClusterLabels = o.changed(sub.ClusterLabels())
	delete(sub.Annotations, v1alpha1.ClusterLabelsAnnotation) // of an earlier version
	if err := o.printChange(o.format.Format(), o.DryRun, change, c.Scheme(), []client.Object{&sub}); err != nil {
		return err
	}
	if err := o.Accept(change); err != nil || o.DryRun {
		return err
	}
	wait, err := o.Await(ctx, all, change)
	if err != nil {
		return err
	}
	if err := o.write(ctx, c, was, &sub); err != nil {
		return err
	}
	o.progress().Done("cluster %s has %s", o.cluster, labelsText(o.changed(self.Labels)))
	return wait(ctx)
}

// labelsText returns labels for a message.
func labelsText(labels map[string]string) string {
	if len(labels) == 0 {
		return "no labels"
	}
	return "the labels " + words.List(labelList(labels))
}

// changed returns labels with the changes.
func (o *labelOptions) changed(labels map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, labels)
	maps.Copy(out, o.set)
	for _, k := range o.remove {
		delete(out, k)
	}
	maps.DeleteFunc(out, func(k, _ string) bool { return submarinerv1.IsReservedLabel(k) })
	return out
}

// write changes the Submariner as it was, and the labels of the Cluster object, where people may
// have changed them too.
func (o *labelOptions) write(ctx context.Context, c client.Client, was, sub *v1alpha1.Submariner) error {
	if err := c.Patch(ctx, sub, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(kube.FieldOwner)); err != nil {
		return fmt.Errorf("writing Submariner.spec.clusterLabels: %w", err)
	}
	current, err := kube.Optional(ctx, c, &submarinerv1.Cluster{},
		client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: o.cluster})
	if err != nil || current == nil {
		return err // the gateway will create it
	}
	before := current.DeepCopy()
	current.Labels = o.changed(current.Labels)
	if err := c.Patch(ctx, current, client.MergeFrom(before),
		client.FieldOwner(kube.FieldOwner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the labels of Cluster %s: %w", o.cluster, err)
	}
	return nil
}

// open connects to the cluster: in the context that the user specified, or else in the context
// of the kubeconfig that is joined with its ID.
func (o *labelOptions) open(ctx context.Context) (client.Client, *catalog.Catalog, error) {
	name := *o.Flags.Context
	if name == "" {
		targets, err := o.AllTargets()
		if err != nil {
			return nil, nil, err
		}
		sites, errs := look.ReadAll(ctx, targets)
		i := slices.IndexFunc(sites, func(s look.Site) bool { return s.Submariner != nil && s.Name == o.cluster })
		if i < 0 {
			err := fmt.Errorf(
				"no cluster of the kubeconfig that can be read has joined as %q: choose its context with --context",
				o.cluster)
			return nil, nil, errors.Join(append([]error{err}, errs...)...)
		}
		name = targets[i].Context
	}
	c, err := o.ClientFor(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	all, err := look.ReadPolicies(ctx, c, false)
	if errors.Is(err, look.ErrNoPolicies) {
		err = fmt.Errorf("the cluster of context %q has not joined, so it has no labels: join it first (subctl join)",
			name)
	}
	if err == nil && all.Keeper != o.cluster {
		err = fmt.Errorf("the cluster of context %q is %s, not %s: choose the context of the cluster", name,
			catalog.MakerName(all.Keeper), o.cluster)
	}
	return c, all, err
}

// complete completes the arguments: the IDs of the clusters of the kubeconfig, or of the cluster of
// --context, and changes of the labels that the cluster has.
func (o *labelOptions) complete(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	targets, err := o.Targets(nil)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, s := range look.Known(c.Context(), targets) {
		switch {
		case !s.Joined():
		case len(args) == 0:
			out = append(out, s.Name)
		case s.Name == args[0]:
			self, _ := s.Members.Cluster(s.Name)
			for _, k := range slices.Sorted(maps.Keys(self.Labels)) {
				out = append(out, k+"=", k+"-")
			}
			return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
	}
	slices.Sort(out)
	return out, cobra.ShellCompDirectiveNoFileComp
}
