//go:build linux

package conntrack

import (
	"net"
	"net/netip"
	"runtime"
	"testing"

	"subctl/internal/nstest"
	"subctl/internal/prefix"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Whoever can send packets fills the connection tracking of a node, and a member that announces
// other networks again and again has agents look for the connections that end. That needs no memory
// for the others, and ends all of those, however many there are.
func TestHostileConnections(t *testing.T) {
	ns := nstest.New(t, "node")
	ns.Run(
		"iptables -A OUTPUT -m conntrack --ctstate NEW; ip addr add 192.0.2.1/24 dev lo; ip addr add 10.1.0.5/32 dev lo; ip addr add 10.2.0.5/32 dev lo")
	var h *Table
	ns.Do(func() { h = open(t) })
	const each = 2*mostChanged + 1000
	ns.Do(func() {
		for _, to := range []string{"10.1.0.5", "10.2.0.5"} {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			require.NoError(t, err)
			for port := range each {
				_ = unix.Sendto(fd, []byte("x"), 0,
					&unix.SockaddrInet4{Port: 10000 + port, Addr: [4]byte(net.ParseIP(to).To4())})
			}
			require.NoError(t, unix.Close(fd))
		}
	})
	count := func(network string) (n int) {
		all := prefix.ContainsFunc([]netip.Prefix{netip.MustParsePrefix(network)})
		ns.Do(func() {
			require.NoError(
				t,
				h.conn.Each(unix.NFNL_SUBSYS_CTNETLINK<<8|ctGet, []byte{unix.AF_INET, 0, 0, 0}, func(m []byte) {
					if f, ok := parseTracked(m); ok && all(f.Dst.Addr()) {
						n++
					}
				}),
			)
		})
		return n
	}
	before := count("10.2.0.0/16")
	require.Greater(t, before, each/2, "connection tracking has room for them")
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	ns.Do(func() { require.NoError(t, h.EndNetworks([]netip.Prefix{netip.MustParsePrefix("10.3.0.0/16")}, nil)) })
	runtime.ReadMemStats(&end)
	all := count("0.0.0.0/0")
	require.Less(t, (end.TotalAlloc-start.TotalAlloc)/uint64(all), uint64(300),
		"bytes for each of %d connections, of which none ends: it was 855 when all were kept", all)
	require.Greater(t, count("10.1.0.0/16"), mostChanged)
	ns.Do(func() { require.NoError(t, h.EndNetworks([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, nil)) })
	require.Zero(t, count("10.1.0.0/16"))
	require.Equal(t, before, count("10.2.0.0/16"))
	for _, bits := range []uint32{0x8000, 0x8000, 0x18000} { // a CNF marks them, and again
		ns.Do(func() { require.NoError(t, MarkConnections(0, bits)) })
	}
	ns.Do(func() {
		require.NoError(
			t,
			h.conn.Each(unix.NFNL_SUBSYS_CTNETLINK<<8|ctGet, []byte{unix.AF_INET, 0, 0, 0},
				func(m []byte) { require.Equal(t, uint32(0x18000), connectionMark(m)) }),
		)
	})
}
