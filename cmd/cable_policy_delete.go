package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
)

const cablePolicyDeleteLong = `Delete a cable policy, on the cluster it was made on.

The pairs of clusters whose cable changes are printed on stdout. A pair that no other
policy matches gets the cable of the policy "default"; without that one, the clusters' own
default driver, if both have the same.`

const cablePolicyDeleteExample = `  # see what would change, and delete it
  subctl cable-policy delete --name secure --dry-run
  subctl cable-policy delete --name secure`

type cablePolicyDelete struct {
	policySite
	name   string
	dryRun bool
}

func newCablePolicyDelete(g *globals) *cobra.Command {
	o := &cablePolicyDelete{policySite: policySite{globals: g}}
	c := &cobra.Command{
		Use:     "delete",
		Aliases: []string{"remove"},
		Short:   "Delete a cable policy",
		Long:    cablePolicyDeleteLong,
		Example: cablePolicyDeleteExample,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.policySite.addFlags(c)
	o.addSet(c, "clusterset whose policy to delete, on a broker")
	c.Flags().StringVar(&o.name, "name", "", "name of the policy")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "print what would change, and change nothing")
	o.completeNames(c, true)
	return c
}

func (o *cablePolicyDelete) run(ctx context.Context) error {
	if o.name == "" {
		return usageError(errors.New("--name is missing: subctl cable-policy list has the names"))
	}
	d, err := o.open(ctx)
	if err != nil {
		return err
	}
	p, err := d.find(o.name, o.set)
	if err != nil {
		return err
	}
	report := o.progress()
	change := d.compare(slices.DeleteFunc(slices.Clone(d.policies), func(other *v1alpha1.CablePolicies) bool { return other == p }))
	if p.SharedName() == v1alpha1.DefaultCablePolicy {
		report.Warn("without the policy default, pairs that no other policy matches get the cable driver that both clusters were joined with, and none if that is not the same")
	}
	if err := change.print(o.Out, report); err != nil || o.dryRun {
		return err
	}
	if err := d.client.Delete(ctx, p, client.Preconditions{UID: &p.UID}); err != nil {
		return fmt.Errorf("deleting cable policy %s: %w", o.name, err)
	}
	report.Done("deleted cable policy %s from %s", o.name, makerName(d.id))
	return nil
}

// find returns the policy of a name that was made here, in a clusterset; "" is any.
func (d *policyDesk) find(name, set string) (*v1alpha1.CablePolicies, error) {
	var own []*v1alpha1.CablePolicies
	var others, names []string
	for _, p := range d.policies {
		maker := d.maker(p)
		switch {
		case p.SharedName() != name:
			names = append(names, p.SharedName())
		case maker != d.id:
			others = append(others, makerName(maker))
		case set == "" || slices.Contains(d.setsOf(p), set):
			own = append(own, p)
		}
	}
	switch {
	case len(own) == 1:
		return own[0], nil
	case len(own) > 1:
		var sets []string
		for _, p := range own {
			sets = append(sets, d.setsOf(p)...)
		}
		return nil, usageError(fmt.Errorf("there is a cable policy %s in clustersets %s: say which with --clusterset", name, strings.Join(unique(sets), " and ")))
	case len(others) > 0:
		return nil, fmt.Errorf("cable policy %s was made by %s: delete it there, subctl cable-policy delete --name %s with that --context", name, strings.Join(unique(others), " and "), name)
	case len(names) == 0:
		return nil, fmt.Errorf("there is no cable policy %q: %s has none at all", name, makerName(d.id))
	}
	return nil, fmt.Errorf("there is no cable policy %q: there are %s", name, several(unique(names)))
}
