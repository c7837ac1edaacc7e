package policy

import (
	"errors"
	"fmt"

	"subctl/api/submariner/v1alpha1"
)

// Explanation is a Decision and how it came about.
type Explanation struct {
	Decision
	// Why says why the policy of the Decision decides, or what does where none does.
	Why string
	// Beaten are the other rules that match the pair, in the order in which they would
	// have counted.
	Beaten []Beaten
}

// Beaten is a rule that matches a pair and does not decide.
type Beaten struct {
	Policy string
	Rule   int    // its number in the policy, counted from 0
	Driver string // what it asks for, as canonical name
	Why    string
}

// Explain decides on two clusters, in either order, and says why so.
func (b *Book) Explain(x, y Cluster) Explanation {
	e := Explanation{Decision: b.Decide(x, y)}
	if !common(x.Sets, y.Sets) {
		e.Why = "policies are for clusters of one clusterset"
		return e
	}
	var winner *rule
	var others []*rule
	for r := range b.matching(b.match(x), b.match(y)) {
		if winner == nil && r.mistake == nil {
			winner = r
			continue
		}
		others = append(others, r)
	}
	isHeld := errors.As(e.Err, new(held))
	if winner != nil && isHeld {
		e.Beaten = append(e.Beaten, beaten(winner, "its cable is not encrypted, which "+e.Policy+" asks for"))
	}
	for _, r := range others {
		if !isHeld || r.policy != e.Policy || r.index != e.Rule {
			e.Beaten = append(e.Beaten, beaten(r, r.lostTo(winner)))
		}
	}
	e.Why = winner.why(isHeld, others)
	return e
}

func beaten(r *rule, why string) Beaten { return Beaten{r.policy, r.index, r.driver, why} }

// why says why the rule decides, where others match too; nil is none.
func (r *rule) why(isHeld bool, others []*rule) string {
	usable, level := 0, 0
	for _, o := range others {
		if o.mistake == nil {
			usable++
		}
		if r != nil && o.mistake == nil && o.last() == r.last() && o.requirements == r.requirements {
			level++
		}
	}
	switch {
	case isHeld:
		return "it asks for encryption, and nobody knows whether it means this pair"
	case r == nil:
		return "no policy matches, so the clusters' own default counts"
	case level > 0:
		return fmt.Sprintf("no other that matches has more requirements than its %d, and of those with as many it comes first", r.requirements)
	case usable > 0:
		return fmt.Sprintf("it has the most requirements, %d", r.requirements)
	case r.last() == 1:
		return "no other policy matches"
	}
	return "it is the only one that matches"
}

// lostTo says why the rule does not decide, but another does; nil is none.
func (r *rule) lostTo(winner *rule) string {
	switch {
	case r.mistake != nil:
		return fmt.Sprintf("it has a mistake: %v", r.mistake)
	case r.last() > winner.last():
		return fmt.Sprintf("%s counts only where no other matches", v1alpha1.DefaultCablePolicy)
	case r.requirements < winner.requirements:
		return fmt.Sprintf("it has %s, %s has %d", count(r.requirements, "requirement"), winner.policy, winner.requirements)
	case r.policy != winner.policy:
		return "it has as many requirements, and its name comes later"
	case r.index != winner.index:
		return "it has as many requirements, and comes later in the policy"
	}
	return "a policy of the same name in another clusterset says something else"
}

// count is a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
