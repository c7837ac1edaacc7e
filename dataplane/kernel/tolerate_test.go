//go:build linux

package kernel

import (
	"net"
	"net/netip"
	"testing"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Only connections with other clusters that the node translates are tolerated: connection tracking judges all others as before.
func TestTolerate(t *testing.T) {
	ns := nstest.New(t, "node")
	ns.Run("for a in 10.1.0.5 10.2.0.5 10.9.0.5; do ip addr add $a/32 dev lo; done; ip route add 10.96.0.1 dev lo; iptables -t nat -A OUTPUT -d 10.96.0.1 -p tcp -j DNAT --to-destination 10.1.0.5")
	var h *Host
	ns.Do(func() {
		var err error
		h, err = New(dataplane.GatewayOwner)
		require.NoError(t, err)
		l, err := net.Listen("tcp4", "10.1.0.5:80")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		for _, from := range []string{"10.2.0.5", "10.9.0.5"} {
			for _, to := range []string{"10.96.0.1:80", "10.1.0.5:80"} {
				c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp4", to)
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
			}
		}
	})
	t.Cleanup(h.Close)
	tolerated := func() (out []string) {
		ns.Do(func() {
			require.NoError(t, h.conn.Each(unix.NFNL_SUBSYS_CTNETLINK<<8|ctGet, netlink.NetfilterHeader(unix.AF_INET), func(m []byte) {
				if c, ok := parseTracked(m); ok && liberal(m) {
					out = append(out, c.Src.Addr().String()+" to "+c.Dst.String())
				}
			}))
		})
		return out
	}
	require.Empty(t, tolerated())
	for range 2 { // the second time, there is nothing to do
		ns.Do(func() { require.NoError(t, h.Tolerate([]netip.Prefix{cidr("10.2.0.0/16")})) })
		require.Equal(t, []string{"10.2.0.5 to 10.96.0.1:80"}, tolerated())
	}
	ns.Do(func() { require.NoError(t, h.Tolerate(nil)) })
}
