package probe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
)

// Echoes come from another port from time to time, and from none again while the other node may
// remember it, which has at most 6,000 of them in its table of connections.
func TestEchoSource(t *testing.T) {
	const remembered = 30 * time.Second // net.netfilter.nf_conntrack_udp_timeout
	for targets, perTarget := range map[int]int{1: 60, 100: 60, 1000: 6} {
		every := max(role.FastInterval, time.Duration(targets)*role.FastEach)
		now := time.Now()
		last := uint16(0)
		ports := map[uint16]bool{}
		for at := now; at.Before(now.Add(remembered)); at = at.Add(every / 10) {
			port := echoSource(at, every)
			require.GreaterOrEqual(t, port, uint16(firstEchoSource))
			require.True(t, port == last || !ports[port], "port %d again", port)
			last = port
			ports[port] = true
		}
		require.InDelta(t, perTarget, len(ports), 1)
	}
}
