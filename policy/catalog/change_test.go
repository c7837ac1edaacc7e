package catalog

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// losses returns the pairs that lose something, and what they get.
func losses(c Change) []string {
	var out []string
	for _, x := range c.Losses() {
		text := x.Pair.String() + ": " + x.Then.Driver
		if x.Then.Err != nil {
			text += x.Then.Err.Error()
		}
		out = append(out, text)
	}
	return out
}

func TestLosses(t *testing.T) {
	fallback := func() *v1alpha1.CablePolicies { return copied(submarinerv1.BrokerID, made("default", " |  | vxlan")) }
	pair := func(driver string) *v1alpha1.CablePolicies { return made("a", "site=one | site=two | "+driver) }
	required := func(driver string) *v1alpha1.CablePolicies {
		p := pair(driver)
		rule := made("", " |  | ipsec").ConnectionPolicies[0]
		rule.CableOptions = &v1alpha1.CableOptions{Encryption: submarinerv1.EncryptionRequired}
		p.ConnectionPolicies = append(p.ConnectionPolicies, rule)
		return p
	}
	invalid := func(driver string) *v1alpha1.CablePolicies {
		p := pair(driver)
		p.ConnectionPolicies[0].RightClusterSelector = v1alpha1.ClusterSelector{
			MatchLabels: map[string]string{"-": "is not a label"},
		}
		return p
	}
	for _, test := range []struct {
		name       string
		now, fresh *v1alpha1.CablePolicies
		want       []string
	}{
		{"encrypted from now on", nil, pair("wireguard"), nil},
		{
			"no cable any more",
			nil,
			pair("ipsec"),
			[]string{"east - west: cluster west does not offer ipsec: this node has no IPsec: it lacks ESP"},
		},
		{"no encryption any more", pair("wireguard"), pair("vxlan"), []string{"east - west: vxlan"}},
		{
			"neither",
			pair("wireguard"),
			pair("ipsec"),
			[]string{"east - west: cluster west does not offer ipsec: this node has no IPsec: it lacks ESP"},
		},
		{"no cable either way", pair("ipsec"), pair("vxlan+ipsec"), nil},
		{"a cable at last", pair("ipsec"), pair("wireguard"), nil},
		{"a cable at last, but encryption was required", pair("ipsec"), pair("vxlan"), []string{"east - west: vxlan"}},
		{
			"no cable rather than clear text, until now",
			required("vxlan"),
			pair("vxlan"),
			[]string{"east - west: vxlan"},
		},
		{"no cable rather than clear text, then encrypted", required("vxlan"), pair("wireguard"), nil},
		{
			"no cable, as an invalid policy may require encryption",
			invalid("ipsec"),
			pair("vxlan"),
			[]string{"east - west: vxlan"},
		},
		{"another mistake", pair("vxlan"), made("a", "site=one | site=two | vxlan | mtu: 1"), []string{
			`east - west: settings of cable policy a: line 1: mtu "1": it must be a whole number from 576 to 65535`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var o Objects
			o.cluster("", "west", "site=one", "vxlan,wireguard", func(e *submarinerv1.EndpointSpec) {
				e.BackendConfig[submarinerv1.BackendMissing] = "ipsec: this node has no IPsec: it lacks ESP"
			})
			o.cluster("east", "east", "site=two", all+",vxlan+ipsec")
			o.Policies = append(o.Policies, *fallback())
			if test.now != nil {
				o.Policies = append(o.Policies, *test.now)
			}
			c := OfMember(&v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{ClusterID: "west"}}, o)
			require.Equal(t, test.want, losses(c.Compare(c.With([]*v1alpha1.CablePolicies{test.fresh}))))
		})
	}
}

// Labels change which policies match.
func TestLabelled(t *testing.T) {
	c := member(copied(submarinerv1.BrokerID, made("default", " |  | vxlan")), made("a", "site=one |  | wireguard"))
	is := c.Compare(c.Labelled("west", map[string]string{"site": "three"}))
	require.Equal(t, []string{"cloud - west: vxlan", "east - west: vxlan"}, losses(is))
	require.Empty(t, c.Compare(c.Labelled("west", map[string]string{"site": "one", "more": "x"})).Cables)
	west, _ := c.Cluster("west")
	require.Equal(t, "one", west.Labels["site"], "what was read is left alone")
}

// A cluster that leaves takes its policies along, which other pairs may need.
func TestLeaving(t *testing.T) {
	fallback := copied(submarinerv1.BrokerID, made("default", " |  | vxlan"))
	own := member(fallback, made("a", "site=one |  | wireguard"))
	require.Empty(t, own.Leaving().Cables, "its own pairs do not count")
	others := member(fallback, made("a", "site=cloud |  | ipsec"),
		copied("east", made("b", "site=two,!x | site=one | wireguard")))
	require.Equal(t, []string{"cloud - east: vxlan"}, losses(others.Leaving()))
	harmless := member(fallback, made("a", "site=cloud |  | vxlan | mtu: 1300"))
	require.Len(t, harmless.Leaving().Cables, 1)
	require.Empty(t, harmless.Leaving().Losses())
}

// A pair that exists only before a change loses its cable; one that exists only after it loses
// nothing.
func TestComparedPairs(t *testing.T) {
	c := member()
	fewer := *c
	fewer.Clusters = c.Clusters[:2]
	const why = "cluster west is not a member"
	require.Equal(t, []string{"cloud - west: " + why, "east - west: " + why}, losses(c.Compare(&fewer)))
	back := fewer.Compare(c)
	require.Len(t, back.Cables, 2)
	require.Empty(t, back.Losses())
	require.Empty(t, back.Moves)
	apart := *c
	apart.Clusters = slices.Clone(c.Clusters)
	apart.Clusters[2].Sets = []string{"another"}
	const other = "the two clusters have no clusterset in common"
	require.Equal(t, []string{"cloud - west: " + other, "east - west: " + other}, losses(c.Compare(&apart)))
}
