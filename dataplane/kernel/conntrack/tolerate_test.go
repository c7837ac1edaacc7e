//go:build linux

package conntrack

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"
	"subctl/internal/nstest"
	"subctl/internal/prefix"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Only connections with other clusters that the node translates are tolerated: connection tracking
// judges all others as before.
func TestTolerate(t *testing.T) {
	ns := nstest.New(t, "node")
	ns.Run(
		"for a in 10.1.0.5 10.2.0.5 10.9.0.5; do ip addr add $a/32 dev lo; done; ip route add 10.96.0.1 dev lo; iptables -t nat -A OUTPUT -d 10.96.0.1 -p tcp -j DNAT --to-destination 10.1.0.5")
	var h *Table
	ns.Do(func() {
		h = open(t)
		l, err := net.Listen("tcp4", "10.1.0.5:80")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		for _, from := range []string{"10.2.0.5", "10.9.0.5"} {
			for _, to := range []string{"10.96.0.1:80", "10.1.0.5:80"} {
				c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp4",
					to)
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
			}
		}
	})
	tolerated := func() (out []string) {
		ns.Do(func() {
			require.NoError(
				t,
				h.conn.Each(unix.NFNL_SUBSYS_CTNETLINK<<8|ctGet, netlink.NetfilterHeader(unix.AF_INET), func(m []byte) {
					if c, ok := parseTracked(m); ok && liberal(m) {
						out = append(out, c.Src.Addr().String()+" to "+c.Dst.String())
					}
				}),
			)
		})
		return out
	}
	read := func(q dataplane.FlowQuery) int {
		t.Helper()
		var flows dataplane.Flows
		ns.Do(func() {
			var err error
			flows, err = h.Flows(q)
			require.NoError(t, err)
			require.NoError(t, flows.Rigid)
		})
		return flows.Count
	}
	require.Equal(t, 2, read(dataplane.FlowQuery{Networks: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}}))
	require.Empty(t, tolerated(), "nobody has asked for it")
	for range 2 { // the second time, there is nothing to do
		require.Equal(t, 2, read(dataplane.FlowQuery{Networks: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, Tolerate: true}),
			"the same dump counts")
		require.Equal(t, []string{"10.2.0.5 to 10.96.0.1:80"}, tolerated())
	}
	require.Zero(t, read(dataplane.FlowQuery{Tolerate: true}))
	ns.Do(func() {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("10.2.0.5"), Port: 4000}}).DialContext(
			t.Context(), "tcp4", "10.96.0.1:80")
		require.NoError(t, err)
		require.NoError(t, c.Close())
	})
	read(dataplane.FlowQuery{Networks: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, Tolerate: true})
	require.Len(t, tolerated(), 2, "the next connection with its ports may have begun elsewhere, and come here")
}

// Connections are tolerated as they begin: one that moves to another gateway at once may come back
// at once.
func TestTolerateNew(t *testing.T) {
	ns := nstest.New(t, "node")
	ns.Run(
		"for a in 10.1.0.5 10.2.0.5 10.9.0.5; do ip addr add $a/32 dev lo; done; ip route add 10.96.0.1 dev lo; iptables -t nat -A OUTPUT -d 10.96.0.1 -p tcp -j DNAT --to-destination 10.1.0.5")
	tolerated := func(h *Table) (out []string) {
		require.NoError(
			t,
			h.conn.Each(unix.NFNL_SUBSYS_CTNETLINK<<8|ctGet, netlink.NetfilterHeader(unix.AF_INET), func(m []byte) {
				if c, ok := parseTracked(m); ok && liberal(m) {
					out = append(out, c.Src.Addr().String()+" to "+c.Dst.String())
				}
			}),
		)
		return out
	}
	ns.Do(func() {
		h := open(t)
		l, err := net.Listen("tcp4", "10.1.0.5:80")
		require.NoError(t, err)
		defer l.Close()
		connect := func(from, to string) {
			c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp4", to)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
		}
		ctx, stop := context.WithCancel(t.Context())
		ended, err := h.TolerateNew(ctx, prefix.ContainsFunc([]netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}))
		require.NoError(t, err)
		for _, from := range []string{"10.2.0.5", "10.9.0.5"} {
			for _, to := range []string{"10.96.0.1:80", "10.1.0.5:80"} {
				connect(from, to)
			}
		}
		for tries := 0; len(tolerated(h)) == 0 && tries < 100; tries++ {
			time.Sleep(50 * time.Millisecond)
		}
		require.Equal(t, []string{"10.2.0.5 to 10.96.0.1:80"}, tolerated(h),
			"established by now, with the flag that it got at its first packet")
		require.Empty(t, ended)
		stop()
		require.NoError(t, <-ended)
		connect("10.2.0.5", "10.96.0.1:80")
		require.Len(t, tolerated(h), 1, "nobody follows any more")
	})
}

// Reading all connections takes long on a busy node: nothing else that the agent asks of the kernel
// waits for it, nor the other way round.
func TestFlowsBeside(t *testing.T) {
	ns := nstest.New(t, "node")
	ns.Run("ip addr add 10.1.0.5/32 dev lo; iptables -A OUTPUT -m conntrack --ctstate NEW")
	var h *Table
	ns.Do(func() {
		h = open(t)
		c, err := net.Dial("udp4", "10.1.0.5:53")
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write([]byte("x"))
		require.NoError(t, err)
	})
	read := make(chan error, 2)
	reading := false
	ns.Do(func() {
		require.NoError(
			t,
			h.conn.Each(unix.NFNL_SUBSYS_CTNETLINK<<8|ctGet, netlink.NetfilterHeader(unix.AF_INET), func([]byte) {
				if reading {
					return
				}
				reading = true
				go func() {
					_, err := h.Flows(
						dataplane.FlowQuery{Networks: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, Tolerate: true})
					read <- err
				}()
				select {
				case err := <-read:
					require.NoError(t, err)
				case <-time.After(10 * time.Second):
					t.Error("it waits for the end of what another goroutine asks")
				}
			}),
		)
	})
	require.True(t, reading, "there is a connection")
}
