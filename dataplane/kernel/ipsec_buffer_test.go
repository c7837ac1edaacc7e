//go:build linux

package kernel

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"subctl/dataplane/kernel/link"
	"subctl/dataplane/kernel/strongswan"

	"github.com/stretchr/testify/require"
)

// A daemon that handles ESP packets itself loses none of those that come while it does not get a
// CPU for a moment: here for two seconds, with 240 packets.
func TestIPsecBurst(t *testing.T) {
	if link.IPsecEngine().Name != strongswan.Engine {
		t.Skip("the kernel handles ESP packets")
	}
	a, b := ipsecPair(t, nil)
	upBoth(t, a, b)
	a.ns.Run("ping -c1 -W2 -I 10.1.0.1 10.2.0.1")
	require.NoError(t, syscall.Kill(pid(t, b), syscall.SIGSTOP))
	ended := a.ns.Ping(120, "-s 1200 -I 10.1.0.1 10.2.0.1")
	time.Sleep(2 * time.Second)
	require.NoError(t, syscall.Kill(pid(t, b), syscall.SIGCONT))
	a.ns.Run("ping -c1 -W5 -I 10.1.0.1 10.2.0.1") // after what waited
	ended()
	dropped := b.ns.Run(`awk 'NR > 1 {n += $NF} END {print n}' /proc/net/udp`)
	require.Equal(t, "0", strings.TrimSpace(dropped), "packets that its sockets had no room for")
}
