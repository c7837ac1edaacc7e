package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
	"subctl/internal/cli"
	"subctl/internal/guard"
	"subctl/internal/kube"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/policy/catalog"
	"subctl/policy/impact"
)

const cablePolicyAdoptLong = `Make a cable policy that was created on a cluster a policy of the broker.

A policy is deleted when the cluster on which it was created is uninstalled. A policy of the
broker stays, and is changed and deleted on the broker. It keeps its name and its rules. A
pair of clusters changes its cable only if the policy had no effect on the pair because it
was of another cluster: such a policy removes no encryption, a policy of the broker may. The
pairs that change are printed, and an adoption that removes encryption, or of a policy that
the clusters refuse, is refused unless --force is set.

With -o json or yaml, the policies are printed on stdout as the broker has them, and the pairs
on stderr. The cluster keeps its own object, which has no effect any more: delete it with kubectl, or
uninstall the cluster.`

const cablePolicyAdoptExample = `  # keep all policies of a cluster that is going to be uninstalled
  subctl cable-policy adopt --from west --context hub
  subctl uninstall --context west

  # keep one policy
  subctl cable-policy adopt secure --context hub`

type cablePolicyAdopt struct {
	policyOptions
	guard.Guard
	name, from string
	format     *printer.Flag
}

func newCablePolicyAdopt(g *globals) *cobra.Command {
	o := &cablePolicyAdopt{policyOptions: policyOptions{globals: g}, Guard: guard.New(g.ErrOut, g.AllTargets)}
	c := &cobra.Command{
		Use:               "adopt [NAME]",
		Short:             "Make a policy of a cluster a policy of the broker",
		Long:              cablePolicyAdoptLong,
		Example:           cablePolicyAdoptExample,
		Args:              g.optionalName("name"),
		ValidArgsFunction: cli.CompleteArgument(o.names),
		RunE:              func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.policyOptions.addFlags(c)
	o.addSet(c, "clusterset of the policies (default: all clustersets of the broker)")
	o.addSigning(c)
	f := c.Flags()
	f.StringVar(&o.name, "name", "",
		"name of the policy, instead of the argument (default: all policies of the cluster)")
	f.StringVar(&o.from, "from", "", "ID of the cluster on which the policies were created")
	o.Guard.AddFlags(c)
	o.format = cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	cli.Complete(c, "name", o.names)
	cli.Complete(c, "from", func(ctx context.Context) ([]string, error) {
		all, _, err := o.open(ctx)
		if err != nil {
			return nil, err
		}
		return all.ClusterIDs(), nil
	})
	return c
}

// names returns the names of the policies that can be adopted.
func (o *cablePolicyAdopt) names(ctx context.Context) ([]string, error) {
	all, _, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all.Names(false),
		func(name string) bool { return slices.Contains(all.Names(true), name) }), nil
}

func (o *cablePolicyAdopt) run(ctx context.Context) error {
	if o.name == "" && o.from == "" {
		return cli.UsageError(
			errors.New("specify a policy with its name, or all policies of a cluster with --from CLUSTER"))
	}
	all, c, err := o.open(ctx)
	if err != nil {
		return err
	}
	if !all.OnBroker() {
		return errors.New(
			"only the broker can adopt policies, and this cluster is a member: choose the broker with --context, or with --broker if this cluster hosts it")
	}
	found := o.find(all)
	if len(found) == 0 {
		return o.nothing(all)
	}
	if err := o.checkNames(all, found); err != nil {
		return err
	}
	change := impact.Of(all, all.Adopted(found))
	table := o.Out
	if o.format.Format().Structured() {
		table = o.ErrOut // the data are the policies
	}
	if !change.Empty() {
		if err := look.PrintChange(table, o.progress(), change); err != nil {
			return err
		}
	}
	refused := errors.Join(
		o.Confirm(unproven(all, found), "they are not adopted", "to adopt them nevertheless, which puts them in force"),
		o.Accept(change))
	if refused != nil && !o.DryRun {
		return refused
	}
	if err := o.signAdopted(ctx, c, all, found, o.DryRun); err != nil {
		return err
	}
	if err := o.print(c.Scheme(), found); err != nil {
		return err
	}
	wait, err := o.Await(ctx, all, change)
	if err != nil {
		return err
	}
	if err := o.adopt(ctx, c, all, found); err != nil || o.DryRun {
		return errors.Join(err, refused)
	}
	return wait(ctx)
}

// print prints the policies as the broker will have them, in a structured format.
func (o *cablePolicyAdopt) print(scheme *runtime.Scheme, found []*v1alpha1.CablePolicies) error {
	format := o.format.Format()
	if !format.Structured() {
		return nil
	}
	var objects []client.Object
	for _, p := range found {
		objects = append(objects, adopted(p))
	}
	print := func() error { return cli.PrintObjects(o.Out, scheme, format, o.DryRun, objects) }
	if o.DryRun {
		return cli.PrintDryRun(o.IOStreams, format, print)
	}
	return print()
}

// adopt makes policies those of the broker. With --dry-run, it only names them.
func (o *cablePolicyAdopt) adopt(
	ctx context.Context,
	c client.Client,
	all *catalog.Catalog,
	found []*v1alpha1.CablePolicies,
) error {
	for _, p := range found {
		maker := all.Maker(p)
		sets := strings.Join(p.ClusterSets(), ", ")
		if o.DryRun {
			o.progress().Done("the broker would keep cable policy %s of cluster %s, in clusterset %s", p.Name, maker,
				sets)
			continue
		}
		if err := adopt(ctx, c, p); err != nil {
			return fmt.Errorf("adopting cable policy %s: %w", p.Name, err)
		}
		o.progress().Done("cable policy %s of cluster %s is now a policy of the broker, in clusterset %s", p.Name,
			maker, sets)
	}
	if !o.DryRun {
		o.progress().Warn("the objects on the clusters have no effect any more where the broker has adopted them: " +
			"delete them there with kubectl -n submariner-operator delete cablepolicies NAME, or uninstall the clusters")
	}
	return nil
}

// find returns the policies to adopt.
func (o *cablePolicyAdopt) find(all *catalog.Catalog) []*v1alpha1.CablePolicies {
	return slices.DeleteFunc(slices.Clone(all.Policies), func(p *v1alpha1.CablePolicies) bool {
		maker := all.Maker(p)
		return maker == all.Keeper || o.name != "" && p.Name != o.name || o.from != "" && maker != o.from ||
			o.set != "" && !slices.Contains(p.ClusterSets(), o.set)
	})
}

// unproven returns the reasons why the clusters refuse policies that are found: the administrator's
// signature puts them in force.
func unproven(all *catalog.Catalog, found []*v1alpha1.CablePolicies) error {
	var errs []error
	for _, p := range found {
		if why := all.Refused(p); why != "" {
			errs = append(errs,
				fmt.Errorf("the clusters refuse cable policy %s of cluster %s: %s", p.Name, all.Maker(p), why))
		}
	}
	return errors.Join(errs...)
}

// checkNames returns an error if several clusters have a policy of one name in a clusterset: the
// broker can adopt only one of them.
func (o *cablePolicyAdopt) checkNames(all *catalog.Catalog, found []*v1alpha1.CablePolicies) error {
	makers := map[string][]string{} // by clusterset and name
	for _, p := range found {
		for _, set := range p.ClusterSets() {
			key := set + "/" + p.Name
			if makers[key] = append(makers[key], all.Maker(p)); len(makers[key]) > 1 {
				return cli.UsageError(
					fmt.Errorf("several clusters have a cable policy %s in clusterset %s: choose one with --from %s",
						p.Name, set, strings.Join(makers[key], " or --from ")),
				)
			}
		}
	}
	return nil
}

// nothing returns the error that no policy is found; nil if there is nothing left to adopt.
func (o *cablePolicyAdopt) nothing(all *catalog.Catalog) error {
	if own, _ := all.Find(o.name, o.set); len(own) > 0 {
		o.progress().Done("cable policy %s is a policy of the broker already", o.name)
		return nil
	}
	if o.name == "" && slices.Contains(all.ClusterIDs(), o.from) {
		o.progress().Done("the broker has no cable policy of cluster %s: there is nothing to adopt", o.from)
		return nil
	}
	var known []string
	for _, p := range all.Policies {
		if maker := all.Maker(p); maker != all.Keeper {
			known = append(known, fmt.Sprintf("%s of cluster %s", p.Name, maker))
		}
	}
	if len(known) == 0 {
		return errors.New("there is nothing to adopt: the broker has no cable policy of a cluster")
	}
	return fmt.Errorf("the broker has no such cable policy: it has %s", words.List(words.Distinct(known)))
}

// adopted returns a policy of a cluster as the broker will have it.
func adopted(p *v1alpha1.CablePolicies) *v1alpha1.CablePolicies {
	out := &v1alpha1.CablePolicies{
		ObjectMeta:         metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
		ConnectionPolicies: p.ConnectionPolicies,
	}
	if signature, ok := p.Annotations[submarinerv1.SignatureAnnotation]; ok {
		out.Annotations = map[string]string{submarinerv1.SignatureAnnotation: signature}
	}
	return out
}

// adopt makes a policy of the broker of a cluster's policy, and empties what is reserved for the
// cluster. Both are in force while there are both.
func adopt(ctx context.Context, c client.Client, p *v1alpha1.CablePolicies) error {
	// it still has the rules that are signed
	if err := exchange.Kinds().Vacate(ctx, client.NewDryRunClient(c), p); err != nil {
		return err
	}
	brokers := adopted(p)
	there := &v1alpha1.CablePolicies{}
	err := c.Create(ctx, brokers, client.FieldOwner(kube.FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(brokers), there); err != nil {
			return err
		}
		// else an earlier run was interrupted
		if !equality.Semantic.DeepEqual(there.ConnectionPolicies, p.ConnectionPolicies) {
			return errors.New(
				"the broker has another policy of this name: delete one of them first, with subctl cable-policy delete")
		}
	} else if err != nil {
		return err
	}
	err = exchange.Kinds().Vacate(ctx, c, p)
	if apierrors.IsConflict(err) { // its cluster empties it, too, since the broker has a policy of this name
		return nil
	}
	return client.IgnoreNotFound(err)
}
