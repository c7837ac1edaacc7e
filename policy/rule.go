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

// rule is a parsed rule of a policy. An invalid rule is parsed as far as possible.
type rule struct {
	policy string
	maker  string // the cluster that made the policy, or submarinerv1.BrokerID; empty: unknown
	index  int    // in its policy, counted from 0
	of     int    // the number of rules of the policy
	spec   *v1alpha1.CablePolicySpec
	// sets are the clustersets in which the rule applies.
	sets        []string
	left, right []requirement
	// requirements is the number of requirements of both selectors, including invalid ones.
	requirements int
	// mistake is the error in the selectors, if any. left and right contain only the valid
	// requirements.
	mistake error

	driver    string // canonical name
	secrecy   Secrecy
	driverErr error // if the driver is unknown
	config    cable.Config
	configErr error
}

// readRule parses rule i of a policy, and returns all its mistakes.
func readRule(
	p *v1alpha1.CablePolicies,
	rules []v1alpha1.CablePolicySpec,
	i int,
	known []cable.Driver,
) (*rule, []error) {
	spec := &rules[i]
	r := &rule{
		policy: p.SharedName(), index: i, of: len(rules), spec: spec, sets: p.ClusterSets(),
		driver: cable.Canonical(spec.CableDriver), secrecy: Closed,
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
	if r.secrecy = Plain; driver.Properties().Encrypts {
		r.secrecy = Encrypted
	}
	if spec.RequiresEncryption() && r.secrecy == Plain {
		mistakes = append(
			mistakes,
			fmt.Errorf(
				"spec[%d].options.encryption: encryption is required, but %s does not encrypt: choose another driver",
				i, r.driver),
		)
	}
	if spec.CableOptions == nil {
		return r, mistakes
	}
	if source := spec.CableOptions.Metadata.Name; source != "" && len(spec.CableOptions.Data) == 0 {
		// Not a mistake: the policy is shared, so that no pair that it matches gets another cable.
		r.configErr = fmt.Errorf("the settings of ConfigMap %s have not been copied into the policy yet", quote(source))
		return r, mistakes
	}
	settings, err := cable.ConfigText(spec.CableOptions.Data)
	if err == nil {
		r.config, err = cable.ParsePolicyConfig(settings, driver, known)
	}
	if err != nil {
		r.config = nil
		r.configErr = err
		mistakes = append(mistakes, fmt.Errorf("spec[%d].options.data: %w", i, err))
	}
	return r, mistakes
}

// compare orders rules by precedence. Clustersets may have different policies of the same
// name: these are ordered by content and maker, which are the same in every cluster.
func (r *rule) compare(other *rule) int {
	order := cmp.Or(
		cmp.Compare(r.last(), other.last()),
		cmp.Compare(other.requirements, r.requirements),
		cmp.Compare(r.policy, other.policy),
		cmp.Compare(r.index, other.index))
	if order == 0 {
		return cmp.Or(cmp.Compare(r.content(), other.content()), cmp.Compare(r.maker, other.maker))
	}
	return order
}

// content returns the rule in a canonical encoding.
func (r *rule) content() string {
	b, _ := json.Marshal(r.spec) // strings, lists and maps cannot fail to encode
	return string(b)
}

// last returns 1 for rules of the policy "default", and 0 for others.
func (r *rule) last() int {
	if r.policy == v1alpha1.DefaultCablePolicy {
		return 1
	}
	return 0
}

// counts reports whether the rule applies to a pair of clusters with the clustersets x and y.
func (r *rule) counts(x, y []string) bool {
	return len(r.sets) < 2 ||
		slices.ContainsFunc(r.sets, func(s string) bool { return slices.Contains(x, s) && slices.Contains(y, s) })
}

// decision returns the decision for pairs that the rule matches.
func (r *rule) decision() Decision {
	if r.driverErr != nil {
		return Decision{Policy: r.policy, Rule: r.index, Maker: r.maker, Err: unknownDriver{r}}
	}
	return Decision{
		Driver:    r.driver,
		Policy:    r.policy,
		Rule:      r.index,
		Maker:     r.maker,
		Config:    r.config,
		ConfigErr: r.configErr,
	}
}

// name returns the name of the rule in messages.
func (r *rule) name() string {
	if r.of == 1 {
		return "cable policy " + r.policy
	}
	return fmt.Sprintf("rule %d of cable policy %s", r.index+1, r.policy)
}
