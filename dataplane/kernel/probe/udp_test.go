//go:build linux

package probe

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/internal/nstest"
)

func listenUDP(t *testing.T, ns *nstest.NS, port int) (u *UDP) {
	t.Helper()
	ns.Do(func() {
		var err error
		u, err = ListenUDP(t.Context(), port)
		require.NoError(t, err)
	})
	t.Cleanup(func() { u.Close() })
	return u
}

// An answer is sent from the address that the request was sent to, not from the address that
// the route would choose.
func TestUDPAnswersFromWhereItWasAsked(t *testing.T) {
	a := nstest.New(t, "a")
	b := nstest.New(t, "b")
	nstest.Join(nstest.End{NS: a, Dev: "eth0", Addr: "192.0.2.1/24"},
		nstest.End{NS: b, Dev: "eth0", Addr: "192.0.2.2/24"})
	b.Run("ip addr add 192.0.2.3/24 dev eth0")
	ask := listenUDP(t, a, 4490)
	answer := listenUDP(t, b, 4490)
	buf := make([]byte, 100)
	for _, addr := range []string{"192.0.2.2", "192.0.2.3"} {
		asked := netip.MustParseAddr(addr)
		require.NoError(t, ask.Send([]byte("hello"), netip.MustParseAddr("192.0.2.1"), netip.AddrPortFrom(asked, 4490)))
		n, from, to, err := answer.Receive(buf)
		require.NoError(t, err)
		require.Equal(t, "hello", string(buf[:n]))
		require.Equal(t, asked, to)
		require.NoError(t, answer.Send([]byte("you"), to, from))
		_, from, _, err = ask.Receive(buf)
		require.NoError(t, err)
		require.Equal(t, netip.AddrPortFrom(asked, 4490), from)
	}
}

// Datagrams are not fragmented: a datagram too large for the device is refused, a datagram too
// large for the path is lost, and an ICMP error does not keep the next one from being sent.
func TestUDPDoesNotFragment(t *testing.T) {
	a := nstest.New(t, "a")
	r := nstest.New(t, "r")
	b := nstest.New(t, "b")
	nstest.Join(nstest.End{NS: a, Dev: "eth0", Addr: "192.0.2.1/24"},
		nstest.End{NS: r, Dev: "west", Addr: "192.0.2.254/24"})
	nstest.Join(nstest.End{NS: r, Dev: "east", Addr: "198.51.100.254/24"},
		nstest.End{NS: b, Dev: "eth0", Addr: "198.51.100.1/24"})
	a.Run("ip route add default via 192.0.2.254")
	b.Run("ip route add default via 198.51.100.254")
	r.Run("sysctl -qw net.ipv4.ip_forward=1 && ip link set east mtu 1400")
	src := netip.MustParseAddr("192.0.2.1")
	to := netip.MustParseAddrPort("198.51.100.1:4490")
	ask := listenUDP(t, a, 4490)
	answer := listenUDP(t, b, 4490)
	require.ErrorIs(t, ask.Send(make([]byte, 1473), src, to), syscall.EMSGSIZE)
	for range 3 { // the router's ICMP error has arrived by the second time
		require.NoError(t, ask.Send(make([]byte, 1373), src, to))
		require.NoError(t, ask.Send(make([]byte, 1372), src, to))
		n, _, _, err := answer.Receive(make([]byte, 2000))
		require.NoError(t, err)
		require.Equal(t, 1372, n)
	}
}

func TestUDPPortTaken(t *testing.T) {
	ns := nstest.New(t, "a")
	listenUDP(t, ns, 4490)
	ns.Do(func() {
		_, err := ListenUDP(t.Context(), 4490)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		require.ErrorContains(t, err, "UDP port 4490")
	})
}
