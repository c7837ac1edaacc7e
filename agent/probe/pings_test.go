package probe

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

// Of the packets that arrive, only answers to our own pings count, whatever the others are.
func TestPong(t *testing.T) {
	s := &pingSocket{id: 7}
	packet := func(header []byte, typ icmp.Type, id int) []byte {
		b, err := (&icmp.Message{Type: typ, Body: &icmp.Echo{ID: id, Seq: 9, Data: []byte("nonce")}}).Marshal(nil)
		require.NoError(t, err)
		return append(append(header, make([]byte, int(header[0]&0xf)*4-len(header))...), b...)
	}
	plain := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0, 192, 0, 2, 1}
	options := append([]byte{0x4f}, plain[1:]...)
	for _, p := range [][]byte{packet(plain, ipv4.ICMPTypeEchoReply, 7), packet(options, ipv4.ICMPTypeEchoReply, 7)} {
		from, seq, data, ok := s.pong(p)
		require.True(t, ok)
		require.Equal(t, netip.MustParseAddr("192.0.2.1"), from)
		require.Equal(t, uint16(9), seq)
		require.Equal(t, "nonce", string(data))
		for n := range len(p) {
			if _, _, data, ok := s.pong(p[:n]); ok {
				require.NotEqual(t, "nonce", string(data), "a part of the packet")
			}
		}
	}
	none := append([]byte{0x41}, plain[1:]...)
	for _, p := range [][]byte{
		nil,
		packet(plain, ipv4.ICMPTypeEchoReply, 8),
		packet(plain, ipv4.ICMPTypeEcho, 7),
		append(none, make([]byte, 40)...),
	} {
		_, _, _, ok := s.pong(p)
		require.False(t, ok)
	}
}
