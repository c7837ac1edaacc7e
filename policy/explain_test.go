package policy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
)

// inDefault are the clustersets of the policies of most tests.
var inDefault = []string{"default"}

func TestExplain(t *testing.T) {
	const vxlan, wireguard, ipsec = cable.VXLAN, cable.WireGuard, cable.IPsec
	for _, test := range []struct {
		name     string
		policies []*v1alpha1.CablePolicies
		why      string
		beaten   []Beaten
	}{
		{"nothing", nil, "no policy matches, so the clusters' default driver is used", nil},
		{"default", []*v1alpha1.CablePolicies{made("default", between("", "", vxlan))}, "no other policy matches", nil},
		{
			"the only one",
			[]*v1alpha1.CablePolicies{made("a", between("", "", vxlan)), made("b", between("env=none", "", ipsec))},
			"it is the only one that matches",
			nil,
		},
		{"several", []*v1alpha1.CablePolicies{
			made("default", between("", "", vxlan)),
			made("z", between("env", "tier=core", wireguard), between("env", "tier=edge", "libreswan")),
			made("zz", between("env", "tier", ipsec)),
			made("a", between("env", "", ipsec)),
		}, "of the matching policies with the most requirements, 2, it comes first", []Beaten{
			{"z", 1, ipsec, "it has the same number of requirements, and comes later in the policy", inDefault},
			{"zz", 0, ipsec, "it has the same number of requirements, and its name comes later", inDefault},
			{"a", 0, ipsec, "it has 1 requirement, z has 2", inDefault},
			{"default", 0, vxlan, "default applies only where no other policy matches", inDefault},
		}},
		{
			"most",
			[]*v1alpha1.CablePolicies{made("a", between("", "", vxlan)), made("b", between("env", "", ipsec))},
			"it has the most requirements, 1",
			[]Beaten{
				{"a", 0, vxlan, "it has 0 requirements, b has 1", inDefault},
			},
		},
		{
			"mistake",
			[]*v1alpha1.CablePolicies{
				made("a", garbled(between("", "", ipsec))),
				made("default", between("", "", vxlan)),
			},
			"it requires encryption, and may match this pair",
			[]Beaten{{"default", 0, vxlan, "its cable is not encrypted, and a requires encryption", inDefault}},
		},
		{
			"mistake that does no harm",
			[]*v1alpha1.CablePolicies{
				made("a", garbled(between("", "", vxlan))),
				made("default", between("", "", vxlan)),
			},
			"no other policy matches",
			[]Beaten{
				{
					"a",
					0,
					vxlan,
					`it is invalid: spec[0].leftClusterSelector.matchExpressions[0]: unknown operator "Equals": use In, NotIn, Exists or DoesNotExist`,
					inDefault,
				},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := compile(test.policies, brokers, known).Explain(west, east)
			require.Equal(t, test.why, e.Why)
			require.Equal(t, test.beaten, e.Beaten)
		})
	}
	e := compile(nil, brokers, known).Explain(east, other)
	require.Error(t, e.Err)
	require.Equal(t, "policies apply only to clusters that share a clusterset", e.Why)
}
