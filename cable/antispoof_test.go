package cable

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
)

// Networks of clusters are sorted, and none contains another. Barred networks that overlap those of
// a cluster are left out, on either side of it.
func TestClusterNets(t *testing.T) {
	p := netip.MustParsePrefix
	of := func(cluster string, nets ...string) (out []dataplane.ClusterNet) {
		for _, n := range nets {
			out = append(out, dataplane.ClusterNet{Net: p(n), Cluster: cluster})
		}
		return out
	}
	all := append(
		of("west", "10.2.0.0/16", "10.2.0.0/16", "172.18.0.3/32"),
		of("north", "10.8.0.0/14", "10.4.0.0/16")...)
	barred := []netip.Prefix{p("10.9.0.0/16"), p("10.0.0.0/13"), p("10.3.0.0/16"), p("10.3.4.0/24"), p("10.4.0.0/15")}
	want := append(of("west", "10.2.0.0/16"), of("", "10.3.0.0/16")...)
	want = append(append(want, of("north", "10.4.0.0/16", "10.8.0.0/14")...), of("west", "172.18.0.3/32")...)
	require.Equal(t, want, clusterNets(all, barred))
	require.Empty(t, clusterNets(nil, nil))
}

// The networks of a cluster have one address that stands for it, whatever gateways it has. Peers
// with a VXLAN cable send their networks inside VXLAN packets; where another cable carries these,
// only their own address is behind its device.
func TestPeerNetworks(t *testing.T) {
	p := netip.MustParsePrefix
	ip := netip.MustParseAddr
	peer := func(cluster string, nets ...string) Cable {
		c := Cable{Peer: Peer{Gateway: Gateway{Cluster: cluster}}}
		for _, n := range nets {
			c.Subnets = append(c.Subnets, p(n))
		}
		return c
	}
	c := Cabling{Peers: []Cable{
		peer("west", "10.2.0.0/16", "10.96.0.0/16"),
		peer("west", "10.96.0.0/16", "10.2.0.0/17"),
		peer("north", "10.3.0.0/16"),
		peer("east", "10.4.0.0/16"),
		peer("south", "10.5.0.0/16"),
	}}
	require.Equal(t, []PeerNet{
		{Net: p("10.2.0.0/16"), Peer: ip("244.0.0.2")},
		{Net: p("10.96.0.0/16"), Peer: ip("244.0.0.2")},
		{Net: p("244.0.0.2/32"), Peer: ip("244.0.0.2")},
		{Net: p("244.0.0.3/32"), Peer: ip("244.0.0.2")},
		{Net: p("244.0.0.5/32"), Peer: ip("242.0.0.5")},
	}, c.peerNetworks([]Link{
		{Device: "w", StateDevice: "w", IP: ip("244.0.0.3")},
		{Device: "w", StateDevice: "w", IP: ip("244.0.0.2")},
		{Device: "v", IP: ip("241.0.0.4"), Outer: ip("192.0.2.4")},
		{Device: "x", StateDevice: "x", IP: ip("245.0.0.4"), Outer: ip("192.0.2.5")},
		{Device: "y", StateDevice: "w", IP: ip("242.0.0.5"), Outer: ip("244.0.0.5")},
	}))
	require.Empty(t, Cabling{}.peerNetworks(nil))
}

// Packets may be forwarded to a cable from all networks of this cluster: a gateway whose cable is
// down hands over answers of exported Services, whose source it has translated back to a global
// address.
func TestForwardedToCables(t *testing.T) {
	p := netip.MustParsePrefix
	c := Cabling{
		Local: Local{
			Pods:   []netip.Prefix{p("10.1.0.0/16")},
			Svcs:   []netip.Prefix{p("10.96.0.0/12")},
			Global: []netip.Prefix{p("242.1.0.0/16")},
		},
	}
	a := c.antispoof(dataplane.State{}, nil, nil, nil)
	require.Equal(t, []netip.Prefix{p("10.1.0.0/16"), p("10.96.0.0/12"), p("242.1.0.0/16")}, a.LocalNetworks)
}
