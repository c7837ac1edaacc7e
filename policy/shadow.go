package policy

import (
	"fmt"
	"slices"
	"strings"

	"subctl/api/submariner/v1alpha1"
)

// Shadow is a rule that never decides: another one has the same selectors, in every
// clusterset that it is for, and counts before it.
type Shadow struct {
	Rule   string // how messages call it
	Policy string // that it is in
	By     string // the other one's policy
}

// Shadows finds the rules that never decide, in the order in which they would count.
// Rules with a mistake neither have a shadow nor cast one.
func Shadows(policies []*v1alpha1.CablePolicies) []Shadow {
	var out []Shadow
	before := map[string][]*rule{} // by what they select
	for _, r := range Compile(policies).rules {
		if r.mistake != nil {
			continue
		}
		what := r.selects()
		for _, other := range before[what] {
			covered := !slices.ContainsFunc(r.sets, func(s string) bool { return !slices.Contains(other.sets, s) })
			if s := (Shadow{r.name(), r.policy, other.policy}); covered {
				if !slices.Contains(out, s) { // of the copy in another clusterset
					out = append(out, s)
				}
				break
			}
		}
		before[what] = append(before[what], r)
	}
	return out
}

// selects is which pairs the rule selects, the same for all rules that have the same
// requirements, in either order.
func (r *rule) selects() string {
	ends := []string{selected(r.left), selected(r.right)}
	slices.Sort(ends)
	return strings.Join(ends, "\n")
}

func selected(requirements []requirement) string {
	var texts []string
	for _, q := range requirements {
		texts = append(texts, fmt.Sprintf("%q %v %q", q.key, q.not, q.values))
	}
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ",")
}
