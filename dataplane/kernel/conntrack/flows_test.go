//go:build linux

package conntrack

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

// The kernel's connections are counted: those that are open, to or from networks, translated or
// not.
func TestFlows(t *testing.T) {
	client := nstest.New(t, "client")
	gw := nstest.New(t, "gw")
	server := nstest.New(t, "server")
	nstest.Join(nstest.End{NS: client, Dev: "eth0", Addr: "10.2.0.9/24"},
		nstest.End{NS: gw, Dev: "eth0", Addr: "10.2.0.1/24"})
	nstest.Join(nstest.End{NS: gw, Dev: "eth1", Addr: "10.1.5.1/24"},
		nstest.End{NS: server, Dev: "eth0", Addr: "10.1.5.5/24"})
	client.Run("ip route add default via 10.2.0.1")
	server.Run("ip route add default via 10.1.5.1 && ip addr add 10.1.7.7/24 dev eth0")
	gw.Run("sysctl -qw net.ipv4.ip_forward=1 && ip route add 10.1.7.0/24 via 10.1.5.5 && " +
		"iptables -t nat -A PREROUTING -d 10.96.0.1 -p tcp -j DNAT --to-destination 10.1.5.5:80")
	var host *Table
	gw.Do(func() { host = open(t) })
	remote := []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}
	own := []netip.Prefix{netip.MustParsePrefix("10.1.7.0/24")}
	count := func() dataplane.Flows {
		t.Helper()
		var flows dataplane.Flows
		gw.Do(func() {
			var err error
			flows, err = host.Flows(dataplane.FlowQuery{Networks: remote, Except: own})
			require.NoError(t, err)
		})
		return flows
	}
	require.Zero(t, count().Count)

	server.Do(func() {
		l, err := net.Listen("tcp4", ":80")
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(c, c); c.Close() }()
			}
		}()
	})
	dial := func(network, to string) net.Conn {
		t.Helper()
		var c net.Conn
		client.Do(func() {
			var err error
			c, err = net.Dial(network, to)
			require.NoError(t, err)
			_, err = c.Write([]byte("x"))
			require.NoError(t, err)
		})
		t.Cleanup(func() { c.Close() })
		return c
	}
	service := dial("tcp4", "10.96.0.1:80")
	dial("udp4", "10.1.5.5:53")
	dial("tcp4", "10.1.7.7:80") // a pod of the node itself
	client.Run("ping -c 1 -W 1 10.1.5.5")
	got := count()
	require.Equal(t, 2, got.Count, "%v", got.Some)
	require.Equal(t, "tcp", got.Some[0].Proto)
	require.Equal(t, "10.96.0.1:80", got.Some[0].Dst.String())
	require.Equal(t, service.LocalAddr().String(), got.Some[0].Src.String())
	require.Equal(t, "udp", got.Some[1].Proto)

	_, err := service.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, service.Close())
	require.Eventually(t, func() bool { return count().Count == 1 }, 10*time.Second, 50*time.Millisecond)

	for range dataplane.MaxFlows * 3 {
		dial("udp4", "10.1.5.5:54")
	}
	got = count()
	require.Equal(t, 1+dataplane.MaxFlows*3, got.Count)
	require.Len(t, got.Some, dataplane.MaxFlows)
}
