package look

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/printer"
	"subctl/internal/progress"
	"subctl/internal/words"
	"subctl/policy"
	"subctl/policy/catalog"
	"subctl/policy/impact"
)

// PrintChange prints the pairs that change their cable as a table, and reports the other
// changes.
func PrintChange(w io.Writer, report *progress.Reporter, c impact.Change) error {
	for _, m := range c.Moves {
		report.Done("%s", m)
	}
	for _, text := range c.Warnings() {
		report.Warn("%s", text)
	}
	if len(c.Cables) == 0 {
		report.Done("no pair of clusters changes its cable")
	}
	return printer.Print(w, printer.Table, c.Cables, []printer.Column[impact.CableChange]{
		{Head: "CLUSTERS", Cell: func(c impact.CableChange) string { return c.Pair.String() }},
		{Head: "NOW", Max: 80, Cell: func(c impact.CableChange) string { return c.Now.String() }},
		{Head: "THEN", Max: 80, Cell: func(c impact.CableChange) string { return c.Then.String() }},
	})
}

// ReportReview reports what a new policy matches now, and what prevents it from taking effect.
func ReportReview(report *progress.Reporter, r catalog.Review) {
	name := r.Policy.Name
	for i, rule := range r.Policy.ConnectionPolicies {
		for side, selector := range []v1alpha1.ClusterSelector{rule.LeftClusterSelector, rule.RightClusterSelector} {
			report.Done("policy %s, %s: %s selects %s", name, []string{"left", "right"}[side],
				policy.SelectorText(selector), cmp.Or(words.List(r.Selected[i][side]), "no cluster now"))
		}
	}
	if len(r.Matched) == 0 {
		report.Warn("policy %s matches no pair of clusters now", name)
	} else {
		report.Done("policy %s matches %s", name, pairsText(r.Matched))
	}
	reportDisclosure(report, name, r.Disclosure)
	for _, other := range slices.Sorted(maps.Keys(r.Lost)) {
		report.Done("%s still decides, because it takes precedence over %s, on %s", catalog.Decider(other), name,
			pairsText(r.Lost[other]))
	}
	if len(r.SetAside) > 0 {
		report.Warn(
			"policy %s is set aside on %s: it would remove encryption, which only the broker and the two clusters of a pair can do; create the policy on one of them",
			name, pairsText(r.SetAside))
	}
	for _, driver := range slices.Sorted(maps.Keys(r.Lacking)) {
		reportLacking(report, r.Lacking[driver])
	}
	for _, refused := range r.Refused[:min(len(r.Refused), most)] {
		report.Warn("%s will not be connected by %s: %v", refused.Pair, refused.Driver, refused.Err)
	}
	if n := len(r.Refused) - most; n > 0 {
		report.Warn("and %s more will not be connected", words.Count(n, "pair"))
	}
	for _, limited := range r.Limited[:min(len(r.Limited), most)] {
		report.Warn("%s: %v", limited.Pair, limited.Err)
	}
	if n := len(r.Limited) - most; n > 0 {
		report.Warn("and %s more have gateways that will not be connected", words.Count(n, "pair"))
	}
}

// reportDisclosure warns of what a policy tells the members of clustersets about clusters of
// others.
func reportDisclosure(report *progress.Reporter, name string, d catalog.Disclosure) {
	if len(d.To) == 0 {
		return
	}
	remedy := "create a policy for each clusterset, with --clusterset, that names only clusters which are in it"
	switch len(d.Only) {
	case 0:
	case 1:
		remedy = "use --clusterset " + d.Only[0]
	default:
		remedy = "use --clusterset with one of " + words.List(d.Only)
	}
	clusters := "cluster"
	known := "that cluster is not"
	ids := "its ID"
	if len(d.Clusters) > 1 {
		clusters = "clusters"
		known = "not all of these are"
		ids = "their IDs"
	}
	report.Warn(
		"policy %s names %s %s, and the members of clusterset %s, in which %s known, read %s and the settings of the policy: to prevent that, %s",
		name, clusters, words.List(d.Clusters), words.List(d.To), known, ids, remedy)
}

// most is the number of pairs or clusters that messages name one by one.
const most = 10

// reportLacking warns of the clusters that do not offer a driver.
func reportLacking(report *progress.Reporter, lacking map[string]error) {
	ids := slices.Sorted(maps.Keys(lacking))
	for _, id := range ids[:min(len(ids), most)] {
		report.Warn("%v: its pairs that need this driver will not be connected", lacking[id])
	}
	if n := len(ids) - most; n > 0 {
		report.Warn("and %s more do not offer it", words.Count(n, "cluster"))
	}
}

// pairsText returns the number of pairs, and the first of them.
func pairsText(pairs []policy.Pair) string {
	var names []string
	for _, p := range pairs {
		names = append(names, p.String())
	}
	return fmt.Sprintf("%s: %s", words.Count(len(pairs), "pair"), words.List(names))
}
