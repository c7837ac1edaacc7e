package policy

import (
	"fmt"
	"slices"
	"strings"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// Shadow is a rule that never decides, because in each of its clustersets another rule
// with the same selectors takes precedence.
type Shadow struct {
	Rule   string // name of the rule in messages
	Policy string // its policy
	By     string // the policy of the other rule
}

// Shadows returns the rules that never decide, in order of precedence. It ignores invalid
// rules.
func Shadows(policies []*v1alpha1.CablePolicies, makers Makers) []Shadow {
	var out []Shadow
	before := map[string][]*rule{} // by the pairs that they select
	for _, r := range Compile(policies, makers).rules {
		if r.mistake != nil {
			continue
		}
		pairs := r.selects()
		for _, other := range before[pairs] {
			covered := other.alwaysBeats(r) &&
				!slices.ContainsFunc(r.sets, func(s string) bool { return !slices.Contains(other.sets, s) })
			if s := (Shadow{r.name(), r.policy, other.policy}); covered {
				if !slices.Contains(out, s) { // it may come from a copy in another clusterset
					out = append(out, s)
				}
				break
			}
		}
		before[pairs] = append(before[pairs], r)
	}
	return out
}

// alwaysBeats reports whether a rule never decides a pair that r, which takes precedence over it,
// matches too. A rule of a third party may be set aside.
func (r *rule) alwaysBeats(other *rule) bool {
	return r.maker == submarinerv1.BrokerID || r.maker == other.maker || r.level(nil) == Encrypted ||
		other.level(nil) == Plain
}

// selects returns a canonical form of the rule's selectors, the same for all rules with the
// same requirements, in either order.
func (r *rule) selects() string {
	ends := []string{requirementsKey(r.left), requirementsKey(r.right)}
	slices.Sort(ends)
	return strings.Join(ends, "\n")
}

func requirementsKey(requirements []requirement) string {
	var texts []string
	for _, q := range requirements {
		texts = append(texts, fmt.Sprintf("%q %v %q", q.key, q.not, q.values))
	}
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ",")
}
