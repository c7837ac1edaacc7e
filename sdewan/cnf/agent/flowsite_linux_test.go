//go:build linux

package agent

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"subctl/internal/nstest"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// newFlowSite returns a site that counts packets of established connections that pass the chains of the CNF.
func newFlowSite(t *testing.T, c rest.Config) *site {
	t.Helper()
	nstest.Kernel(t, "flow-table")
	s := newSite(t)
	s.apply(c)
	s.until("there is a flow table", func() bool { return strings.Contains(s.cnf.Run("nft list flowtables"), "net0") })
	s.cnf.Run("nft 'table inet watch { counter passed { }; chain forward { type filter hook forward priority 5; ct state established counter name passed; }; }'")
	return s
}

// passed returns how many packets of established connections have passed the chains.
func (s *site) passed() (n int) {
	s.t.Helper()
	out := s.cnf.Run("nft list counter inet watch passed")
	_, err := fmt.Sscanf(out[strings.Index(out, "packets"):], "packets %d", &n)
	require.NoError(s.t, err, out)
	return n
}

// entry returns the line of connection tracking about the connection of a client; "" if there is none.
func (s *site) entry(client net.Conn) string {
	_, port, _ := net.SplitHostPort(client.LocalAddr().String())
	for line := range strings.Lines(s.cnf.Run("cat /proc/net/nf_conntrack")) {
		if strings.Contains(line, " sport="+port+" ") {
			return line
		}
	}
	return ""
}

// fast waits until a connection is in the flow table, and requires that its packets pass no chain.
func (s *site) fast(c net.Conn) {
	s.t.Helper()
	s.until("the connection is in the flow table", func() bool {
		alive(s.t, c)
		return strings.Contains(s.entry(c), "[OFFLOAD]")
	})
	alive(s.t, c) // its last packet may have added it
	before := s.passed()
	for range 5 {
		alive(s.t, c)
	}
	require.Equal(s.t, before, s.passed())
}

// answersTo answers the datagrams that arrive at an address, and returns a client's socket for it.
func answersTo(t *testing.T, server, client *nstest.NS, at string) (c net.Conn) {
	t.Helper()
	answering(t, server, at)
	client.Do(func() {
		var err error
		c, err = net.Dial("udp4", at)
		require.NoError(t, err)
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// answering answers the datagrams that arrive at an address, and returns the socket.
func answering(t *testing.T, server *nstest.NS, at string) (l net.PacketConn) {
	t.Helper()
	server.Do(func() {
		var err error
		l, err = net.ListenPacket("udp4", at)
		require.NoError(t, err)
	})
	t.Cleanup(func() { l.Close() })
	go func() {
		buf := make([]byte, 100)
		for {
			n, from, err := l.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = l.WriteTo(buf[:n], from)
		}
	}()
	return l
}

// newFastConnection returns a CNF with a flow table, and a connection of the LAN in it.
func newFastConnection(t *testing.T, c rest.Config) (*site, net.Conn) {
	t.Helper()
	s := newFlowSite(t, c)
	server(t, s.far, "192.0.2.1:80")
	conn, _, err := dial(s.lan, "", "192.0.2.1:80")
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	s.fast(conn)
	return s, conn
}

// requireSilent requires that a connection has no answer for a second.
func requireSilent(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
}
