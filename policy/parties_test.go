package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
)

// by returns a copy of a policy that a cluster made.
func by(maker string, p *v1alpha1.CablePolicies) *v1alpha1.CablePolicies {
	p.Labels = map[string]string{submarinerv1.ClusterIDLabel: maker, submarinerv1.ClusterSetLabel: "default"}
	p.Status = v1alpha1.CablePoliciesStatus{}
	return p
}

// partyCase is a set of policies, and what they result in for east and west. aside are the rules of
// third parties that have no effect.
type partyCase struct {
	name     string
	policies []*v1alpha1.CablePolicies
	change   func(x, y *Cluster)
	driver   string
	policy   string
	aside    []string
}

func partyCases() []partyCase {
	const vxlan, wireguard, ipsec = cable.VXLAN, cable.WireGuard, cable.IPsec
	all := func(driver string) v1alpha1.CablePolicySpec { return between("", "", driver) }
	one := func(driver string) v1alpha1.CablePolicySpec { return between("env", "", driver) }
	two := func(driver string) v1alpha1.CablePolicySpec { return between("env", "tier", driver) }
	ipsecDefault := made("default", all(ipsec))
	vxlanDefault := made("default", all(vxlan))
	badSettings := func(r v1alpha1.CablePolicySpec) v1alpha1.CablePolicySpec {
		r.CableOptions = &v1alpha1.CableOptions{Data: map[string]string{v1alpha1.CableCustomConfig: "mtu: x"}}
		return r
	}
	defaults := func(x, y string) func(a, b *Cluster) {
		return func(a, b *Cluster) {
			a.Driver = x
			b.Driver = y
		}
	}
	return []partyCase{
		{
			"the broker may remove encryption",
			[]*v1alpha1.CablePolicies{ipsecDefault, made("a", one(vxlan))},
			nil,
			vxlan,
			"a",
			nil,
		},
		{
			"either cluster may",
			[]*v1alpha1.CablePolicies{ipsecDefault, by("west", made("a", one(vxlan)))},
			nil,
			vxlan,
			"a",
			nil,
		},
		{
			"another cluster may not",
			[]*v1alpha1.CablePolicies{ipsecDefault, by("north", made("a", one(vxlan)))},
			nil,
			ipsec,
			"default",
			[]string{"a/0"},
		},
		{
			"nor an unknown one",
			[]*v1alpha1.CablePolicies{ipsecDefault, by("", made("a", one(vxlan)))},
			nil,
			ipsec,
			"default",
			[]string{"a/0"},
		},
		{
			"nor instead of a policy of one of the two",
			[]*v1alpha1.CablePolicies{
				vxlanDefault,
				by("east", made("b", one(wireguard))),
				by("north", made("a", two(vxlan))),
			},
			nil,
			wireguard,
			"b",
			[]string{"a/0"},
		},
		{
			"nor instead of the clusters' defaults",
			[]*v1alpha1.CablePolicies{by("north", made("default", all(vxlan)))},
			defaults(ipsec, ipsec),
			ipsec,
			"",
			[]string{"default/0"},
		},
		{
			"nor where the clusters' defaults differ",
			[]*v1alpha1.CablePolicies{by("north", made("a", all(vxlan)))},
			defaults(ipsec, vxlan),
			"",
			"",
			[]string{"a/0"},
		},
		{
			"nor where a default driver is unknown",
			[]*v1alpha1.CablePolicies{by("north", made("a", all(vxlan)))},
			defaults("gre", "gre"),
			"gre",
			"",
			[]string{"a/0"},
		},
		{
			"nor what another cluster has added",
			[]*v1alpha1.CablePolicies{
				vxlanDefault,
				by("south", made("b", one(ipsec))),
				by("north", made("a", two(vxlan))),
			},
			nil,
			ipsec,
			"b",
			[]string{"a/0"},
		},
		{
			"what it has added itself, it may",
			[]*v1alpha1.CablePolicies{
				vxlanDefault,
				by("north", made("b", one(ipsec))),
				by("north", made("a", two(vxlan))),
			},
			nil,
			vxlan,
			"a",
			nil,
		},
		{
			"but not what the others decide",
			[]*v1alpha1.CablePolicies{
				ipsecDefault,
				by("north", made("b", one(wireguard))),
				by("north", made("a", two(vxlan))),
			},
			nil,
			ipsec,
			"default",
			[]string{"a/0"},
		},
		{
			"it may choose another driver that encrypts",
			[]*v1alpha1.CablePolicies{ipsecDefault, by("north", made("a", one(wireguard)))},
			nil,
			wireguard,
			"a",
			nil,
		},
		{
			"the most specific of several",
			[]*v1alpha1.CablePolicies{
				made("default", all(wireguard)),
				by("north", made("a", one(wireguard))),
				by("south", made("b", two(ipsec))),
			},
			nil,
			ipsec,
			"b",
			nil,
		},
		{
			"it may add encryption",
			[]*v1alpha1.CablePolicies{vxlanDefault, by("north", made("a", one(ipsec)))},
			nil,
			ipsec,
			"a",
			nil,
		},
		{
			"by a policy that takes precedence",
			[]*v1alpha1.CablePolicies{made("a", two(vxlan)), by("north", made("b", one(ipsec)))},
			nil,
			vxlan,
			"a",
			nil,
		},
		{
			"plain to plain",
			[]*v1alpha1.CablePolicies{vxlanDefault, by("north", made("a", one(vxlan)))},
			nil,
			vxlan,
			"a",
			nil,
		},
		{
			"no cable instead of an encrypted one",
			[]*v1alpha1.CablePolicies{ipsecDefault, by("north", made("a", one("gre")))},
			nil,
			ipsec,
			"default",
			[]string{"a/0"},
		},
		{
			"settings that are wrong",
			[]*v1alpha1.CablePolicies{ipsecDefault, by("north", made("a", badSettings(one(wireguard))))},
			nil,
			ipsec,
			"default",
			[]string{"a/0"},
		},
		{
			"no cable instead of a plain one",
			[]*v1alpha1.CablePolicies{vxlanDefault, by("north", made("a", one("gre")))},
			nil,
			"",
			"a",
			nil,
		},
		{
			"a plain cable instead of none",
			[]*v1alpha1.CablePolicies{made("b", one("gre")), by("north", made("a", two(vxlan)))},
			nil,
			"",
			"b",
			[]string{"a/0"},
		},
		{
			"an encrypted cable instead of none",
			[]*v1alpha1.CablePolicies{made("b", one("gre")), by("north", made("a", two(ipsec)))},
			nil,
			ipsec,
			"a",
			nil,
		},
		{
			"past an invalid rule",
			[]*v1alpha1.CablePolicies{vxlanDefault, made("b", garbled(one(ipsec))), by("north", made("a", two(vxlan)))},
			nil,
			"",
			"b",
			[]string{"a/0"},
		},
		{
			"several",
			[]*v1alpha1.CablePolicies{
				ipsecDefault,
				by("north", made("a", two(vxlan), one(vxlan))),
				by("south", made("b", one(vxlan))),
			},
			nil,
			ipsec,
			"default",
			[]string{"a/0", "b/0"},
		},
	}
}

// A policy of a third cluster never takes encryption from a pair.
func TestHostilePolicies(t *testing.T) {
	for _, test := range partyCases() {
		if len(test.aside) > 0 {
			t.Run(test.name, test.run)
		}
	}
}

// All other policies of other clusters decide as those of the two.
func TestThirdParties(t *testing.T) {
	for _, test := range partyCases() {
		if len(test.aside) == 0 {
			t.Run(test.name, test.run)
		}
	}
}

func (test partyCase) run(t *testing.T) {
	x := east
	y := west
	if test.change != nil {
		test.change(&x, &y)
	}
	b := compile(test.policies, brokers, known)
	for _, d := range []Decision{b.Decide(x, y), b.Decide(y, x)} {
		require.Equal(t, test.driver, d.Driver, "%v", d.Err)
		require.Equal(t, test.policy, d.Policy)
		var aside []string
		for _, r := range d.SetAside {
			aside = append(aside, fmt.Sprintf("%s/%d", r.Policy, r.Rule))
		}
		require.Equal(t, test.aside, aside)
	}
}

func TestSetAsideIsExplained(t *testing.T) {
	b := compile([]*v1alpha1.CablePolicies{
		made("default", between("", "", "ipsec")),
		by("north", made("a", between("env", "tier", "vxlan"), between("env", "", "wireguard"))),
		by("", made("b", between("env", "", "vxlan"))),
		by("south", made("c", between("env=lab", "", "wireguard"))),
	}, brokers, known)
	e := b.Explain(west, east)
	require.Equal(t, "apart from 2 rules that are set aside, no other policy matches", e.Why)
	require.Equal(t, []Beaten{
		{
			"a",
			0,
			"vxlan",
			"it is set aside: cluster north made it, and only the broker and the two clusters can choose a weaker cable than ipsec",
			inDefault,
		},
		{"a", 1, "wireguard", "it has 1 requirement, a has 2", inDefault},
		{
			"b",
			0,
			"vxlan",
			"it is set aside: another cluster made it, and only the broker and the two clusters can choose a weaker cable than ipsec",
			inDefault,
		},
	}, e.Beaten)

	b = compile(
		[]*v1alpha1.CablePolicies{
			made("z", between("", "", "gre")),
			by("north", made("a", between("env", "", "vxlan"))),
		},
		brokers,
		known,
	)
	e = b.Explain(west, east)
	require.Equal(t, "apart from 1 rule that is set aside, it is the only one that matches", e.Why)
	require.Equal(
		t,
		[]Beaten{
			{
				"a",
				0,
				"vxlan",
				"it is set aside: cluster north made it, and only the broker and the two clusters can choose a cable without encryption",
				inDefault,
			},
		},
		e.Beaten,
	)
}

// A policy of a third party shadows only what it always beats.
func TestShadowsOfThirdParties(t *testing.T) {
	of := func(policies ...*v1alpha1.CablePolicies) (out []string) {
		for _, s := range Shadows(policies, brokers) {
			out = append(out, s.Policy+" by "+s.By)
		}
		return out
	}
	rule := between("env", "", "vxlan")
	secure := between("env", "", "ipsec")
	require.Equal(t, []string{"b by a"}, of(made("a", rule), by("north", made("b", secure))), "the broker's")
	require.Empty(t, of(by("north", made("a", rule)), made("b", secure)), "it may be set aside")
	require.Empty(t, of(by("north", made("a", rule)), by("south", made("b", secure))))
	require.Equal(t, []string{"b by a"}, of(by("north", made("a", rule)), by("north", made("b", secure))), "its own")
	require.Equal(t, []string{"b by a"}, of(by("north", made("a", secure)), made("b", secure)))
	require.Equal(t, []string{"b by a"}, of(by("north", made("a", rule)), by("south", made("b", rule))))
}

// asSeenBy returns policies as a cluster, or the broker, holds them: its own without labels, and
// those of others as one copy for each clusterset.
func asSeenBy(
	here string,
	policies []*v1alpha1.CablePolicies,
	makers map[string]string,
) (out []*v1alpha1.CablePolicies) {
	for _, p := range policies {
		if makers[p.Name] == here {
			out = append(out, p)
			continue
		}
		for _, set := range p.ClusterSets() {
			c := p.DeepCopy()
			c.Labels = map[string]string{submarinerv1.ClusterIDLabel: makers[p.Name], submarinerv1.ClusterSetLabel: set}
			c.Name = p.Name + "." + set
			c.Status = v1alpha1.CablePoliciesStatus{}
			out = append(out, c)
		}
	}
	return out
}

// Policies of third parties make no pair weaker, whoever made the policies and whatever they are.
// Both ends, every other cluster and the broker decide the same, in whatever order they read.
func TestThirdPartiesOnlyAddEncryption(t *testing.T) {
	asides := 0
	added := 0
	kept := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 4))
		var clusters []Cluster
		for i := range 5 {
			c := randomCluster(r, i)
			c.MustEncrypt = r.IntN(12) == 0
			clusters = append(clusters, c)
		}
		everyone := []string{"c0", "c1", "c2", "c3", "c4", "gone", "", submarinerv1.BrokerID, submarinerv1.BrokerID}
		makers := map[string]string{}
		var policies []*v1alpha1.CablePolicies
		for i := range 2 + r.IntN(10) {
			p := randomPolicy(r, i)
			makers[p.Name] = pick(r, everyone)
			for j := range p.ConnectionPolicies {
				if r.IntN(15) == 0 {
					p.ConnectionPolicies[j] = secured(p.ConnectionPolicies[j])
				}
			}
			policies = append(policies, p)
		}
		book := func(here string, keep func(maker string) bool) *Book {
			some := slices.DeleteFunc(slices.Clone(policies),
				func(p *v1alpha1.CablePolicies) bool { return !keep(makers[p.Name]) })
			seen := asSeenBy(here, some, makers)
			r.Shuffle(len(seen), func(i, j int) { seen[i], seen[j] = seen[j], seen[i] })
			return compile(seen, Makers{Here: here}, known)
		}
		anyone := func(string) bool { return true }
		onBroker := book(submarinerv1.BrokerID, anyone)
		seenBy := map[string]*Book{}
		lacking := map[string]*Book{}
		for _, c := range clusters {
			seenBy[c.ID] = book(c.ID, anyone)
		}
		for _, third := range everyone {
			lacking[third] = book(submarinerv1.BrokerID, func(maker string) bool { return maker != third })
		}
		for i, x := range clusters {
			for _, y := range clusters[:i] {
				if !common(x.Sets, y.Sets) {
					continue
				}
				where := fmt.Sprintf("seed %d: %s, %s", seed, x.ID, y.ID)
				is := onBroker.Decide(x, y)
				for _, here := range []string{x.ID, y.ID, "c0"} {
					same := seenBy[here].Decide(y, x)
					require.True(t, same.Same(is), "%s, seen by %s: %+v and %+v", where, here, same, is)
					require.Equal(t, is.SetAside, same.SetAside, where)
					require.Equal(t, is.MustEncrypt, same.MustEncrypt, where)
				}
				require.Equal(t, is, onBroker.Explain(y, x).Decision, where)
				party := func(maker string) bool {
					return slices.Contains([]string{x.ID, y.ID, submarinerv1.BrokerID}, maker)
				}
				parties := book(submarinerv1.BrokerID, party).Decide(x, y)
				require.GreaterOrEqual(t, is.Secrecy(), parties.Secrecy(), where)
				require.Empty(t, parties.SetAside)
				for _, third := range everyone {
					if party(third) {
						continue
					}
					without := lacking[third].Decide(x, y)
					require.GreaterOrEqual(t, is.Secrecy(), without.Secrecy(), "%s: without %q", where, third)
				}
				switch {
				case len(is.SetAside) > 0:
					asides++
				case is.Secrecy() > parties.Secrecy():
					added++
				default:
					kept++
				}
			}
		}
		checkBrokerOnly(t, r, policies, makers, clusters)
	}
	require.Greater(t, min(asides, added, kept), 100, "%d, %d, %d: the cases are too tame", asides, added, kept)
}

// checkBrokerOnly checks that with BrokerOnly, the other policies might as well not exist.
func checkBrokerOnly(
	t *testing.T,
	r *rand.Rand,
	policies []*v1alpha1.CablePolicies,
	makers map[string]string,
	clusters []Cluster,
) {
	t.Helper()
	here := clusters[r.IntN(len(clusters))].ID
	some := slices.DeleteFunc(slices.Clone(policies),
		func(p *v1alpha1.CablePolicies) bool { return makers[p.Name] != submarinerv1.BrokerID })
	want := compile(asSeenBy(here, some, makers), Makers{Here: here}, known)
	have := compile(asSeenBy(here, policies, makers), Makers{Here: here, BrokerOnly: true}, known)
	for i, x := range clusters {
		for _, y := range clusters[:i] {
			require.Equal(t, text(want.Decide(x, y).Err), text(have.Decide(y, x).Err))
			require.True(t, want.Decide(x, y).Same(have.Decide(y, x)))
		}
	}
}

// An adoption changes who made a policy, and nothing else.
func TestDigestHasTheMaker(t *testing.T) {
	p := by("north", made("a", between("", "", "ipsec")))
	was := Digest([]*v1alpha1.CablePolicies{p})
	require.NotEqual(t, was, Digest([]*v1alpha1.CablePolicies{by(submarinerv1.BrokerID, p.DeepCopy())}))
	require.Equal(t, was, Digest([]*v1alpha1.CablePolicies{p.DeepCopy()}))
	require.Len(t, strings.TrimSpace(was), 32)
}
