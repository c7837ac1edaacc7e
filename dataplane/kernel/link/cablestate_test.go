//go:build linux

package link

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"subctl/dataplane"
)

func TestPeerState(t *testing.T) {
	p := wgtypes.Peer{
		PublicKey:     wgtypes.Key{1},
		ReceiveBytes:  5,
		TransmitBytes: 6,
		Endpoint:      net.UDPAddrFromAddrPort(netip.MustParseAddrPort("172.18.0.3:4501")),
	}
	s := peerState(dataplane.WireGuardDevice, p)
	require.Equal(t, dataplane.CableState{
		Device: dataplane.WireGuardDevice, Peer: "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", Rx: 5, Tx: 6,
		Message: "no handshake yet: check that UDP packets reach the other side at 172.18.0.3:4501, and that it has this gateway's public key and the same pre-shared key",
	}, s)
	p.LastHandshakeTime = time.Now().Add(-time.Hour)
	s = peerState(dataplane.WireGuardDevice, p)
	require.True(t, s.Up, "an idle device agrees on no keys")
	require.Empty(t, s.Message)
	p.Endpoint = nil
	p.LastHandshakeTime = time.Time{}
	require.Contains(t, peerState(dataplane.WireGuardDevice, p).Message, "at an unknown address")
}

// A peer is silent if data was sent to it and nothing came back; an idle peer, and one that
// gets nothing but keepalives, is not.
func TestSilentPeer(t *testing.T) {
	type look struct {
		after  time.Duration
		rx, tx uint64
		silent bool
	}
	for name, looks := range map[string][]look{
		"idle": {{0, 100, 100, false}, {time.Hour, 100, 100, false}, {time.Hour, 100, 132, false}},
		"keepalives": {
			{0, 0, 0, false},
			{time.Minute, 0, 64, false},
			{time.Minute, 92, 160, false},
			{time.Minute, 92, 224, false},
		},
		"working": {
			{0, 0, 0, false},
			{time.Minute, 5000, 5000, false},
			{time.Minute, 5032, 90000, false},
		},
		"answers late": {
			{0, 100, 100, false},
			{time.Second, 100, 3000, false},
			{29 * time.Second, 100, 9000, false},
			{time.Second, 132, 9500, false},
			{time.Hour, 132, 9600, false},
		},
		"does not answer": {
			{0, 100, 100, false},
			{time.Second, 100, 3000, false},
			{29 * time.Second, 100, 9000, false},
			{time.Second, 100, 9500, true},
			{time.Hour, 100, 9500, true},
		},
		"answers again": {
			{0, 100, 100, false},
			{time.Second, 100, 3000, false},
			{time.Hour, 100, 3000, true},
			{time.Second, 192, 3200, false},
			{time.Hour, 192, 3200, false},
		},
		"idle for long, then data": {
			{0, 100, 100, false},
			{time.Hour, 100, 132, false},
			{time.Hour, 100, 9000, false},
			{5 * time.Second, 132, 9000, false},
		},
		"a new device": {
			{0, 100, 9000, false},
			{time.Second, 100, 40000, false},
			{time.Hour, 0, 148, false},
			{time.Hour, 0, 148, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			x := exchanged{}
			for i, l := range looks {
				now = now.Add(l.after)
				x = x.next(l.rx, l.tx, now)
				require.Equal(t, l.silent, x.isSilent(now), "look %d", i)
			}
		})
	}
}
