package cmd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/internal/printer"
	"subctl/policy"
)

const cablePolicyListLong = `List the cable policies, and the pairs of clusters that each of them decides now.

A policy has one line for each of its rules. STATE is ok, or what is wrong: a mistake in
the policy, a ConfigMap that cannot be used, or that the broker does not have the policy,
so that it does not count. Details are printed on stderr.

The exit code is 3 if something is wrong with a policy, or if a pair of clusters has no
cable.`

// policyRow is a rule of a policy; its JSON is a promise.
type policyRow struct {
	Policy      string      `json:"policy"`
	Rule        int         `json:"rule"` // counted from 1
	Left        string      `json:"leftClusterSelector"`
	Right       string      `json:"rightClusterSelector"`
	CableDriver string      `json:"cableDriver"`
	ConfigMap   string      `json:"configMap"`
	Settings    string      `json:"settings"` // YAML
	MadeBy      string      `json:"madeBy"`   // cluster ID, or BROKER
	ClusterSets []string    `json:"clusterSets"`
	State       string      `json:"state"`
	Message     string      `json:"message"`
	Pairs       [][2]string `json:"pairs"` // that it decides now
}

type cablePolicyList struct {
	policySite
	format *printer.Flag
}

func newCablePolicyList(g *globals) *cobra.Command {
	o := &cablePolicyList{policySite: policySite{globals: g}}
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the cable policies and what they decide",
		Long:    cablePolicyListLong,
		Example: "  subctl cable-policy list\n  subctl cable-policy list -o wide --context hub",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.policySite.addFlags(c)
	o.format = output(c, printer.Table, printer.Wide, printer.JSON, printer.YAML)
	return c
}

func (o *cablePolicyList) run(ctx context.Context) error {
	d, err := o.open(ctx)
	if err != nil {
		return err
	}
	rows := d.rows()
	own, ill := d.decide(rows)
	report := o.progress()
	for _, text := range ill[:min(len(ill), maxIll)] {
		report.Warn("%s", text)
	}
	if len(ill) > maxIll {
		report.Warn("and %d more", len(ill)-maxIll)
	}
	if own > 0 {
		report.Done("%s: decided by %s", counted(own, "pair"), decider(""))
	}
	if len(rows) == 0 {
		report.Done("there are no cable policies")
	}
	if err := printer.Print(o.Out, o.format.Format(), rows, policyColumns()); err != nil || len(ill) == 0 {
		return err
	}
	return trouble()
}

// maxIll is how many things that are wrong a person wants to read.
const maxIll = 50

// decide fills in the pairs that each rule decides. It returns how many pairs no policy
// decides, and what is wrong, a line each.
func (d *policyDesk) decide(rows []policyRow) (own int, ill []string) {
	type rule struct {
		policy string
		number int
	}
	at := map[rule][]int{} // clustersets may have policies of one name
	for i, r := range rows {
		k := rule{r.Policy, r.Rule - 1}
		at[k] = append(at[k], i)
		if r.State != stateOK && r.Rule == 1 {
			ill = append(ill, fmt.Sprintf("policy %s: %s", r.Policy, printer.CleanLines(r.Message)))
		}
	}
	for pair, dec := range policy.Compile(d.policies).Pairs(d.clusters) {
		if _, err := d.cable(pair, dec); err != nil {
			ill = append(ill, pairName(pair)+": "+printer.CleanLines(err.Error()))
		}
		if dec.Policy == "" && dec.Err == nil {
			own++
		}
		for _, i := range at[rule{dec.Policy, dec.Rule}] {
			if rows[i].isFor(pair) {
				rows[i].Pairs = append(rows[i].Pairs, [2]string{pair.X.ID, pair.Y.ID})
				break
			}
		}
	}
	return own, ill
}

// isFor says whether the rule is of a clusterset that both clusters are in.
func (r policyRow) isFor(pair policy.Pair) bool {
	shared := func(s string) bool { return slices.Contains(pair.X.Sets, s) && slices.Contains(pair.Y.Sets, s) }
	return slices.ContainsFunc(r.ClusterSets, shared)
}

// stateOK is the state of a policy that counts.
const stateOK = "ok"

// rows are the rules of the policies. What is in several clustersets is listed once.
func (d *policyDesk) rows() []policyRow {
	rows := []policyRow{}
	for _, p := range d.policies {
		state, message := d.state(p)
		for i, spec := range p.ConnectionPolicies {
			r := policyRow{
				Policy: p.SharedName(), Rule: i + 1, CableDriver: cable.Canonical(spec.CableDriver),
				Left: policy.SelectorText(spec.LeftClusterSelector), Right: policy.SelectorText(spec.RightClusterSelector),
				MadeBy: d.maker(p), ClusterSets: append([]string{}, p.ClusterSets()...), State: state, Message: message, Pairs: [][2]string{},
			}
			if spec.CableOptions != nil {
				r.ConfigMap = spec.CableOptions.Metadata.Name
				r.Settings = spec.CableOptions.Data[v1alpha1.CableCustomConfig]
			}
			twin := slices.IndexFunc(rows, func(o policyRow) bool { return o.sameAs(r) })
			if twin >= 0 {
				rows[twin].ClusterSets = unique(append(rows[twin].ClusterSets, r.ClusterSets...))
				continue
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// sameAs says whether two rows tell the same, but for the clusterset.
func (r policyRow) sameAs(o policyRow) bool {
	return r.Policy == o.Policy && r.Rule == o.Rule && r.Left == o.Left && r.Right == o.Right && r.CableDriver == o.CableDriver &&
		r.Settings == o.Settings && r.MadeBy == o.MadeBy && r.State == o.State
}

// state says whether a policy counts, and why not.
func (d *policyDesk) state(p *v1alpha1.CablePolicies) (state, message string) {
	if err := policy.Check(p); err != nil {
		return "mistakes", err.Error()
	}
	if d.maker(p) != d.id || d.onBroker() {
		return stateOK, ""
	}
	shared := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionShared)
	accepted := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case shared == nil:
		return "new", "the gateway has not shared it with the broker yet"
	case shared.Status != metav1.ConditionTrue:
		return shared.Reason, shared.Message
	case accepted != nil && accepted.Status == metav1.ConditionFalse && accepted.ObservedGeneration == p.Generation:
		return accepted.Reason, accepted.Message
	}
	return stateOK, ""
}

func policyColumns() []printer.Column[policyRow] {
	return []printer.Column[policyRow]{
		{Head: "POLICY", Cell: func(r policyRow) string { return r.Policy }},
		{Head: "RULE", Wide: true, Cell: func(r policyRow) string { return strconv.Itoa(r.Rule) }},
		{Head: "LEFT", Cell: func(r policyRow) string { return r.Left }},
		{Head: "RIGHT", Cell: func(r policyRow) string { return r.Right }},
		{Head: "CABLE DRIVER", Cell: func(r policyRow) string { return r.CableDriver }},
		{Head: "SETTINGS", Wide: true, Cell: func(r policyRow) string {
			return strings.Join(slices.Collect(strings.SplitSeq(strings.TrimSpace(r.Settings), "\n")), "; ")
		}},
		{Head: "CONFIG MAP", Wide: true, Cell: func(r policyRow) string { return r.ConfigMap }},
		{Head: "MADE BY", Cell: func(r policyRow) string { return makerName(r.MadeBy) }},
		{Head: "CLUSTERSETS", Wide: true, Cell: func(r policyRow) string { return strings.Join(r.ClusterSets, ", ") }},
		{Head: "STATE", Cell: func(r policyRow) string { return r.State }},
		{Head: "DECIDES", Max: 60, Cell: policyRow.decided},
	}
}

func (r policyRow) decided() string {
	if len(r.Pairs) == 0 {
		return "no pair"
	}
	var names []string
	for _, p := range r.Pairs {
		names = append(names, p[0]+" - "+p[1])
	}
	return fmt.Sprintf("%s: %s", counted(len(r.Pairs), "pair"), strings.Join(names, ", "))
}
