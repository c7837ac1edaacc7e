package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/cli"
	"subctl/internal/guard"
	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/policy/catalog"
	"subctl/policy/impact"
)

const cablePolicyDeleteLong = `Delete a cable policy, on the cluster on which it was created.

The pairs of clusters whose cable changes are printed on stdout. If no other policy matches
a pair, it gets the cable of the policy "default". Without that policy, it gets the clusters'
own default driver if that is the same for both. -o json and -o yaml print the policy, as a
file for "subctl cable-policy add -f".

If a pair would lose its cable or its encryption, the policy is deleted only with --force;
with --dry-run, the exit code is then 3. --wait reads the clusters of the kubeconfig until all
pairs use their new cable; if they do not in time, the exit code is 3.`

const cablePolicyDeleteExample = `  # show what would change, and delete it
  subctl cable-policy delete secure --dry-run
  subctl cable-policy delete secure --force`

type cablePolicyDelete struct {
	policyOptions
	guard.Guard
	name   string
	format *printer.Flag
}

func newCablePolicyDelete(g *globals) *cobra.Command {
	o := &cablePolicyDelete{policyOptions: policyOptions{globals: g}, Guard: guard.New(g.ErrOut, g.AllTargets)}
	c := &cobra.Command{
		Use:               "delete NAME",
		Aliases:           []string{"remove"},
		Short:             "Delete a cable policy",
		Long:              cablePolicyDeleteLong,
		Example:           cablePolicyDeleteExample,
		Args:              g.optionalName("name"),
		ValidArgsFunction: cli.CompleteArgument(o.ownNames),
		RunE:              func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.policyOptions.addFlags(c)
	o.addSet(c, "clusterset of the policy, if policies of several clustersets have its name")
	c.Flags().StringVar(&o.name, "name", "", "name of the policy, instead of the argument")
	o.Guard.AddFlags(c)
	cli.Complete(c, "name", o.ownNames)
	o.format = cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	return c
}

func (o *cablePolicyDelete) run(ctx context.Context) error {
	if o.name == "" {
		return cli.UsageError(
			errors.New(
				"the name of the policy is missing: subctl cable-policy delete NAME (subctl cable-policy list prints the names)"),
		)
	}
	all, c, err := o.open(ctx)
	if err != nil {
		return err
	}
	p, err := o.find(all)
	if err != nil {
		return err
	}
	report := o.progress()
	if p.SharedName() == v1alpha1.DefaultCablePolicy {
		report.Warn(
			"without the policy default, pairs that no other policy matches get the default driver of both clusters, and no cable if these drivers differ")
	}
	change := impact.Of(all, all.Without(p))
	if err := o.printChange(o.format.Format(), o.DryRun, change, c.Scheme(), []client.Object{p}); err != nil {
		return err
	}
	if err := o.Accept(change); err != nil || o.DryRun {
		return err
	}
	wait, err := o.Await(ctx, all, change)
	if err != nil {
		return err
	}
	if err := c.Delete(ctx, p, client.Preconditions{UID: &p.UID}); err != nil {
		return fmt.Errorf("deleting cable policy %s: %w", o.name, err)
	}
	report.Done("deleted cable policy %s from %s", o.name, catalog.MakerName(all.Keeper))
	return wait(ctx)
}

// find returns the policy to delete, which must have been created on this cluster.
func (o *cablePolicyDelete) find(all *catalog.Catalog) (*v1alpha1.CablePolicies, error) {
	if err := all.CheckSet(o.set); err != nil {
		return nil, cli.UsageError(err)
	}
	own, makers := all.Find(o.name, o.set)
	names := all.Names(false)
	switch {
	case len(own) == 1 && o.set != "" && len(all.SetsOf(own[0])) > 1:
		return nil, fmt.Errorf(
			"cable policy %s applies in clustersets %s: omit --clusterset to delete it from all of them", o.name,
			strings.Join(all.SetsOf(own[0]), " and "))
	case len(own) == 1:
		return own[0], nil
	case len(own) > 1:
		var sets []string
		for _, p := range own {
			sets = append(sets, all.SetsOf(p)...)
		}
		return nil, cli.UsageError(
			fmt.Errorf("there is a cable policy %s in clustersets %s: choose one with --clusterset", o.name,
				strings.Join(words.Distinct(sets), " and ")),
		)
	case o.set != "" && slices.Contains(all.Names(true), o.name):
		return nil, fmt.Errorf("there is no cable policy %q in clusterset %s", o.name, o.set)
	case len(makers) > 0:
		var others []string
		for _, id := range makers {
			others = append(others, catalog.MakerName(id))
		}
		flags := "--context CONTEXT"
		if slices.Contains(makers, submarinerv1.BrokerID) {
			flags += " --broker" // also where the broker is on this cluster
		}
		return nil, fmt.Errorf("cable policy %s was created by %s: delete it there with subctl cable-policy delete "+
			"%s %s", o.name, strings.Join(words.Distinct(others), " and "), o.name, flags)
	case len(names) == 0:
		return nil, fmt.Errorf("there is no cable policy %q: %s has no cable policies", o.name,
			catalog.MakerName(all.Keeper))
	}
	return nil, fmt.Errorf("there is no cable policy %q: the policies are %s%s", o.name, words.List(names),
		words.Meant(o.name, names))
}
