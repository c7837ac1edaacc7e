package policy

import (
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// Makers specifies who made policies, and whose policies apply.
type Makers struct {
	// Here is the ID of the cluster that holds the policies, or submarinerv1.BrokerID. It made
	// the policies that have no label of a cluster.
	Here string
	// BrokerOnly excludes policies that the broker did not make.
	BrokerOnly bool
}

// MakersFor returns the Makers of the policies in a cluster that is joined as spec specifies.
func MakersFor(spec v1alpha1.SubmarinerSpec) Makers {
	return Makers{Here: spec.ClusterID, BrokerOnly: spec.PoliciesFrom.BrokerOnly()}
}

// RuleRef refers to a rule of a policy.
type RuleRef struct {
	Policy, Maker string // the name of the policy, and Decision.Maker
	Rule          int    // its index in the policy, counted from 0
}

func (r *rule) ref() RuleRef { return RuleRef{r.policy, r.maker, r.index} }

// isParty reports whether the broker or one of the two clusters made the rule. A rule of an
// unknown maker is one of a third party.
func (r *rule) isParty(x, y matches) bool {
	return r.maker == submarinerv1.BrokerID || r.maker != "" && (r.maker == x.ID || r.maker == y.ID)
}

// Decide returns the decision for two clusters, in either order.
func (b *Book) Decide(x, y Cluster) Decision { return b.decide(b.match(x), b.match(y)) }

func (b *Book) decide(x, y matches) Decision {
	by := b.mustEncrypt(x, y)
	if !common(x.Sets, y.Sets) {
		return Decision{Err: nothingShared{ordered(x.ID, "", y.ID, "")}, MustEncrypt: by}
	}
	d, r := b.choose(x, y)
	return d.encrypted(by, r)
}

// choose returns the decision without regard to required encryption, and the rule that decides;
// nil if that is the clusters' default drivers.
//
// The first rule of the broker and of the two clusters, or else the default drivers, makes the
// decision of the parties. The rules before it are of third parties. Each third party has one
// choice, its first rule. Of these choices and the decision of the parties, the one with the
// highest Secrecy is taken, and of several the first.
func (b *Book) choose(x, y matches) (best Decision, by *rule) {
	var level Secrecy
	var third []*rule // the choices of third parties
	var invalid *rule // the first invalid rule that may match the pair and does not allow a plain cable
	for r := range b.matching(x, y) {
		isParty := r.isParty(x, y)
		switch {
		case r.mistake != nil:
			if invalid == nil && r.secrecy != Plain {
				invalid = r
			}
			continue
		case !isParty && slices.ContainsFunc(third, func(t *rule) bool { return t.maker == r.maker }):
			continue
		}
		if l := r.level(invalid); by == nil || l > level {
			best = r.decision().unless(invalid)
			by = r
			level = l
			best.SetAside = refs(third)
		}
		if isParty || level == Encrypted {
			return best, by
		}
		third = append(third, r)
	}
	d := undecided(x.Cluster, y.Cluster).unless(invalid)
	if by == nil || d.Secrecy() > level {
		d.SetAside = refs(third)
		return d, nil
	}
	return best, by
}

// level returns the Secrecy of the rule's decision, after an invalid rule, which may be nil.
func (r *rule) level(invalid *rule) Secrecy {
	if r.configErr != nil || r.secrecy == Plain && invalid != nil {
		return Closed
	}
	return r.secrecy
}

func refs(rules []*rule) []RuleRef {
	var out []RuleRef
	for _, r := range rules {
		out = append(out, r.ref())
	}
	return out
}

// mustEncrypt returns Decision.MustEncrypt of two clusters, in either order.
func (b *Book) mustEncrypt(x, y matches) string {
	switch {
	case x.MustEncrypt && (!y.MustEncrypt || x.ID < y.ID):
		return "cluster " + x.ID
	case y.MustEncrypt:
		return "cluster " + y.ID
	case b.secure == nil:
		return ""
	}
	for r := range b.matching(x.among(b.secure), y) {
		return r.name()
	}
	return ""
}

// among returns the matches that are in a set of rules.
func (m matches) among(rules bitset) matches {
	both := func(a bitset) bitset {
		out := slices.Clone(a)
		for w := range out {
			out[w] &= rules[w]
		}
		return out
	}
	return matches{m.Cluster, both(m.left), both(m.right)}
}

// unless returns d, or a Decision without a cable if d is an unencrypted cable and the
// invalid rule, which may be nil, requires an encrypted one.
func (d Decision) unless(invalid *rule) Decision {
	if invalid == nil || d.Err != nil || SecrecyOf(d.Driver) != Plain {
		return d
	}
	return Decision{Policy: invalid.policy, Rule: invalid.index, Maker: invalid.maker, Err: withheld{invalid, d.Driver}}
}

// encrypted returns d, or a Decision without a cable if d has an unencrypted cable although by,
// which may be empty, requires encryption. decider is the rule that decided; nil if none did.
func (d Decision) encrypted(by string, decider *rule) Decision {
	d.MustEncrypt = by
	if by == "" || d.Err != nil || SecrecyOf(d.Driver) != Plain {
		return d
	}
	return Decision{
		Policy:      d.Policy,
		Rule:        d.Rule,
		Maker:       d.Maker,
		Err:         clearText{by, decider, d.Driver},
		MustEncrypt: by,
		SetAside:    d.SetAside,
	}
}
