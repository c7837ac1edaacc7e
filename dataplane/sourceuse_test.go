package dataplane

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// Connections are counted by the address that they have in other clusters, and by destination;
// others are not. Whoever sends to many destinations hides none that has many connections already,
// and costs little memory.
func TestSourceUses(t *testing.T) {
	ap := netip.MustParseAddrPort
	uses := NewSourceUses([]netip.Prefix{netip.MustParsePrefix("242.1.0.0/16")})
	add := func(times int, proto, pod, to, as string) {
		for range times {
			uses.Add(Tracked{Flow: Flow{Proto: proto, Src: ap(pod), Dst: ap(to)}, Replies: ap(to), Returns: ap(as)})
		}
	}
	require.Empty(t, uses.Fullest())
	add(3, "tcp", "10.0.0.5:40000", "242.2.0.9:80", "242.1.0.1:40000")
	add(2, "udp", "10.0.0.5:40000", "242.2.0.9:80", "242.1.0.1:40000")
	add(4, "tcp", "10.0.0.6:40000", "242.2.0.8:80", "242.1.0.2:40000")
	add(9, "tcp", "10.0.0.5:40000", "10.0.0.9:80", "10.0.0.5:40000")  // within the cluster
	add(9, "tcp", "10.0.0.5:40000", "8.8.8.8:53", "172.18.0.2:40000") // to the Internet
	// an address of a pod's own is not translated here
	add(9, "tcp", "242.1.0.3:40000", "242.2.0.9:80", "242.1.0.3:4000")
	want := []SourceUse{
		{netip.MustParseAddr("242.1.0.2"), 4, 4, "tcp", ap("242.2.0.8:80")},
		{netip.MustParseAddr("242.1.0.1"), 5, 3, "tcp", ap("242.2.0.9:80")},
	}
	require.Equal(t, want, uses.Fullest())
	require.Equal(t, "tcp 242.2.0.8:80", want[0].Busiest())
	require.Equal(t, "icmp 242.2.0.8", SourceUse{Proto: "icmp", To: ap("242.2.0.8:0")}.Busiest())

	for i := range 3 * maxDestinations {
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{242, 3, byte(i >> 8), byte(i)}), uint16(i>>16))
		uses.Add(
			Tracked{Flow: Flow{Proto: "udp", Src: ap("10.0.0.7:1"), Dst: to}, Replies: to, Returns: ap("242.1.0.1:1")})
		if i%3 == 0 {
			add(1, "tcp", "10.0.0.5:40000", "242.2.0.7:80", "242.1.0.1:40000")
		}
		require.LessOrEqual(t, len(uses.to), maxDestinations)
	}
	fullest := uses.Fullest()[0]
	require.Equal(t, 5+4*maxDestinations, fullest.Connections)
	require.Equal(t, "tcp 242.2.0.7:80", fullest.Busiest())
	require.InDelta(t, maxDestinations, fullest.Most, 16, "almost all are counted")
	for i := range 100 {
		add(1, "tcp", "10.0.0.5:40000", "242.2.0.9:80",
			netip.AddrPortFrom(netip.AddrFrom4([4]byte{242, 1, 1, byte(i)}), 1).String())
	}
	require.Len(t, uses.Fullest(), MaxSources)
	require.Empty(t, SourceUse{}.Busiest())
}
