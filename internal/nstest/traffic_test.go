//go:build linux

package nstest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What two namespaces send each other arrives, is seen, and what is lost is counted.
func TestTraffic(t *testing.T) {
	Root(t)
	a := New(t, "a")
	b := New(t, "b")
	Join(End{NS: a, Dev: "eth0", Addr: "192.0.2.1/24"}, End{NS: b, Dev: "eth0", Addr: "192.0.2.2/24"})
	a.Run("ip link set eth0 gso_max_segs 1")
	here := Host{NS: a, IP: "192.0.2.1"}
	there := Host{NS: b, IP: "192.0.2.2"}
	Until(t, here, there)
	seen := b.Watch("eth0")
	Reach(t, here, there, 1500)
	require.Equal(t, Sight{Longest: 1500, Fragments: true, Marker: true}, seen(),
		"pings larger than the MTU are in fragments")
	seen = b.Watch("eth0")
	a.Run("ping -c1 -W5 -s56 192.0.2.2")
	require.Equal(t, Sight{Longest: 84}, seen())

	ended := a.Ping(100, "192.0.2.2")
	_, lost := ended()
	require.Zero(t, lost)
	ended = a.Ping(100, "192.0.2.2")
	a.Run("ping -c1 -W5 192.0.2.2; ip link set eth0 down; sleep 0.3")
	sent, lost := ended()
	require.Greater(t, lost, 5, "of %d", sent)
}
