package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"subctl/dataplane"
	"subctl/internal/nstest"
)

// A member sends neither from a global address of another cluster, nor to an address that the cluster uses itself.
func TestHostileGlobalPackets(t *testing.T) {
	fabric := newFabric(t)
	east, west, north := globalSide(t, fabric, 1, "east", 1, nodeNames...), globalSide(t, fabric, 2, "west", 1, nodeNames...), globalSide(t, fabric, 3, "north", 1, nodeNames...)
	for _, s := range []*side{east, west, north} {
		s.own("worker")
		s.answer(t)
		for _, ns := range s.nodes { // as careless as a node may be
			ns.Run("for d in /proc/sys/net/ipv4/conf/*; do echo 0 >$d/rp_filter; done; iptables -P FORWARD ACCEPT")
		}
	}
	east.sync(t, west, north)
	west.sync(t, east, north)
	north.sync(t, east, west)
	tunnel := func(src, dst string) func(int) []byte {
		return func(marker int) []byte {
			packet := nstest.IPv4(src, dst, unix.IPPROTO_UDP, nstest.UDP(9, marker, []byte("x")))
			in := nstest.VXLAN(dataplane.CableVNI, vtepMAC(dataplane.VXLANNet, "172.18.2.11"), packet)
			return nstest.IPv4("172.18.3.11", "172.18.2.11", unix.IPPROTO_UDP, nstest.UDP(9, dataplane.VXLANPort, in))
		}
	}
	from, victim := north.nodes["gw"], west.pods["worker"]
	all := []attack{
		{"from the own address of another cluster's pod", from, tunnel(east.ownIP("worker"), west.ownIP("worker")), victim},
		{"from the shared address of another cluster", from, tunnel(east.egressIP(0), west.ownIP("worker")), victim},
		{"to a pod by its address in its cluster", from, tunnel(north.ownIP("worker"), west.podIP("worker")), victim},
	}
	repelled(t, all, func() {
		for _, s := range []*side{east, north} {
			_, client, err := inquire(s.pods["worker"], "tcp4", west.ownIP("worker")+":8080")
			require.NoError(t, err)
			require.Equal(t, s.ownIP("worker"), client)
		}
	})
	for _, ns := range west.nodes {
		ns.Run("for o in gateway route; do nft delete table ip submariner-$o-antispoof 2>/dev/null; done; true")
	}
	succeed(t, all)
}
