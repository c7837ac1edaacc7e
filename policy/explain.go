package policy

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"subctl/api/submariner/v1alpha1"
)

// Explanation is a Decision with its reasons.
type Explanation struct {
	Decision
	// ClusterSets are the clustersets of the pair from which the policy that decides comes, sorted.
	ClusterSets []string
	// Why is the reason why the policy decides, or why the default driver is used.
	Why string
	// Beaten are the other rules that match the pair, in order of precedence.
	Beaten []Beaten
}

// Beaten is a rule that matches a pair but does not decide.
type Beaten struct {
	Policy string
	Rule   int    // its index in the policy, counted from 0
	Driver string // its driver, by canonical name
	Why    string
	// ClusterSets are the clustersets of the pair from which it comes, sorted.
	ClusterSets []string
}

// Explain returns the decision for two clusters, in either order, with its reasons.
func (b *Book) Explain(x, y Cluster) Explanation {
	mx := b.match(x)
	my := b.match(y)
	e := Explanation{Decision: b.decide(mx, my)}
	if !common(x.Sets, y.Sets) {
		e.Why = "policies apply only to clusters that share a clusterset"
		return e
	}
	e.ClusterSets = b.setsOf(e.Decision, mx, my)
	_, winner := b.choose(mx, my)
	var others, before []*rule // the other rules; the valid rules that are set aside
	ahead := true
	for r := range b.matching(mx, my) {
		if r == winner {
			ahead = false
			continue
		}
		if others = append(others, r); ahead && r.mistake == nil {
			before = append(before, r)
		}
	}
	isWithheld := errors.As(e.Err, new(withheld))
	if winner != nil && isWithheld {
		e.Beaten = append(e.Beaten,
			beaten(winner, mx, my, "its cable is not encrypted, and "+e.Policy+" requires encryption"))
	}
	for _, r := range others {
		if isWithheld && r.policy == e.Policy && r.index == e.Rule {
			continue
		}
		why := ""
		if i := slices.IndexFunc(before, func(s *rule) bool { return s.maker == r.maker }); i < 0 {
			why = r.lostTo(winner)
		} else if before[i] == r {
			why = r.setAside(e.Decision)
		} else {
			why = r.lostTo(before[i])
		}
		e.Beaten = append(e.Beaten, beaten(r, mx, my, why))
	}
	counted := slices.DeleteFunc(others, func(r *rule) bool { return slices.Contains(before, r) })
	switch e.Why = winner.why(isWithheld, counted); len(e.SetAside) {
	case 0:
	case 1:
		e.Why = "apart from 1 rule that is set aside, " + e.Why
	default:
		e.Why = fmt.Sprintf("apart from %d rules that are set aside, %s", len(e.SetAside), e.Why)
	}
	return e
}

// setsOf returns the clustersets of a pair that have the rule that decides for it, sorted.
func (b *Book) setsOf(d Decision, x, y matches) []string {
	var out []string
	var first *rule // another clusterset may have a different rule of the same name
	for r := range b.matching(x, y) {
		if r.ref() != (RuleRef{d.Policy, d.Maker, d.Rule}) ||
			first != nil && !equality.Semantic.DeepEqual(first.spec, r.spec) {
			continue
		}
		out = append(out, r.setsFor(x, y)...)
		if first == nil {
			first = r
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// setAside returns the reason why a rule of a third party does not decide, although it takes
// precedence.
func (r *rule) setAside(d Decision) string {
	maker := "another cluster"
	weaker := "a cable without encryption"
	if r.maker != "" {
		maker = "cluster " + r.maker
	}
	if d.Secrecy() == Encrypted {
		weaker = "a weaker cable than " + d.Driver
	}
	return fmt.Sprintf("it is set aside: %s made it, and only the broker and the two clusters can choose %s", maker,
		weaker)
}

func beaten(r *rule, x, y matches, why string) Beaten {
	return Beaten{r.policy, r.index, r.driver, why, r.setsFor(x, y)}
}

// setsFor returns the clustersets of a pair from which a rule comes, sorted.
func (r *rule) setsFor(x, y matches) []string {
	var out []string
	for _, set := range r.sets {
		if slices.Contains(x.Sets, set) && slices.Contains(y.Sets, set) {
			out = append(out, set)
		}
	}
	slices.Sort(out)
	return out
}

// why returns the reason why r decides although others match too. r is nil if no rule
// decides.
func (r *rule) why(isWithheld bool, others []*rule) string {
	usable := 0
	level := 0
	for _, o := range others {
		if o.mistake == nil {
			usable++
		}
		if r != nil && o.mistake == nil && o.last() == r.last() && o.requirements == r.requirements {
			level++
		}
	}
	switch {
	case isWithheld:
		return "it requires encryption, and may match this pair"
	case r == nil:
		return "no policy matches, so the clusters' default driver is used"
	case level > 0:
		return fmt.Sprintf("of the matching policies with the most requirements, %d, it comes first", r.requirements)
	case usable > 0:
		return fmt.Sprintf("it has the most requirements, %d", r.requirements)
	case r.last() == 1:
		return "no other policy matches"
	}
	return "it is the only one that matches"
}

// lostTo returns the reason why winner, which may be nil, decides and not r.
func (r *rule) lostTo(winner *rule) string {
	switch {
	case r.mistake != nil:
		return fmt.Sprintf("it is invalid: %v", r.mistake)
	case r.last() > winner.last():
		return fmt.Sprintf("%s applies only where no other policy matches", v1alpha1.DefaultCablePolicy)
	case r.requirements < winner.requirements:
		return fmt.Sprintf("it has %s, %s has %d", count(r.requirements, "requirement"), winner.policy,
			winner.requirements)
	case r.policy != winner.policy:
		return "it has the same number of requirements, and its name comes later"
	case r.maker != winner.maker:
		return "a policy of the same name, which another cluster or the broker has made, takes precedence"
	case r.index != winner.index:
		return "it has the same number of requirements, and comes later in the policy"
	}
	return "a different policy of the same name, in another clusterset, takes precedence"
}

// count formats a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
