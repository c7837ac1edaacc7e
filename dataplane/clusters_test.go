package dataplane_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
)

// A network ends the connections of its cluster when it is added or removed, or passes to another
// cluster.
func TestEnded(t *testing.T) {
	p := netip.MustParsePrefix
	nets := func(of ...string) (out []dataplane.ClusterNet) {
		for i := 0; i < len(of); i += 2 {
			out = append(out, dataplane.ClusterNet{Net: p(of[i]), Cluster: of[i+1]})
		}
		return out
	}
	table := func(gateway string, clusters []dataplane.ClusterNet) dataplane.Ruleset {
		r := dataplane.Ruleset{Table: "t", Ends: dataplane.ClusterConnections{Clusters: "c", Gateways: "g"}}
		var elements []string
		for _, n := range clusters {
			elements = append(elements, n.Element())
		}
		r.AddSet(dataplane.RuleSet{Name: "c", Elements: elements})
		r.AddSet(dataplane.RuleSet{Name: "g", Elements: []string{gateway + " : 1:2"}})
		return r
	}
	require.Empty(t, table("192.0.2.1", nets("10.1.0.0/16", "a")).Ended(dataplane.Ruleset{}), "no table")
	for _, test := range []struct {
		name       string
		have, want []dataplane.ClusterNet
		ended      []netip.Prefix
	}{
		{"no change", nets("10.1.0.0/16", "a"), nets("10.1.0.0/16", "a"), nil},
		{
			"removed",
			nets("10.1.0.0/16", "a", "10.2.0.0/16", "b"),
			nets("10.2.0.0/16", "b"),
			[]netip.Prefix{p("10.1.0.0/16")},
		},
		{"added", nil, nets("10.1.0.0/16", "a"), []netip.Prefix{p("10.1.0.0/16")}},
		{"of another cluster", nets("10.1.0.0/16", "a"), nets("10.1.0.0/16", "b"), []netip.Prefix{p("10.1.0.0/16")}},
		{"without a cable", nets("10.1.0.0/16", "a"), nets("10.1.0.0/16", ""), nil},
		{"with a cable again", nets("10.1.0.0/16", ""), nets("10.1.0.0/16", "a"), nil},
		{"wider", nets("10.1.0.0/17", "a"), nets("10.1.0.0/16", "a"), nil},
		{"narrower", nets("10.1.0.0/16", "a"), nets("10.1.0.0/17", "a"), []netip.Prefix{p("10.1.0.0/16")}},
		{
			"a device has another address",
			nets("10.1.0.0/16", "a", "241.0.0.1/32", "a"),
			nets("10.1.0.0/16", "a", "241.0.0.2/32", "a"),
			nil,
		},
		{
			"a device has the address of another's", nets("10.1.0.0/16", "a", "241.0.0.1/32", "a", "10.2.0.0/16", "b"),
			nets("10.1.0.0/16", "a", "10.2.0.0/16", "b", "241.0.0.1/32", "b"),
			[]netip.Prefix{p("241.0.0.1/32")},
		},
		{
			"a device leaves with its cluster",
			nets("10.1.0.0/16", "a", "241.0.0.1/32", "a"),
			nil,
			[]netip.Prefix{p("10.1.0.0/16"), p("241.0.0.1/32")},
		},
		{"a gateway moves", nets("192.0.2.1/32", "a"), nets("192.0.2.2/32", "a"), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			have := table("192.0.2.1", test.have)
			want := table("192.0.2.2", test.want)
			require.Equal(t, test.ended, want.Ended(have))
		})
	}
}
