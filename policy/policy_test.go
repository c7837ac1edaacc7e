package policy

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
)

// driver is a cable driver of which only name and settings are asked.
type driver struct {
	cable.Driver
	name string
}

func (d driver) Name() string { return d.name }
func (d driver) Properties() cable.Properties {
	return cable.Properties{Encrypts: d.name != cable.VXLAN}
}
func (driver) Options() []cable.Option { return []cable.Option{cable.OptionMTU} }

var known = []cable.Driver{driver{name: cable.VXLAN}, driver{name: cable.WireGuard}, driver{name: cable.IPsec}}

// brokers are the makers of policies without a label where the broker made them.
var brokers = Makers{Here: submarinerv1.BrokerID}

// made returns a policy of clusterset default, of rules "left | right | driver".
func made(name string, rules ...v1alpha1.CablePolicySpec) *v1alpha1.CablePolicies {
	return &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{Name: name}, ConnectionPolicies: rules,
		Status: v1alpha1.CablePoliciesStatus{ClusterSets: []string{"default"}},
	}
}

// between is a rule, with selectors as text.
func between(left, right, driver string) v1alpha1.CablePolicySpec {
	return v1alpha1.CablePolicySpec{
		LeftClusterSelector:  parsed(left),
		RightClusterSelector: parsed(right),
		CableDriver:          driver,
	}
}

func parsed(text string) v1alpha1.ClusterSelector {
	s, err := ParseSelector(text)
	if err != nil {
		panic(err)
	}
	return s
}

func with(p *v1alpha1.CablePolicies, change func(*v1alpha1.CablePolicies)) *v1alpha1.CablePolicies {
	change(p)
	return p
}

// inSets limits a policy to clustersets.
func inSets(p *v1alpha1.CablePolicies, sets ...string) *v1alpha1.CablePolicies {
	return with(p, func(p *v1alpha1.CablePolicies) { p.Status.ClusterSets = sets })
}

// garbled puts a mistake into the left selector.
func garbled(r v1alpha1.CablePolicySpec) v1alpha1.CablePolicySpec {
	r.LeftClusterSelector.MatchExpressions = append(r.LeftClusterSelector.MatchExpressions,
		v1alpha1.ClusterRequirement{Key: "env", Operator: "Equals", Values: []string{"x"}})
	return r
}

// The clusters of the proposal's example, and one in another clusterset as well.
var (
	east = Cluster{
		ID:     "east",
		Labels: map[string]string{"env": "production", "tier": "core"},
		Sets:   []string{"default"},
		Driver: "vxlan",
	}
	west = Cluster{
		ID:     "west",
		Labels: map[string]string{"env": "production", "tier": "edge"},
		Sets:   []string{"default"},
		Driver: "vxlan",
	}
	lab = Cluster{
		ID:     "lab",
		Labels: map[string]string{"env": "lab"},
		Sets:   []string{"blue", "default"},
		Driver: "vxlan",
	}
	other = Cluster{ID: "other", Sets: []string{"blue"}, Driver: "libreswan"}
)

func TestDecide(t *testing.T) {
	const vxlan, wireguard, ipsec = cable.VXLAN, cable.WireGuard, cable.IPsec
	for _, test := range []struct {
		name     string
		policies []*v1alpha1.CablePolicies
		x, y     Cluster
		driver   string
		policy   string
		err      string
	}{
		{"no policy", nil, east, west, vxlan, "", ""},
		{
			"no policy, defaults differ",
			nil,
			lab,
			other,
			"",
			"",
			"no cable policy matches, and the default drivers differ (cluster lab: vxlan, cluster other: ipsec): create a policy (subctl cable-policy add --name default), or join both clusters with the same --cable-driver",
		},
		{
			"no clusterset",
			[]*v1alpha1.CablePolicies{made("a", between("", "", ipsec))},
			east,
			other,
			"",
			"",
			"clusters east and other have no clusterset in common",
		},
		{
			"the proposal's",
			[]*v1alpha1.CablePolicies{
				made("default", between("", "", vxlan)),
				made("on-prem-to-cloud", between("env: production", "env: production", ipsec)),
			},
			east,
			west,
			ipsec,
			"on-prem-to-cloud",
			"",
		},
		{
			"the proposal's, others",
			[]*v1alpha1.CablePolicies{
				made("default", between("", "", wireguard)),
				made("on-prem-to-cloud", between("env: production", "env: production", ipsec)),
			},
			east,
			lab,
			wireguard,
			"default",
			"",
		},
		{
			"not as in the proposal",
			[]*v1alpha1.CablePolicies{made("a", between("env: !production", "", ipsec))},
			east,
			lab,
			ipsec,
			"a",
			"",
		},
		{
			"not, both are",
			[]*v1alpha1.CablePolicies{made("a", between("env: !production", "", ipsec))},
			east,
			west,
			vxlan,
			"",
			"",
		},
		{
			"either way round",
			[]*v1alpha1.CablePolicies{made("a", between("env=lab", "tier=core", ipsec))},
			east,
			lab,
			ipsec,
			"a",
			"",
		},
		{
			"one cluster is not both ends",
			[]*v1alpha1.CablePolicies{made("a", between("env=lab", "env=lab", ipsec))},
			east,
			lab,
			vxlan,
			"",
			"",
		},
		{"alias", []*v1alpha1.CablePolicies{made("a", between("", "", "LibreSwan"))}, east, west, ipsec, "a", ""},
		{
			"by cluster ID",
			[]*v1alpha1.CablePolicies{
				made("a", between("submariner-io/clusterID=east", "submariner-io/clusterID in (west,lab)", ipsec)),
			},
			west,
			east,
			ipsec,
			"a",
			"",
		},
		{
			"most requirements",
			[]*v1alpha1.CablePolicies{
				made("a", between("env=production", "env=production", ipsec)),
				made("b", between("env=production,tier", "env=production", wireguard)),
			},
			east,
			west,
			wireguard,
			"b",
			"",
		},
		{
			"ties go to the lower name",
			[]*v1alpha1.CablePolicies{
				made("b", between("env=production", "", ipsec)),
				made("a", between("", "tier", wireguard)),
			},
			east,
			west,
			wireguard,
			"a",
			"",
		},
		{
			"then to the earlier rule",
			[]*v1alpha1.CablePolicies{made("a", between("env=production", "", ipsec), between("", "tier", wireguard))},
			east,
			west,
			ipsec,
			"a",
			"",
		},
		{
			"default only where no other matches",
			[]*v1alpha1.CablePolicies{
				made("default", between("env=production", "env=production", wireguard)),
				made("z", between("", "", ipsec)),
			},
			east,
			west,
			ipsec,
			"z",
			"",
		},
		{
			"default that does not match",
			[]*v1alpha1.CablePolicies{made("default", between("env=none", "", wireguard))},
			east,
			west,
			vxlan,
			"",
			"",
		},
		{
			"of another clusterset",
			[]*v1alpha1.CablePolicies{inSets(made("a", between("", "", ipsec)), "blue")},
			east,
			lab,
			vxlan,
			"",
			"",
		},
		{
			"of one that both are in",
			[]*v1alpha1.CablePolicies{inSets(made("a", between("", "", ipsec)), "blue")},
			lab,
			other,
			ipsec,
			"a",
			"",
		},
		{
			"of two, one for each end",
			[]*v1alpha1.CablePolicies{inSets(made("a", between("", "", ipsec)), "red", "blue", "default")},
			Cluster{ID: "a", Sets: []string{"red", "x"}, Driver: vxlan},
			Cluster{ID: "b", Sets: []string{"blue", "x"}, Driver: vxlan},
			vxlan,
			"",
			"",
		},
		{"not shared", []*v1alpha1.CablePolicies{inSets(made("a", between("", "", ipsec)))}, east, west, vxlan, "", ""},
		{
			"unknown driver is not passed over",
			[]*v1alpha1.CablePolicies{made("a", between("env", "", "gre")), made("default", between("", "", vxlan))},
			east,
			west,
			"",
			"a",
			`cable policy a: unknown cable driver "gre": use one of vxlan, wireguard, ipsec`,
		},
		{
			"no downgrade for a mistake",
			[]*v1alpha1.CablePolicies{
				made("a", garbled(between("env=production", "env=production", ipsec))),
				made("default", between("", "", vxlan)),
			},
			east,
			west,
			"",
			"a",
			`cable policy a specifies ipsec and may match this pair, but is invalid: spec[0].leftClusterSelector.matchExpressions[0]: unknown operator "Equals": use In, NotIn, Exists or DoesNotExist: until it is corrected, the pair gets no vxlan cable, which is not encrypted`,
		},
		{
			"nor to the clusters' default",
			[]*v1alpha1.CablePolicies{
				made("a", between("env=lab", "", ipsec), garbled(between("env=production", "env=production", "gre"))),
			},
			east,
			west,
			"",
			"a",
			`rule 2 of cable policy a specifies gre and may match this pair, but is invalid: spec[1].leftClusterSelector.matchExpressions[0]: unknown operator "Equals": use In, NotIn, Exists or DoesNotExist: until it is corrected, the pair gets no vxlan cable, which is not encrypted`,
		},
		{
			"a mistake, but not about this pair",
			[]*v1alpha1.CablePolicies{made("a", garbled(between("env=production", "env=production", ipsec)))},
			east,
			lab,
			vxlan,
			"",
			"",
		},
		{
			"a mistake, but encrypted all the same",
			[]*v1alpha1.CablePolicies{
				made("a", garbled(between("env=production", "", ipsec))),
				made("default", between("", "", wireguard)),
			},
			east,
			west,
			wireguard,
			"default",
			"",
		},
		{
			"a mistake, but asks for no encryption",
			[]*v1alpha1.CablePolicies{
				made("a", garbled(between("env=production", "", vxlan))),
				made("default", between("", "", vxlan)),
			},
			east,
			west,
			vxlan,
			"default",
			"",
		},
		{
			"a mistake, but less specific",
			[]*v1alpha1.CablePolicies{
				made("a", garbled(between("", "", ipsec))),
				made("b", between("env=production", "env=production", vxlan)),
			},
			east,
			west,
			vxlan,
			"b",
			"",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := compile(test.policies, brokers, known)
			for _, d := range []Decision{b.Decide(test.x, test.y), b.Decide(test.y, test.x)} {
				require.Equal(t, test.err, text(d.Err))
				require.Equal(t, test.driver, d.Driver)
				require.Equal(t, test.policy, d.Policy)
			}
		})
	}
}

// The owner of a policy and the others read it from different objects.
func TestCopiesDecideAlike(t *testing.T) {
	own := inSets(made("a", between("env", "", cable.IPsec)), "blue", "default")
	copied := func(name, set string) *v1alpha1.CablePolicies {
		return with(inSets(made(name, own.ConnectionPolicies...)), func(p *v1alpha1.CablePolicies) {
			p.Labels = map[string]string{submarinerv1.ClusterIDLabel: "east", submarinerv1.ClusterSetLabel: set}
		})
	}
	labelled := west
	labelled.Labels = map[string]string{"env": "production", "tier": "edge", submarinerv1.ClusterIDLabel: "lies"}
	here := compile([]*v1alpha1.CablePolicies{own}, Makers{Here: "east"}, known)
	there := compile([]*v1alpha1.CablePolicies{copied("a.blue", "blue"), copied("a", "default")}, brokers, known)
	require.Equal(t, here.Decide(east, west), there.Decide(east, labelled))
	require.Equal(t, "a", there.Decide(east, labelled).Policy)

	// What the broker holds counts at home, too, whatever was written there since.
	changed := own.DeepCopy()
	changed.Status.Rules = own.ConnectionPolicies
	changed.ConnectionPolicies = []v1alpha1.CablePolicySpec{between("env", "", "gre"), between("", "", cable.VXLAN)}
	here = compile([]*v1alpha1.CablePolicies{changed}, Makers{Here: "east"}, known)
	require.Equal(t, here.Decide(east, west), there.Decide(east, west))
}

func TestClusterOf(t *testing.T) {
	c := &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"env": "lab"}},
		Spec:       submarinerv1.ClusterSpec{ClusterID: "east", ClusterSets: []string{"what", "it", "says"}},
	}
	require.Equal(t, Cluster{ID: "east", Labels: c.Labels}, ClusterOf(c),
		"a cluster about which nothing is known is in no clusterset")
	c.Annotations = map[string]string{submarinerv1.ClusterSetsAnnotation: "blue,default"}
	require.Equal(t, []string{"blue", "default"}, ClusterOf(c).Sets)
}

func TestDecideSettings(t *testing.T) {
	rule := func(text string) *v1alpha1.CablePolicies {
		r := between("", "", cable.IPsec)
		r.CableOptions = &v1alpha1.CableOptions{Data: map[string]string{v1alpha1.CableCustomConfig: text}}
		return made("a", r)
	}
	d := compile([]*v1alpha1.CablePolicies{rule("mtu: 1300")}, brokers, known).Decide(east, west)
	require.Equal(t, cable.Config{"mtu": "1300"}, d.Config)
	require.NoError(t, d.ConfigErr)
	d = compile([]*v1alpha1.CablePolicies{rule("mtu: 13")}, brokers, known).Decide(east, west)
	require.Equal(t, cable.IPsec, d.Driver)
	require.Nil(t, d.Config)
	require.EqualError(t, d.ConfigErr, `line 1: mtu "13": it must be a whole number from 576 to 65535`)
}

func TestCheck(t *testing.T) {
	bad := garbled(between("", "", "gre"))
	bad.LeftClusterSelector.MatchExpressions = append(bad.LeftClusterSelector.MatchExpressions,
		v1alpha1.ClusterRequirement{Key: "a", Operator: metav1.LabelSelectorOpIn},
		v1alpha1.ClusterRequirement{Key: "a", Operator: metav1.LabelSelectorOpExists, Values: []string{"b"}})
	bad.RightClusterSelector.MatchLabels = map[string]string{"a": "b c", "-": "x", "ok": "!no"}
	set := between("", "", "vxlan")
	set.CableOptions = &v1alpha1.CableOptions{Data: map[string]string{v1alpha1.CableCustomConfig: "mtu: 5\nmtv: 1400"}}
	require.NoError(t, check(made("a", between("", "", "libreswan")), known))
	require.EqualError(
		t,
		check(made("A.b", bad, set), known),
		`metadata.name: "A.b" is not the name of a policy: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends
spec[0].leftClusterSelector.matchExpressions[0]: unknown operator "Equals": use In, NotIn, Exists or DoesNotExist
spec[0].leftClusterSelector.matchExpressions[1]: operator In needs values
spec[0].leftClusterSelector.matchExpressions[2]: operator Exists takes no values
spec[0].rightClusterSelector.matchLabels: "-" is not a label key: use letters, digits, '-', '_' and '.', optionally after a DNS name and '/'
spec[0].rightClusterSelector.matchLabels: "b c" is not a label value: use at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends
spec[0].name: unknown cable driver "gre": use one of vxlan, wireguard, ipsec
spec[1].options.data: line 1: mtu "5": it must be a whole number from 576 to 65535
line 2: mtv: vxlan has no such setting: did you mean mtu?`,
	)
	require.EqualError(t, check(made(""), known),
		"metadata.name: a policy needs a name\nspec: a policy needs at least one rule")

	many := between("", "", "vxlan")
	for i := range 33 {
		e := v1alpha1.ClusterRequirement{Key: fmt.Sprintf("k%d", i), Operator: metav1.LabelSelectorOpExists}
		many.RightClusterSelector.MatchExpressions = append(many.RightClusterSelector.MatchExpressions, e)
	}
	many.LeftClusterSelector.MatchExpressions = []v1alpha1.ClusterRequirement{
		{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: make([]string, 257)},
	}
	many.CableOptions = &v1alpha1.CableOptions{Metadata: v1alpha1.CableOptionsSource{Name: "A", Namespace: "b.c"}}
	require.EqualError(
		t,
		check(made("a", many), known),
		`spec[0].leftClusterSelector.matchExpressions[0].values: 257 entries, at most 256 are allowed
spec[0].rightClusterSelector.matchExpressions: 33 entries, at most 32 are allowed
spec[0].options.metadata.name: "A" is not the name of a ConfigMap: use at most 253 lower case letters, digits, '-' and '.'
spec[0].options.metadata.namespace: "b.c" is not the name of a namespace: use at most 63 lower case letters, digits and '-'`,
	)
	require.EqualError(t, check(made("a", make([]v1alpha1.CablePolicySpec, 65)...), known),
		"spec: a policy has at most 64 rules, this one has 65")
}
