package drivers_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/dataplane"
)

// Where an agent of the version before has left its chains of iptables and its ipsets, the table of
// nftables decides before one of these chains accepts less or is removed.
func TestFormerFilter(t *testing.T) {
	want := whole(t, local(1), func(int) cable.Driver { return drivers.Find(cable.VXLAN) }, peers(t, 2))
	key := dataplane.RulesetKey("ip", dataplane.GatewayOwner.Antispoof)
	have := dataplane.State{}
	for k, o := range want {
		if k.Kind != dataplane.KindChain {
			have[k] = o
		}
	}
	former := want[key].(dataplane.Ruleset)
	former.Chains = former.Chains[:0:0]
	have[key] = former
	const set = "SUBMARINER-GW-vxlantunnel"
	require.NoError(t, have.Add(
		dataplane.Set{Name: set, Members: []netip.Prefix{netip.MustParsePrefix("10.102.0.0/16")}},
		dataplane.Chain{Table: "filter", Name: "SUBMARINER-GW-INPUT", Hook: "INPUT", Rules: []string{
			"-s 172.18.2.1/32 -p udp -m udp --dport 4502 -j ACCEPT", "-i vxlan-tunnel -j DROP",
		}},
		dataplane.Chain{Table: "filter", Name: set, Hook: "FORWARD", Sets: []string{set}, Rules: []string{
			"-i vx-submariner -o vxlan-tunnel -j ACCEPT", "-i vxlan-tunnel -j DROP",
		}},
	))
	ops := dataplane.Diff(have, want)
	require.Equal(t, key, ops[0].New.Key(), "the table comes first")
	var gone []dataplane.Key
	for _, op := range ops {
		switch {
		case op.New == nil:
			gone = append(gone, op.Old.Key())
		default:
			require.Empty(t, gone, "%v is put after something was removed", op)
		}
	}
	require.Equal(t, []dataplane.Key{
		{Kind: dataplane.KindChain, Name: "filter " + set}, {Kind: dataplane.KindSet, Name: set},
	}, gone)
}
