package exchange

import (
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// This file is about clustersets that are not known now: they have not been read yet. A copy lists
// the clustersets in which its object was found last, and marks those that were not known when it
// was made.

// lastSets returns the clustersets in which the object of a copy was found last.
func lastSets(o client.Object) []string {
	sets := o.GetAnnotations()[submarinerv1.ClusterSetsAnnotation]
	if sets == "" {
		return nil
	}
	return strings.Split(sets, ",")
}

// unknown returns the clustersets in which the object of a copy was found last, and which
// are not known now.
func (p *namedPlan) unknown(o client.Object) []string {
	last := lastSets(o)
	var out []string
	for _, set := range p.notKnown {
		if slices.Contains(last, set) {
			out = append(out, set)
		}
	}
	return out
}

// unread returns the marks of the clustersets that may have the object of a copy, too: those that
// are not known now and, if there is a copy already, were not when it was made.
func (p *namedPlan) unread(have client.Object, sets []string) (marks []string) {
	var last []string
	if have != nil {
		last = lastSets(have)
	}
	for _, set := range p.notKnown {
		mark := set + submarinerv1.UnreadMark
		if !slices.Contains(sets, set) && (have == nil || slices.Contains(last, mark)) {
			marks = append(marks, mark)
		}
	}
	return marks
}

// mayExist reports whether an object that was not found may be in a clusterset that is
// not known. A copy that does not state its clustersets may be in any of them; and so may
// a copy from a clusterset that this cluster has left, as the others may not have been
// looked at when it was made.
func (p *namedPlan) mayExist(o client.Object) bool {
	last := lastSets(o)
	if len(last) == 0 || slices.ContainsFunc(last, func(set string) bool { return !p.isIn(set) }) {
		return !p.allKnown()
	}
	return len(p.unknown(o)) > 0
}
