//go:build linux

package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/internal/nstest"
)

// A pod forwards nothing before it has its table, which a container that starts again finds.
func TestStopForwarding(t *testing.T) {
	ns := nstest.New(t, "pod")
	ns.Run("ip link add net0 type veth peer name net1")
	forwarding := func() string {
		return ns.Run("cat /proc/sys/net/ipv4/conf/net0/forwarding /proc/sys/net/ipv4/conf/net1/forwarding")
	}
	on := func() {
		ns.Run("sysctl -qw net.ipv4.conf.net0.forwarding=1 net.ipv4.conf.net1.forwarding=1 net.ipv4.conf.net1.rp_filter=2")
	}
	stop := func() {
		ns.Do(func() { require.NoError(t, StopForwarding("ours")) })
	}
	on()
	stop()
	require.Equal(t, "0\n0\n", forwarding())
	require.Equal(t, "2\n", ns.Run("cat /proc/sys/net/ipv4/conf/net1/rp_filter"), "nothing else is changed")
	on()
	ns.Run("nft add table ip other")
	stop()
	require.Equal(t, "0\n0\n", forwarding())
	on()
	ns.Run("nft add table ip ours")
	stop()
	require.Equal(t, "1\n1\n", forwarding())
}
