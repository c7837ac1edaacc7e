package cnf

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/nstest"
	"subctl/sdewan/rest"
)

// A connection in the flow table leaves it when a tunnel takes its network, and is not added again while it passes through the tunnel. Nothing of it leaves in clear.
func TestIPsecFlows(t *testing.T) {
	nstest.Kernel(t, "flow-table")
	hub, edge := sites(t)
	for i, s := range []*site{hub, edge} {
		own, other := i+1, 2-i
		s.world.FlowTables = true
		s.world.Interfaces = []Interface{{Name: "wan", Device: "wan", Up: true}, {Name: "lan", Device: "lan", Up: true}}
		s.world.Addrs = []Addr{{Device: "wan", Prefix: netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", own))}, {Device: "lan", Prefix: netip.MustParsePrefix(fmt.Sprintf("10.%d.0.1/24", own))}}
		s.world.Routes = []MainRoute{
			{Dst: netip.MustParsePrefix("192.0.2.0/24"), Device: "wan"}, {Dst: netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/24", own)), Device: "lan"},
			{Dst: netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/24", other)), Device: "wan", Via: netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", other))},
		}
	}
	zones := []rest.Zone{{Name: "all", Network: []string{"wan", "lan"}}}
	clear := func() {
		hub.config, edge.config = rest.Config{Zones: zones}, rest.Config{Zones: zones}
		hub.sync()
		edge.sync()
	}
	clear()
	conn := echoed(t, edge.app, hub.app, "10.1.0.2:80")
	use := func() {
		t.Helper()
		require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
		for range 5 {
			_, err := conn.Write([]byte(nstest.Marker))
			require.NoError(t, err)
			_, err = conn.Read(make([]byte, 100))
			require.NoError(t, err)
		}
	}
	inTable := func(s *site) bool {
		return strings.Contains(s.ns.Run("grep ' dport=80 ' /proc/net/nf_conntrack"), "[OFFLOAD]")
	}
	seen := edge.ns.Watch("wan")
	use()
	require.True(t, seen().Marker, "in clear")
	require.True(t, inTable(hub))
	require.True(t, inTable(edge))

	pair(hub, edge)
	hub.config.Zones, edge.config.Zones = zones, zones
	hub.sync()
	seen = edge.ns.Watch("wan")
	edge.sync()
	edge.up()
	hub.up()
	use()
	require.False(t, seen().Marker, "beside the tunnel")
	require.False(t, inTable(hub))
	require.False(t, inTable(edge))

	clear()
	use()
	require.True(t, inTable(hub))
	require.True(t, inTable(edge))
}

// echoed returns a connection to a server that answers with what it gets.
func echoed(t *testing.T, from, to *nstest.NS, at string) net.Conn {
	t.Helper()
	var l net.Listener
	var c net.Conn
	var err error
	to.Do(func() { l, err = net.Listen("tcp4", at) })
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 100)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if _, err := c.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	from.Do(func() { c, err = net.Dial("tcp4", at) })
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}
