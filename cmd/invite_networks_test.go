package cmd

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/broker/trust"
	"subctl/policy/impact"
)

// An invitation shows conflicts that who joins with it does not see.
func TestInvitedNetworks(t *testing.T) {
	s := setsOf(map[string][]string{"default": {"south"}, "hub-a": {"hub", "east"}, "hub-b": {"hub"}})
	networks := map[string]impact.Networks{}
	for i, id := range []string{"east", "hub", "south"} {
		networks[id] = impact.Networks{
			Announced: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", i))},
		}
	}
	for _, test := range []struct{ set, network, want string }{
		{
			"hub-b",
			"10.0.7.0/24",
			"[clusters east and west both have 10.0.7.0/24, so that cluster hub could reach only one of them]",
		},
		{"hub-b", "10.1.7.0/24", "[clusters hub and west both have 10.1.7.0/24, so that they cannot be connected]"},
		{"hub-b", "10.2.0.0/16", "[]"},
		{"default", "10.0.7.0/24", "[]"},
	} {
		o := &inviteCluster{
			bounds: trust.Invitation{
				Cluster:  "west",
				Sets:     []string{test.set},
				Networks: []netip.Prefix{netip.MustParsePrefix(test.network)},
			},
		}
		require.Equal(t, test.want, fmt.Sprint(o.conflicts(s, networks)), "%s in %s", test.network, test.set)
	}
}

// The command prints them.
func TestInviteWarnsOfNetworks(t *testing.T) {
	w := newSetsWorld(t)
	r := w.subctl(t, "invite north --clusterset prod --networks 10.1.7.0/24 --join-file a.subm")
	require.Zero(t, r.code, r.stderr)
	require.NotContains(t, r.stderr, "both have")
	require.Zero(t, w.subctl(t, "clusterset add prod hub-1").code)
	r = w.subctl(t, "invite north --clusterset prod --networks 10.1.7.0/24 --join-file b.subm")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stderr,
		"if cluster north announces what --networks permits: clusters east and north both have 10.1.7.0/24, so that cluster hub-1 could reach only one of them\n")
}
