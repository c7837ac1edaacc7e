package drivers_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/cable/drivers"
)

// A member that chooses the address of its gateway so that its next hop on another VNI gets the ID
// of that of an older cluster changes nothing for that cluster, wherever its name is sorted.
func TestHostileNextHop(t *testing.T) {
	cableTo := func(cluster string, address netip.Addr) cable.Cable {
		c := cable.Cable{Peer: peer(t, 2), Driver: drivers.Find("vxlan")}
		c.Cluster = cluster
		c.Name = "cable-" + cluster
		c.PrivateIP = address
		c.Address = address
		c.Config = cable.Config{"vxlanID": "2000"}
		return c
	}
	hops := func(clusters []string, cables ...cable.Cable) (ids []uint32) {
		_, links, err := cable.Plan(cable.Cabling{Local: local(1), Peers: cables, Clusters: clusters})
		require.NoError(t, err)
		for _, l := range links {
			ids = append(ids, l.Hop)
		}
		return ids
	}
	victim := cableTo("victim", netip.MustParseAddr("172.18.2.11"))
	attacker := cableTo("attacker", netip.MustParseAddr("10.99.222.114"))
	attacker.Subnets = []netip.Prefix{netip.MustParsePrefix("10.113.0.0/16")}
	id := hops(nil, victim)[0]
	require.Equal(t, id, hops(nil, attacker)[0], "they collide")
	both := hops([]string{"victim", "attacker"}, attacker, victim)
	require.Equal(t, id, both[1])
	require.NotEqual(t, id, both[0])
	require.Equal(t, id, hops([]string{"victim"}, attacker, victim)[1], "the attacker is new")
	require.Equal(t, id, hops([]string{"attacker", "victim"}, attacker, victim)[0], "the first one keeps it")
}
