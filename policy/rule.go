package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
)

// rule is one entry of a policy, understood as far as it goes.
type rule struct {
	policy string
	index  int // in its policy, counted from 0
	of     int // how many rules the policy has
	spec   *v1alpha1.CablePolicySpec
	// sets are the clustersets in which it counts.
	sets        []string
	left, right []requirement
	// requirements is how many both selectors have, those with mistakes too.
	requirements int
	// mistake says what is wrong with the selectors; nil if nothing. left and right are
	// the requirements that can be understood.
	mistake error

	driver    string // canonical name
	driverErr error  // it is unknown
	config    cable.Config
	configErr error
}

// readRule understands one of a policy's rules, and returns all that is wrong with it.
func readRule(p *v1alpha1.CablePolicies, rules []v1alpha1.CablePolicySpec, i int, known []cable.Driver) (*rule, []error) {
	spec := &rules[i]
	r := &rule{
		policy: p.SharedName(), index: i, of: len(rules), spec: spec, sets: p.ClusterSets(),
		driver: cable.Canonical(spec.CableDriver),
	}
	var left, right []error
	r.left, left = readSelector(spec.LeftClusterSelector, fmt.Sprintf("spec[%d].leftClusterSelector", i))
	r.right, right = readSelector(spec.RightClusterSelector, fmt.Sprintf("spec[%d].rightClusterSelector", i))
	r.requirements = requirements(spec.LeftClusterSelector) + requirements(spec.RightClusterSelector)
	mistakes := append(left, right...)
	r.mistake = errors.Join(mistakes...)

	driver, err := cable.FindDriver(spec.CableDriver, known)
	if err != nil {
		r.driverErr = err
		return r, append(mistakes, fmt.Errorf("spec[%d].name: %w", i, r.driverErr))
	}
	if spec.CableOptions == nil {
		return r, mistakes
	}
	settings, err := cable.ConfigText(spec.CableOptions.Data)
	if err == nil {
		r.config, err = cable.ParsePolicyConfig(settings, driver, known)
	}
	if err != nil {
		r.config, r.configErr = nil, err
		mistakes = append(mistakes, fmt.Errorf("spec[%d].options.data: %w", i, err))
	}
	return r, mistakes
}

// compare orders rules as they count. Clustersets may have different policies of one
// name: what these say decides then, which is the same wherever it is read.
func (r *rule) compare(other *rule) int {
	order := cmp.Or(
		cmp.Compare(r.last(), other.last()),
		cmp.Compare(other.requirements, r.requirements),
		cmp.Compare(r.policy, other.policy),
		cmp.Compare(r.index, other.index))
	if order == 0 {
		return cmp.Compare(r.content(), other.content())
	}
	return order
}

// content is what the rule says, in one form only.
func (r *rule) content() string {
	b, _ := json.Marshal(r.spec) // strings, lists and maps cannot fail to encode
	return string(b)
}

// last is 1 for rules that count only where no other matches.
func (r *rule) last() int {
	if r.policy == v1alpha1.DefaultCablePolicy {
		return 1
	}
	return 0
}

// counts says whether the rule is about clusters of these sets at once.
func (r *rule) counts(x, y []string) bool {
	return len(r.sets) < 2 || slices.ContainsFunc(r.sets, func(s string) bool { return slices.Contains(x, s) && slices.Contains(y, s) })
}

// decision is what the rule says of the pairs it matches.
func (r *rule) decision() Decision {
	if r.driverErr != nil {
		return Decision{Policy: r.policy, Rule: r.index, Err: fmt.Errorf("%s: %w", r.name(), r.driverErr)}
	}
	return Decision{Driver: r.driver, Policy: r.policy, Rule: r.index, Config: r.config, ConfigErr: r.configErr}
}

// name is how messages call the rule.
func (r *rule) name() string {
	if r.of == 1 {
		return "cable policy " + r.policy
	}
	return fmt.Sprintf("rule %d of cable policy %s", r.index+1, r.policy)
}
