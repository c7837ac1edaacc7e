//go:build linux

package kernel

import (
	"net/netip"
	"testing"
	"time"

	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The kernel of a remote gateway sends ICMP redirects about the node's own echoes, which go back
// the way they came. They end here, but are no reason to warn of its cluster. Other errors about
// the node's own packets to itself are.
func TestRedirectsAboutEchoesAreNotCounted(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	other := nstest.New(t, "other")
	nstest.Join(nstest.End{NS: ns, Dev: "up0", Addr: "172.30.0.1/24"},
		nstest.End{NS: other, Dev: "up0", Addr: "172.30.0.2/24"})
	const mac, own, remote = "02:00:00:00:00:01", "241.0.0.1", "241.0.0.2"
	ns.Run(
		"ip link add vx address " + mac +
			" type vxlan id 7 dstport 4502 dev up0 && ip link set vx up && ip addr add " + own + "/32 dev vx",
	)
	ns.Run(
		"nft 'add table ip probe; add chain ip probe in { type filter hook prerouting priority -250; }; add rule ip probe in iifname vx icmp type redirect counter'")
	settle(t, ns, h, state(t, tables(cable.Antispoof{
		Table: "submariner-gateway-antispoof", VXLANPorts: []int{4502}, DecapDevices: []string{"vx"},
		InnerSources:    []cable.InnerSource{{Outer: ip("172.30.0.2"), Net: cidr(remote + "/32")}},
		Echoes:          []cable.Echo{{Dev: "vx", Port: 4505, Own: ip(own)}},
		OwnNetworks:     []netip.Prefix{cidr(own + "/32")},
		ClusterNetworks: []dataplane.ClusterNet{{Net: cidr("172.30.0.2/32"), Cluster: "west"}},
	})...))
	errorOf := func(typ byte) []byte {
		echo := nstest.IPv4(own, own, unix.IPPROTO_UDP, nstest.UDP(9, 4505, nil))
		p := nstest.IPv4(remote, own, unix.IPPROTO_ICMP, nstest.ICMPError(typ, 1, echo))
		return nstest.IPv4("172.30.0.2", "172.30.0.1", unix.IPPROTO_UDP, nstest.UDP(9, 4502, nstest.VXLAN(7, mac, p)))
	}
	drops := func() map[string]uint64 {
		var got map[string]uint64
		ns.Do(func() {
			var err error
			got, err = h.Drops()
			require.NoError(t, err)
		})
		return got
	}
	redirect := errorOf(5)
	unreachable := errorOf(3)
	require.NoError(t, sendRaw(other, [][]byte{redirect, redirect, redirect, unreachable}))
	require.Eventually(t, func() bool { return drops()["west"] > 0 }, 10*time.Second, 20*time.Millisecond)
	require.Equal(t, map[string]uint64{"west": 1}, drops(), "only the other error is counted")
	require.Contains(t, ns.Run("nft list chain ip probe in"), "counter packets 0 ", "a redirect has passed")
}
