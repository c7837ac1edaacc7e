package cable

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// A gateway has only addresses routed to itself that its cluster may announce, and not more than it
// may use.
func TestHostileAllocatedIPs(t *testing.T) {
	own := []netip.Prefix{netip.MustParsePrefix("242.1.0.0/16")}
	var many []string
	for i := range submarinerv1.MaxAllocatedIPs + 1 {
		many = append(many, fmt.Sprintf("242.1.0.%d", i))
	}
	for want, texts := range map[string][]string{
		"": {"242.1.0.2", "242.1.0.1", "242.1.0.2"},
		"allocated IP 242.2.0.1 is in none of its subnets":       {"242.1.0.1", "242.2.0.1"},
		"allocated IP 10.0.0.1 is in none of its subnets":        {"10.0.0.1"},
		`allocated IP "0.0.0.0/0": not an IP address`:            {"0.0.0.0/0"},
		`allocated IP "fd00::1": not an IPv4 address`:            {"fd00::1"},
		"it announces 21 allocated IPs: at most 20 are accepted": many,
	} {
		out, err := ParseReturned(texts, own)
		if want != "" {
			require.EqualError(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []netip.Addr{netip.MustParseAddr("242.1.0.1"), netip.MustParseAddr("242.1.0.2")}, out)
	}
}

// Packets for an address of a gateway's own take its cable alone, while it answers. Of two gateways
// with the same address, the first has it.
func TestReturningRoutes(t *testing.T) {
	at := netip.MustParseAddr("242.1.0.1")
	shared := netip.MustParseAddr("242.1.0.2")
	peer := func(name string, ips ...netip.Addr) Cable {
		return Cable{
			Peer:   Peer{Gateway: Gateway{Cluster: "west", Name: name, Returned: ips}, MTU: 1500},
			Driver: unmeasured{},
		}
	}
	c := Cabling{Peers: []Cable{peer("a", at, shared), peer("b", shared)}}
	links := []Link{{Hop: 1}, {Hop: 2}}
	routes := func() map[netip.Addr]uint32 {
		s := dataplane.State{}
		out := map[netip.Addr]uint32{}
		require.NoError(t, c.addReturns(s, links, groupIDs(c.returning()), netip.Addr{}))
		for _, o := range s {
			if r, ok := o.(dataplane.Route); ok {
				out[r.Dst.Addr()] = s[dataplane.Group{ID: r.Group}.Key()].(dataplane.Group).Members[0].ID
			}
		}
		return out
	}
	require.Equal(t, map[netip.Addr]uint32{at: 1, shared: 1}, routes())
	c.Peers[0].Down = true
	require.Equal(t, map[netip.Addr]uint32{shared: 2}, routes())
	c.Peers[1].Idle = true
	require.Empty(t, routes())
}

// unmeasured is a Driver without overhead.
type unmeasured struct{ Driver }

func (unmeasured) Overhead(Local, Peer) int { return 0 }
