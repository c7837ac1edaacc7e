package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/printer"
	"subctl/policy"
)

const cablePolicyExplainLong = `Say which cable two clusters get and why: the policy that decides, and the policies that
match too but do not decide.

Of the policies that match, the one with the most requirements in both selectors decides;
if several have as many, the one whose name comes first. "default" decides only if no other
policy matches.

The exit code is 3 if the two clusters get no cable.`

// policyReason is why a pair has its cable; its JSON is a promise.
type policyReason struct {
	Clusters    [2]string           `json:"clusters"`
	CableDriver string              `json:"cableDriver"` // empty: no cable
	Policy      string              `json:"policy"`      // empty: none decides
	Rule        int                 `json:"rule"`        // counted from 1; 0: none decides
	Why         string              `json:"why"`
	Error       string              `json:"error"` // why there is no cable
	Offers      map[string][]string `json:"offers"`
	Beaten      []beatenRow         `json:"beaten"`
}

// beatenRow is a rule that matches and does not decide.
type beatenRow struct {
	Policy      string `json:"policy"`
	Rule        int    `json:"rule"`
	CableDriver string `json:"cableDriver"`
	Why         string `json:"why"`
}

type cablePolicyExplain struct {
	policySite
	format *printer.Flag
}

func newCablePolicyExplain(g *globals) *cobra.Command {
	o := &cablePolicyExplain{policySite: policySite{globals: g}}
	c := &cobra.Command{
		Use:               "explain CLUSTER CLUSTER",
		Short:             "Say which cable two clusters get, and why",
		Long:              cablePolicyExplainLong,
		Example:           "  subctl cable-policy explain east west",
		Args:              twoClusters,
		ValidArgsFunction: o.completeClusters,
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c.Context(), args[0], args[1]) },
	}
	o.policySite.addFlags(c)
	o.format = output(c, printer.Table, printer.JSON, printer.YAML)
	return c
}

func twoClusters(_ *cobra.Command, args []string) error {
	if len(args) != 2 || args[0] == args[1] {
		return errors.New("explain wants two cluster IDs: subctl cable-policy explain CLUSTER CLUSTER")
	}
	return nil
}

func (o *cablePolicyExplain) run(ctx context.Context, x, y string) error {
	d, err := o.open(ctx)
	if err != nil {
		return err
	}
	r, err := d.explain(x, y)
	if err != nil {
		return err
	}
	if o.format.Format().Structured() {
		err = printer.Encode(o.Out, o.format.Format(), r)
	} else {
		err = d.printReason(o.Out, r)
	}
	if err == nil && r.Error != "" {
		return trouble()
	}
	return err
}

// cluster returns a cluster by its ID.
func (d *policyDesk) cluster(id string) (policy.Cluster, error) {
	for _, c := range d.clusters {
		if c.ID == id {
			return c, nil
		}
	}
	known := d.clusterIDs()
	if near := nearest(id, known); near != "" {
		return policy.Cluster{}, usageError(fmt.Errorf("%s knows no cluster %q: did you mean %s?", makerName(d.id), id, near))
	}
	return policy.Cluster{}, usageError(fmt.Errorf("%s knows no cluster %q: it knows %s", makerName(d.id), id, several(known)))
}

func (d *policyDesk) explain(idX, idY string) (policyReason, error) {
	x, err := d.cluster(idX)
	if err != nil {
		return policyReason{}, err
	}
	y, err := d.cluster(idY)
	if err != nil {
		return policyReason{}, err
	}
	e := policy.Compile(d.policies).Explain(x, y)
	r := policyReason{Clusters: [2]string{x.ID, y.ID}, Policy: e.Policy, Why: e.Why, Offers: map[string][]string{}, Beaten: []beatenRow{}}
	if e.Policy != "" {
		r.Rule = e.Rule + 1
	}
	driver, err := d.cable(policy.Pair{X: x, Y: y}, e.Decision)
	if r.CableDriver = driver; err != nil {
		r.Error = err.Error()
	}
	for _, id := range r.Clusters {
		if offered, known := d.offers[id]; known {
			r.Offers[id] = offered
		}
	}
	for _, b := range e.Beaten {
		r.Beaten = append(r.Beaten, beatenRow{b.Policy, b.Rule + 1, b.Driver, b.Why})
	}
	return r, nil
}

// printReason prints a reason for people.
func (d *policyDesk) printReason(w io.Writer, r policyReason) error {
	var b strings.Builder
	verdict := r.CableDriver
	if r.Error != "" {
		verdict = "no cable: " + r.Error
	}
	fmt.Fprintf(&b, "%s - %s: %s\n", r.Clusters[0], r.Clusters[1], verdict)
	if r.Policy == "" {
		fmt.Fprintf(&b, "  %s\n", r.Why)
	} else {
		fmt.Fprintf(&b, "  cable policy %s decides: %s\n", r.Policy, r.Why)
	}
	if spec, maker := d.rule(r.Policy, r.Rule); spec != nil {
		fmt.Fprintf(&b, "    left: %s, right: %s, made by %s\n", policy.SelectorText(spec.LeftClusterSelector), policy.SelectorText(spec.RightClusterSelector), makerName(maker))
	}
	for _, id := range r.Clusters {
		if offered, known := r.Offers[id]; known {
			fmt.Fprintf(&b, "  cluster %s offers %s\n", id, strings.Join(offered, ", "))
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
	return printer.Print(w, printer.Table, r.Beaten, []printer.Column[beatenRow]{
		{Head: "POLICY", Cell: func(r beatenRow) string { return r.Policy }},
		{Head: "CABLE DRIVER", Cell: func(r beatenRow) string { return r.CableDriver }},
		{Head: "WHY NOT", Cell: func(r beatenRow) string { return r.Why }},
	})
}

// rule returns a rule of a policy and who made that; nil if there is none. Rules are
// counted from 1.
func (d *policyDesk) rule(name string, n int) (*v1alpha1.CablePolicySpec, string) {
	i := slices.IndexFunc(d.policies, func(p *v1alpha1.CablePolicies) bool { return p.SharedName() == name && n <= len(p.ConnectionPolicies) })
	if i < 0 || n == 0 {
		return nil, ""
	}
	return &d.policies[i].ConnectionPolicies[n-1], d.maker(d.policies[i])
}
