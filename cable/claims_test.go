package cable

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// claimant is a Driver for which gateways announce a key, and which connects to as many of a
// cluster's gateways as it says.
type claimant struct {
	optioned
	max int
}

func (c claimant) Properties() Properties { return Properties{MaxGateways: c.max} }

func (claimant) Claims(g Gateway) []Claim {
	if g.Config["key"] == "" {
		return nil
	}
	return []Claim{{What: "key " + g.Config["key"], Why: "keys differ"}}
}

// claiming returns a gateway of a cluster with networks.
func claiming(cluster, privateIP string, networks ...string) Peer {
	p := Peer{Gateway: Gateway{Cluster: cluster, Name: "gw-" + cluster, PrivateIP: netip.MustParseAddr(privateIP)}}
	for _, n := range networks {
		p.Subnets = append(p.Subnets, netip.MustParsePrefix(n))
	}
	p.Address = p.PrivateIP
	return p
}

func TestClaimsOfOthers(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Peer) // to a gateway that has nothing in common with another
		want   string
	}{
		{name: "nothing in common", change: func(*Peer) {}},
		{
			name: "inside its network", change: func(p *Peer) { p.Subnets[0] = netip.MustParsePrefix("10.1.7.0/24") },
			want: "subnet 10.1.7.0/24 overlaps 10.1.0.0/16 of cluster first, which already uses it",
		},
		{
			name: "around its network", change: func(p *Peer) { p.Subnets[0] = netip.MustParsePrefix("10.0.0.0/8") },
			want: "subnet 10.0.0.0/8 overlaps 10.1.0.0/16 of cluster first, which already uses it",
		},
		{
			name: "around its address", change: func(p *Peer) { p.Subnets[0] = netip.MustParsePrefix("192.0.2.0/24") },
			want: "subnet 192.0.2.0/24 contains 192.0.2.1, the address of another gateway",
		},
		{
			name: "an address in its network", change: func(p *Peer) { p.PublicIP = netip.MustParseAddr("10.1.0.1") },
			want: "its address 10.1.0.1 is in 10.1.0.0/16 of cluster first",
		},
		{
			name: "the same cable name", change: func(p *Peer) { p.Name = "gw-first" },
			want: "cable name gw-first is already used by gw-first: cable names must be unique",
		},
		{
			name: "the same VTEP", change: func(p *Peer) { p.PrivateIP = netip.MustParseAddr("198.0.2.1") },
			want: "address 241.0.2.1 between the gateways is already used by gw-first: " + OneVTEP,
		},
		{
			name: "the VTEP of a node", change: func(p *Peer) { p.PrivateIP = netip.MustParseAddr("198.51.100.9") },
			want: "address 241.51.100.9 between the gateways is already used by node n1 of this cluster: " + OneVTEP,
		},
		{
			name: "the VTEP that it announces", change: func(p *Peer) { p.Octets = Octets{0, 2, 1} },
			want: "address 241.0.2.1 between the gateways is already used by gw-first: " + OneVTEP,
		},
		{name: "another VTEP", change: func(p *Peer) {
			p.PrivateIP = netip.MustParseAddr("198.0.2.1")
			p.Octets = Octets{7, 7, 7}
		}},
		{
			name: "what a driver claims", change: func(p *Peer) { p.Gateway.Config = map[string]string{"key": "k"} },
			want: "key k is already used by gw-first: keys differ",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := NewClaims([]Driver{claimant{}})
			require.NoError(t, c.AddNode("n1", Octets{51, 100, 9}))
			first := claiming("first", "192.0.2.1", "10.1.0.0/16")
			first.Gateway.Config = map[string]string{"key": "k"}
			require.NoError(t, c.Announce(first))
			second := claiming("second", "203.0.113.2", "10.2.0.0/16")
			test.change(&second)
			if test.want == "" {
				require.NoError(t, c.Announce(second))
				return
			}
			require.EqualError(t, c.Announce(second), test.want)
			require.NoError(t, c.Announce(claiming("third", "203.0.113.2", "10.2.0.0/16")),
				"a refused gateway holds nothing")
		})
	}
}

// What an incumbent held is kept for its cluster, even while another cluster announces it
// first; what it did not hold is not.
func TestClaimsOfIncumbents(t *testing.T) {
	incumbent := claiming("incumbent", "192.0.2.1", "10.1.0.0/16")
	now := claiming("incumbent", "192.0.2.1", "10.1.7.0/24", "10.3.0.0/16")
	thieves := []Peer{
		claiming("network", "203.0.113.2", "10.1.7.0/24"),
		claiming("address", "203.0.113.3", "192.0.2.0/24"),
		claiming("vtep", "198.0.2.1", "10.4.0.0/16"),
	}
	taker := claiming("taker", "203.0.113.4", "10.3.0.0/16")

	c := NewClaims(nil)
	c.Keep(append(slices.Clone(thieves), taker, now), []Gateway{incumbent.Gateway})
	for _, thief := range thieves {
		require.Error(t, c.Announce(thief), thief.Cluster)
	}
	require.NoError(t, c.Announce(taker), "nobody held that before")
	require.EqualError(t, c.Announce(now),
		"subnet 10.3.0.0/16 overlaps 10.3.0.0/16 of cluster taker, which already uses it")
	now.Subnets = now.Subnets[:1]
	require.NoError(t, c.Announce(now), "its own it may announce")

	c = NewClaims(nil)
	c.Keep([]Peer{thieves[0]}, []Gateway{incumbent.Gateway})
	require.NoError(t, c.Announce(thieves[0]), "what an incumbent announces no more is free")
}

// A member that waits for the address of another member's gateway on the devices does not get it in
// the plan in which that gateway disappears, when packets are still sent there, but in the next
// one.
func TestHostileSuccessor(t *testing.T) {
	old := claiming("victim", "192.0.2.1", "10.1.0.0/16")
	moved := claiming("victim", "192.0.2.7", "10.1.0.0/16")
	waiting := claiming("attacker", "198.0.2.1", "10.2.0.0/16")
	moved.Name = "another"
	const refused = "address 241.0.2.1 between the gateways is already used by cluster victim: " + OneVTEP
	for name, now := range map[string][]Peer{"the gateway moves": {waiting, moved}, "the cluster leaves": {waiting}} {
		t.Run(name, func(t *testing.T) {
			c := NewClaims(nil)
			held := []Gateway{old.Gateway}
			c.Keep(now, held)
			require.EqualError(t, c.Announce(waiting), refused)
			held = nil
			for _, p := range now[1:] {
				require.NoError(t, c.Announce(p))
				held = append(held, p.Gateway)
			}
			c = NewClaims(nil)
			c.Keep(now, held)
			require.NoError(t, c.Announce(waiting))
		})
	}
}

// The binary search finds what comparing with every network finds.
func TestClaimsOverlap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		c := NewClaims(nil)
		var accepted []Peer
		for i := range 200 {
			ip := netip.AddrFrom4([4]byte{192, 0, byte(i / 256), byte(i)})
			n := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(random.IntN(4)), byte(random.IntN(256)), 0}),
				10+random.IntN(15)).Masked()
			p := claiming(fmt.Sprintf("c%d", random.IntN(20)), ip.String(), n.String())
			p.Name = ip.String()
			free := !slices.ContainsFunc(accepted,
				func(other Peer) bool { return other.Cluster != p.Cluster && other.Subnets[0].Overlaps(n) })
			err := c.Announce(p)
			require.Equal(t, free, err == nil, "%v of %s: %v", n, p.Cluster, err)
			if free {
				accepted = append(accepted, p)
			}
		}
		require.True(
			t,
			slices.IsSortedFunc(c.networks,
				func(a, b networkClaim) int { return a.network.Addr().Compare(b.network.Addr()) }),
		)
	}
}
