package wireguard

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/dataplane"
)

// A cluster that was removed still has its keys, the public keys of the others and the pre-shared
// key, and its gateway goes on as before. As soon as a gateway has synced a plan without it, no
// packet of it gets through, and it gets no new session, while other cables stay.
func TestHostileRemovedCluster(t *testing.T) {
	for _, d := range []cable.Driver{Driver{}, Combined{}} {
		t.Run(d.Name(), func(t *testing.T) {
			east, west, _ := newSides(t)
			connect(t, d, east, west)
			west.pod.Run(untilAnswered(east))

			l := local(t, east.n)
			l.Pods = l.Subnets
			l.PodIP = netip.MustParseAddr("10.111.1.1")
			want, _, err := cable.Plan(cable.Cabling{Local: l, Peers: []cable.Cable{{Peer: peer(t, 3), Driver: d}}})
			require.NoError(t, err)
			east.sync(t, want)
			synced := time.Now()
			for time.Since(synced) < 8*time.Second { // a handshake is tried again after 5 s
				_, err := west.pod.Try("ping -c1 -W1 " + east.podIP())
				require.Error(t, err, "%s after its removal", time.Since(synced))
				var states []dataplane.CableState
				east.gw.Do(func() { states, err = east.host.CableStates() })
				require.NoError(t, err)
				for _, s := range states {
					require.Equal(t, peer(t, 3).Gateway.Config[publicKeyKey], s.Peer)
					require.False(t, s.Up)
				}
			}
			require.Empty(t, east.sync(t, want), "nothing of it is left to remove")
			east.sync(t, nil)
		})
	}
}
