//go:build linux

package agent

import (
	"testing"
	"time"

	"subctl/internal/nstest"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// A connection that is deleted and created again has nothing sent in clear meanwhile. If it is not
// created again, packets follow the other routes after a time.
func TestConnectionThatIsReplaced(t *testing.T) {
	s := newSite(t)
	// There is nobody at the other end: all packets are dropped while the connection is there.
	tunnel := rest.Config{
		Remotes: []rest.Remote{
			{Name: "hub", Gateway: "203.0.113.9", Auth: "psk", PreSharedKey: "x", Connections: []rest.Connection{
				{Name: "a", Type: "tunnel", Mode: "add", LocalSubnet: "192.168.1.0/24", RemoteSubnet: "192.0.2.0/24"},
			}},
		},
	}
	s.cnf.Run("ip route add 192.0.2.0/24 via 198.51.100.1")
	clear := func() bool {
		_, err := s.lan.Try("ping -c1 -W1 " + nstest.Pattern + " 192.0.2.1")
		return err == nil
	}
	require.True(t, clear(), "without the tunnel, packets pass in clear")
	s.apply(tunnel)
	seen := s.cnf.Watch("net1")
	stop := s.lan.Start("exec ping -i 0.02 " + nstest.Pattern + " 192.0.2.1 >/dev/null")
	for range 3 {
		s.apply(rest.Config{})
		time.Sleep(testLinger / 6)
		s.apply(tunnel)
	}
	stop()
	require.False(t, seen().Marker, "packets leave in clear while the connection is away")

	s.apply(rest.Config{})
	deleted := time.Now()
	require.False(t, clear())
	s.until("packets follow the other routes", clear)
	require.Greater(t, time.Since(deleted), testLinger-time.Second)
	require.Less(t, time.Since(deleted), testLinger+3*time.Second, "nothing else makes the agent look")

	s.apply(tunnel)
	s.apply(rest.Config{Stopped: []string{"ipsec"}})
	require.True(t, clear(), "a stopped service ends it at once")
}
