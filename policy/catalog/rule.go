package catalog

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/policy"
)

// StateOK is the state of a policy that is in force as written.
const StateOK = "ok"

// StateIgnored is the state of a policy of a cluster where only policies of the broker apply.
const StateIgnored = "ignored"

// StateRefused is the state of a policy on a broker that members refuse, because it has no valid
// signature of its maker.
const StateRefused = "refused"

// Rule is a rule of a policy. Its JSON is the output of subctl cable-policy list, and stays
// compatible.
type Rule struct {
	Policy      string      `json:"policy"`
	Rule        int         `json:"rule"` // counted from 1
	Left        string      `json:"leftClusterSelector"`
	Right       string      `json:"rightClusterSelector"`
	CableDriver string      `json:"cableDriver"`
	ConfigMap   string      `json:"configMap"`
	Settings    string      `json:"settings"`   // YAML
	Encryption  string      `json:"encryption"` // "required", or empty
	MadeBy      string      `json:"madeBy"`     // cluster ID, or BROKER
	ClusterSets []string    `json:"clusterSets"`
	State       string      `json:"state"` // StateOK, or the kind of problem
	Message     string      `json:"message"`
	Pairs       [][2]string `json:"pairs"` // the pairs that it decides, by cluster IDs
	// SetAside are the pairs for which it is set aside: see policy.Decision.SetAside.
	SetAside [][2]string `json:"setAside"`
	// Different are the reports of gateways of this cluster that differ from the decision of
	// the rule.
	Different []Use `json:"different"`
	// NotObserved are the pairs, of Pairs, of which no gateway of this cluster reports anything.
	NotObserved [][2]string `json:"notObserved"`
}

// Listing describes the policies and their effect.
type Listing struct {
	// Rules are the rules in force, or the rules as written if the policy has none in force.
	// The same rule in several clustersets is listed once.
	Rules []Rule
	// Undecided is the number of pairs that use the clusters' default driver, without a policy.
	Undecided int
	// NotObserved are the pairs of which no gateway of this cluster reports anything.
	NotObserved [][2]string
	// Troubles are descriptions of all problems.
	Troubles []string
}

// List returns all rules, and the pairs that each decides.
func (c *Catalog) List() Listing {
	l := Listing{Rules: c.rules()}
	at := map[policy.RuleRef][]int{} // clustersets may have different policies of the same name and maker
	for i, r := range l.Rules {
		k := policy.RuleRef{Policy: r.Policy, Maker: r.MadeBy, Rule: r.Rule - 1}
		at[k] = append(at[k], i)
		if r.State != StateOK && r.Rule == 1 {
			l.Troubles = append(l.Troubles, fmt.Sprintf("policy %s: %s", r.Policy, r.Message))
		}
	}
	for pair, dec := range c.Book().Pairs(c.Clusters) {
		var different []Use
		driver, err := c.Cable(pair, dec)
		if err != nil {
			l.Troubles = append(l.Troubles, pair.String()+": "+err.Error())
		}
		uses := c.UsesOf(pair.X.ID, pair.Y.ID)
		for _, u := range uses {
			if u.differs(driver, dec) {
				l.Troubles = append(l.Troubles, u.String())
				different = append(different, u)
			}
		}
		if dec.Policy == "" && dec.Err == nil {
			l.Undecided++
		}
		find := func(ref policy.RuleRef) *Rule {
			for _, i := range at[ref] {
				if l.Rules[i].isFor(pair) {
					return &l.Rules[i]
				}
			}
			return &Rule{} // none is listed
		}
		ids := [2]string{pair.X.ID, pair.Y.ID}
		r := find(policy.RuleRef{Policy: dec.Policy, Maker: dec.Maker, Rule: dec.Rule})
		r.Pairs, r.Different = append(r.Pairs, ids), append(r.Different, different...)
		if len(uses) == 0 {
			r.NotObserved = append(r.NotObserved, ids)
			l.NotObserved = append(l.NotObserved, ids)
		}
		for _, ref := range dec.SetAside {
			r := find(ref)
			r.SetAside = append(r.SetAside, ids)
		}
	}
	return l
}

// isFor reports whether the rule is of a clusterset that contains both clusters.
func (r Rule) isFor(pair policy.Pair) bool {
	shared := func(s string) bool { return slices.Contains(pair.X.Sets, s) && slices.Contains(pair.Y.Sets, s) }
	return slices.ContainsFunc(r.ClusterSets, shared)
}

func (c *Catalog) rules() []Rule {
	rules := []Rule{}
	for _, p := range c.Policies {
		state, message := c.state(p)
		written := p.ConnectionPolicies
		if len(p.ClusterSets()) > 0 {
			written = p.InForce()
		}
		for i, spec := range written {
			r := Rule{
				Policy:      p.SharedName(),
				Rule:        i + 1,
				CableDriver: cable.Canonical(spec.CableDriver),
				Left:        policy.SelectorText(spec.LeftClusterSelector),
				Right:       policy.SelectorText(spec.RightClusterSelector),
				MadeBy:      c.Maker(p),
				ClusterSets: append([]string{}, p.ClusterSets()...),
				State:       state,
				Message:     message,
				Pairs:       [][2]string{},
				SetAside:    [][2]string{},
				Different:   []Use{},
				NotObserved: [][2]string{},
			}
			if spec.CableOptions != nil {
				r.ConfigMap = spec.CableOptions.Metadata.Name
				r.Settings = spec.CableOptions.Data[v1alpha1.CableCustomConfig]
				r.Encryption = string(spec.CableOptions.Encryption)
			}
			twin := slices.IndexFunc(rules, func(o Rule) bool { return o.sameAs(r) })
			if twin >= 0 {
				sets := slices.Sorted(slices.Values(append(rules[twin].ClusterSets, r.ClusterSets...)))
				rules[twin].ClusterSets = slices.Compact(sets)
				continue
			}
			rules = append(rules, r)
		}
	}
	return rules
}

// sameAs reports whether two rules are the same, except for the clusterset.
func (r Rule) sameAs(o Rule) bool {
	return r.Policy == o.Policy && r.Rule == o.Rule && r.Left == o.Left && r.Right == o.Right &&
		r.CableDriver == o.CableDriver &&
		r.Settings == o.Settings && r.Encryption == o.Encryption &&
		r.MadeBy == o.MadeBy &&
		r.State == o.State
}

// state returns StateOK if a policy is in force as written, or else the kind of problem and a
// message.
func (c *Catalog) state(p *v1alpha1.CablePolicies) (state, message string) {
	own := c.Maker(p) == c.Keeper && !c.OnBroker()
	if c.BrokerOnly && c.Maker(p) != submarinerv1.BrokerID {
		return StateIgnored, "it is of a cluster, and only policies of the broker apply (deploy-broker --policies-from broker): create it on the broker, or let the broker adopt it (subctl cable-policy adopt), then delete it here"
	}
	if why := c.Refused(p); why != "" {
		return StateRefused, "the clusters refuse it: " + why
	}
	if err := policy.Check(p); err != nil {
		if own && len(p.ClusterSets()) > 0 {
			err = fmt.Errorf("the version shared before stays in force: %w", err)
		}
		return "mistakes", err.Error()
	}
	if !own {
		return StateOK, ""
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
	return StateOK, ""
}
