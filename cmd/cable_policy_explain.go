package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"subctl/internal/cli"
	"subctl/internal/printer"
	"subctl/internal/words"
	"subctl/policy"
	"subctl/policy/catalog"
)

const cablePolicyExplainLong = `Explain which cable two clusters get and why: the policy that decides, and the other policies
that match. If the current cluster is one of the two, the decision is compared with what the
gateways report: the cable in use and, if it is a different one, the reason. For example, a
policy is invalid, or the new cable does not answer. In another cluster, and on the broker,
only the decision is known.

Of the matching policies, the policy with the most requirements in its selectors decides, and
among equals the policy whose name sorts first. The policy "default" decides only if no
other policy matches, and the clusters' own default drivers (join --cable-driver) only if not
even that policy matches.

The exit code is 3 if the two clusters get no cable, if a gateway uses another one, or if the
cable is not connected.`

type cablePolicyExplain struct {
	policyOptions
	format *printer.Flag
}

func newCablePolicyExplain(g *globals) *cobra.Command {
	o := &cablePolicyExplain{policyOptions: policyOptions{globals: g}}
	c := &cobra.Command{
		Use:               "explain CLUSTER CLUSTER",
		Short:             "Explain which cable two clusters get",
		Long:              cablePolicyExplainLong,
		Example:           "  subctl cable-policy explain east west",
		Args:              twoClusters,
		ValidArgsFunction: o.completeClusters,
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c.Context(), args[0], args[1]) },
	}
	o.policyOptions.addFlags(c)
	o.format = cli.Output(c, printer.Table, printer.JSON, printer.YAML)
	return c
}

func twoClusters(_ *cobra.Command, args []string) error {
	if len(args) != 2 || args[0] == args[1] {
		return errors.New("explain requires two different cluster IDs: subctl cable-policy explain CLUSTER CLUSTER")
	}
	return nil
}

func (o *cablePolicyExplain) run(ctx context.Context, x, y string) error {
	all, err := o.openWithUses(ctx)
	if err != nil {
		return err
	}
	var pair [2]policy.Cluster
	for i, id := range []string{x, y} {
		if pair[i], err = findCluster(all, id); err != nil {
			return err
		}
	}
	r := all.Explain(pair[0], pair[1])
	if o.format.Format().Structured() {
		err = printer.Encode(o.Out, o.format.Format(), r)
	} else {
		err = printReason(o.Out, all, r)
	}
	if err == nil && (r.Error != "" || r.Differs) {
		return cli.Trouble()
	}
	return err
}

// findCluster returns a cluster by its ID.
func findCluster(all *catalog.Catalog, id string) (policy.Cluster, error) {
	c, found := all.Cluster(id)
	if found {
		return c, nil
	}
	known := all.ClusterIDs()
	if len(known) == 0 {
		return c, fmt.Errorf("%s knows no cluster %q, and no other: join clusters first (subctl join)",
			catalog.MakerName(all.Keeper), id)
	}
	return c, fmt.Errorf("%s knows no cluster %q: it knows %s", catalog.MakerName(all.Keeper), id, words.List(known))
}

// printReason prints a reason as text.
func printReason(w io.Writer, all *catalog.Catalog, r catalog.Reason) error {
	var b strings.Builder
	verdict := r.CableDriver
	if r.Error != "" {
		verdict = "no cable: " + r.Error
	}
	if r.Differs {
		verdict += ", but the gateways of this cluster report something else:"
	}
	fmt.Fprintf(&b, "%s - %s: %s\n", r.Clusters[0], r.Clusters[1], verdict)
	for _, u := range r.InUse {
		fmt.Fprintf(&b, "  %s\n", u)
	}
	if r.NotObserved != "" {
		fmt.Fprintf(&b, "  %s\n", r.NotObserved)
	}
	if r.Policy == "" {
		fmt.Fprintf(&b, "  %s\n", r.Why)
	} else {
		fmt.Fprintf(&b, "  rule %d of cable policy %s decides: %s\n", r.Rule, r.Policy, r.Why)
	}
	if r.CableDriverReason != "" {
		fmt.Fprintf(&b, "  %s\n", r.CableDriverReason)
	}
	if rule := all.Rule(r); rule != nil {
		fmt.Fprintf(&b, "    left: %s, right: %s, made by %s, for clusterset %s\n",
			policy.SelectorText(rule.LeftClusterSelector), policy.SelectorText(rule.RightClusterSelector),
			catalog.MakerName(r.MadeBy), strings.Join(r.ClusterSets, ", "))
	}
	if r.EncryptionRequiredBy != "" {
		fmt.Fprintf(&b, "  %s requires encryption\n", r.EncryptionRequiredBy)
	}
	fmt.Fprintf(&b, "  without a policy: the default driver of %s is %s, of %s %s\n", r.Clusters[0],
		r.Defaults[r.Clusters[0]], r.Clusters[1], r.Defaults[r.Clusters[1]])
	for _, id := range r.Clusters {
		if offered, hasGateway := r.Offers[id]; hasGateway {
			fmt.Fprintf(&b, "  cluster %s offers %s\n", id, cmp.Or(strings.Join(offered, ", "), "no cable driver"))
		} else {
			fmt.Fprintf(&b, "  cluster %s has no gateway now\n", id)
		}
	}
	if len(r.Beaten) > 0 {
		fmt.Fprint(&b, "\nThese match too:\n")
	}
	if _, err := io.WriteString(w, printer.CleanLines(b.String())); err != nil {
		return err
	}
	return printer.Print(w, printer.Table, r.Beaten, []printer.Column[catalog.Beaten]{
		{Head: "POLICY", Cell: func(r catalog.Beaten) string { return r.Policy }},
		{Head: "CLUSTERSETS", Cell: func(r catalog.Beaten) string { return strings.Join(r.ClusterSets, ", ") }},
		{Head: "RULE", Cell: func(r catalog.Beaten) string { return strconv.Itoa(r.Rule) }},
		{Head: "CABLE DRIVER", Cell: func(r catalog.Beaten) string { return r.CableDriver }},
		{Head: "WHY NOT", Cell: func(r catalog.Beaten) string { return r.Why }},
	})
}
