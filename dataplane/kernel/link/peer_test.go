//go:build linux

package link

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// wgPeer returns a peer with an endpoint, or with none.
func wgPeer(endpoint string) dataplane.WireGuardPeer {
	p := dataplane.WireGuardPeer{
		Dev:       dataplane.WireGuardDevice,
		Public:    dataplane.PublicKey{8},
		Preshared: dataplane.Secret{1},
		Keepalive: 25,
	}
	if endpoint != "" {
		p.Endpoint = netip.MustParseAddrPort(endpoint)
	}
	return p
}

// A peer with a recent handshake keeps its endpoint, whatever is planned. A silent peer is
// looked for at the planned endpoint.
func TestRoaming(t *testing.T) {
	now := time.Now()
	at := wgPeer("172.18.0.9:5000").Endpoint
	peer := func(age time.Duration) wgtypes.Peer {
		p := wgtypes.Peer{
			PublicKey:                   wgtypes.Key(wgPeer("").Public),
			PresharedKey:                wgtypes.Key{1},
			PersistentKeepaliveInterval: 25 * time.Second,
		}
		p.Endpoint = net.UDPAddrFromAddrPort(at)
		if age != 0 {
			p.LastHandshakeTime = now.Add(-age)
		}
		return p
	}
	planned := wgPeer("172.18.0.3:4501")
	here := wgPeer(at.String())
	nowhere := wgPeer("")
	for name, c := range map[string]struct {
		age                    time.Duration
		planned, here, nowhere bool
	}{
		"never":       {0, false, true, true},
		"just now":    {time.Second, true, true, true},
		"still valid": {rejectAfter - time.Second, true, true, true},
		"expired":     {rejectAfter + time.Second, false, true, true},
	} {
		have := observedPeer(dataplane.WireGuardDevice, peer(c.age))
		require.Equal(t, c.planned, have.Equal(planned), name)
		require.Equal(t, c.here, have.Equal(here), name)
		require.Equal(t, c.nowhere, have.Equal(nowhere), name)
	}
}
