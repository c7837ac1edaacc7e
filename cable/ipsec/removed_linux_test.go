package ipsec

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/cable/keys"
	"subctl/internal/nstest"
)

// A cluster that was removed still has its keys, the public keys of the others and the pre-shared
// key, and its gateway goes on as before. As soon as a gateway has synced a plan without it, its
// sessions end, no packet of it gets through, and it gets no new session, while other tunnels stay.
func TestHostileRemovedCluster(t *testing.T) {
	for _, d := range []cable.Driver{Driver{}, Combined{}} {
		t.Run(d.Name(), func(t *testing.T) {
			nstest.Root(t)
			if d.Name() == cable.VXLANIPsec {
				nstest.Kernel(t, "esp")
			}
			a, b := gateways(t)
			connect(t, d, a, b, nil)
			ping := fmt.Sprintf("ping -c1 -W1 -I %s %s", b.pod().IP, a.pod().IP)
			b.ns.Run(ping)

			other := a.peer(t, d, b, nil) // a third cluster, so that charon keeps running
			key, err := keys.Generate()
			require.NoError(t, err)
			other.Cluster = "c3"
			other.Name = "cable-c3"
			other.PublicKey = key.Public()
			other.PrivateIP = netip.MustParseAddr("172.18.0.3")
			other.Address = netip.MustParseAddr("172.18.0.3")
			other.Subnets = []netip.Prefix{
				netip.MustParsePrefix("10.103.0.0/16"),
				netip.MustParsePrefix("10.113.0.0/16"),
			}
			want, links, err := cable.Plan(
				cable.Cabling{Local: a.local, Peers: []cable.Cable{{Peer: other, Driver: d}}})
			require.NoError(t, err)
			a.sync(t, want)
			require.Eventually(t, func() bool {
				states, err := b.host.CableStates()
				return err == nil && len(states) == 1 && !states[0].Up
			}, 30*time.Second, 10*time.Millisecond, "its session ends")
			ended := time.Now()
			for time.Since(ended) < 8*time.Second { // its charon tries again meanwhile
				_, err = b.ns.Try(ping)
				require.Error(t, err, "%s after its session ended", time.Since(ended))
				states, err := a.host.CableStates()
				require.NoError(t, err)
				for _, s := range states {
					require.Equal(t, links[0].State, s.Peer, "%s after its session ended", time.Since(ended))
					require.False(t, s.Up)
				}
				require.NotContains(t, a.ns.Run("ip xfrm state"), "172.18.0.2")
			}
			require.Empty(t, a.sync(t, want), "nothing of it is left to remove")
		})
	}
}
