package cmd

import (
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/printer"
	"subctl/internal/progress"
	"subctl/policy"
)

// policyChange is what other policies mean for the pairs of clusters.
type policyChange struct {
	cables []cableChange
	// moved counts the pairs that another policy decides, by the two policies; "" is
	// none.
	moved map[[2]string]int
}

// cableChange is a pair whose cable changes.
type cableChange struct {
	pair      policy.Pair
	now, then string
}

// compare decides on every pair by the policies there are, and by others.
func (d *policyDesk) compare(then []*v1alpha1.CablePolicies) policyChange {
	out := policyChange{moved: map[[2]string]int{}}
	next, stop := d.decisions(then)
	defer stop()
	for pair, was := range policy.Compile(d.policies).Pairs(d.clusters) {
		is := next()
		if was.Policy != is.Policy {
			out.moved[[2]string{was.Policy, is.Policy}]++
		}
		if !was.Same(is) {
			out.cables = append(out.cables, cableChange{pair, d.cell(pair, was), d.cell(pair, is)})
		}
	}
	return out
}

// decisions returns what policies decide on one pair after the other, in the order of
// policy.Book.Pairs.
func (d *policyDesk) decisions(policies []*v1alpha1.CablePolicies) (next func() policy.Decision, stop func()) {
	pull, stop := iter.Pull2(policy.Compile(policies).Pairs(d.clusters))
	return func() policy.Decision {
		_, dec, _ := pull()
		return dec
	}, stop
}

// cell says in a table which cable a pair has, and by which policy.
func (d *policyDesk) cell(pair policy.Pair, dec policy.Decision) string {
	driver, err := d.cable(pair, dec)
	if err != nil {
		return "none: " + err.Error()
	}
	return driver + " (" + decider(dec.Policy) + ")"
}

// decider is how messages call what decides; "" is no policy.
func decider(name string) string {
	if name == "" {
		return "the clusters' own default"
	}
	return name
}

// print prints the pairs that change their cable as a table, and what else there is to
// say about the change.
func (c policyChange) print(w io.Writer, report *progress.Reporter) error {
	for _, k := range slices.SortedFunc(maps.Keys(c.moved), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		report.Done("%s: %s decides instead of %s", counted(c.moved[k], "pair"), decider(k[1]), decider(k[0]))
	}
	if len(c.cables) == 0 {
		report.Done("no pair of clusters changes its cable")
	}
	return printer.Print(w, printer.Table, c.cables, []printer.Column[cableChange]{
		{Head: "CLUSTERS", Cell: func(c cableChange) string { return pairName(c.pair) }},
		{Head: "NOW", Cell: func(c cableChange) string { return c.now }},
		{Head: "THEN", Cell: func(c cableChange) string { return c.then }},
	})
}

func pairName(p policy.Pair) string { return p.X.ID + " - " + p.Y.ID }

// counted is a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// several enumerates the first of many names.
func several(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
