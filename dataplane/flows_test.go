package dataplane

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A connection is in use if it is open, and had a packet within the time after which a bucket may
// move.
func TestLive(t *testing.T) {
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		entry Tracked
		want  bool
	}{
		"busy": {
			Tracked{Flow: Flow{Proto: "tcp"}, State: TCPEstablished, Left: day - time.Second},
			true,
		},
		"idle for almost long enough": {
			Tracked{Flow: Flow{Proto: "tcp"}, State: TCPEstablished, Left: day - BucketIdle + time.Second},
			true,
		},
		"idle": {
			Tracked{Flow: Flow{Proto: "tcp"}, State: TCPEstablished, Left: day - BucketIdle},
			false,
		},
		"busy, not acknowledged": {
			Tracked{Flow: Flow{Proto: "tcp"}, State: TCPEstablished, Left: unacknowledged},
			true,
		},
		"idle, never acknowledged": {
			Tracked{Flow: Flow{Proto: "tcp"}, State: TCPEstablished, Left: unacknowledged - BucketIdle},
			false,
		},
		"opening": {Tracked{Flow: Flow{Proto: "tcp"}, State: 1, Left: time.Second}, true},
		"one side has closed it": {
			Tracked{Flow: Flow{Proto: "tcp"}, State: TCPCloseWait, Left: 51 * time.Second},
			true,
		},
		"only one side is seen": {
			Tracked{Flow: Flow{Proto: "tcp"}, State: TCPFinWait, Left: 110 * time.Second},
			false,
		},
		"the other is about to": {
			Tracked{Flow: Flow{Proto: "tcp"}, State: TCPLastAck, Left: 29 * time.Second},
			false,
		},
		"waiting": {Tracked{Flow: Flow{Proto: "tcp"}, State: 7, Left: 119 * time.Second}, false},
		"closed": {
			Tracked{Flow: Flow{Proto: "tcp"}, State: TCPClose, Left: 9 * time.Second},
			false,
		},
		"UDP":  {Tracked{Flow: Flow{Proto: "udp"}, Left: 9 * time.Second}, true},
		"ICMP": {Tracked{Flow: Flow{Proto: "icmp"}, Left: 29 * time.Second}, false},
	} {
		require.Equal(t, test.want, test.entry.Live(day), name)
	}
	require.True(t,
		Tracked{Flow: Flow{Proto: "tcp"}, State: TCPEstablished, Left: 100 * time.Second}.Live(100*time.Second),
		"a short timeout")
}

// A connection counts if one end is in another cluster, and the other end not on the node itself.
func TestBetween(t *testing.T) {
	nets := func(texts ...string) (out []netip.Prefix) {
		for _, text := range texts {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	counts := Between(nets("10.2.0.0/16", "10.3.0.0/24", "10.3.1.0/24"), nets("10.1.7.0/24", "172.18.0.2/32"))
	for _, test := range []struct {
		src, dst, replies string
		want              bool
	}{
		{"10.1.5.5", "10.2.0.9", "10.2.0.9", true},
		{"10.1.5.5", "10.3.1.9", "10.3.1.9", true},
		{"10.1.5.5", "10.3.2.9", "10.3.2.9", false},
		{"10.1.7.5", "10.2.0.9", "10.2.0.9", false},
		{"172.18.0.2", "10.2.0.9", "10.2.0.9", false},
		{"10.2.0.9", "10.96.0.1", "10.1.5.5", true},
		{"10.2.0.9", "10.96.0.1", "10.1.7.5", false},
		{"10.1.5.5", "10.1.6.6", "10.1.6.6", false},
	} {
		entry := Tracked{
			Flow: Flow{
				Src: netip.MustParseAddrPort(test.src + ":1"),
				Dst: netip.MustParseAddrPort(test.dst + ":80"),
			},
			Replies: netip.MustParseAddrPort(test.replies + ":80"),
		}
		require.Equal(t, test.want, counts(entry), "%v, replies from %s", entry.Flow, test.replies)
	}
}
