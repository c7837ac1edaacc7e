//go:build linux

package agent

import (
	"net"
	"strings"
	"testing"
	"time"

	"subctl/internal/nstest"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// These tests are about connections in the flow table of a CNF. That the table changes nothing else is what all other tests of traffic show on a kernel that has
// flow tables: see scripts/testkernel.

// translating returns a configuration with two uplinks, of which net1 is preferred, and with masquerading if that is wanted.
func translating(masq string) rest.Config {
	c := balance("1", "1", "2", "1")
	c.Zones = []rest.Zone{
		{Name: "lan", Network: []string{"net0"}, Input: "ACCEPT", Output: "ACCEPT", Forward: "REJECT"},
		{Name: "wan", Network: []string{"net1", "net2"}, Input: "REJECT", Output: "ACCEPT", Forward: "REJECT", Masq: masq},
	}
	c.Forwardings = []rest.Forwarding{{Name: "out", Src: "lan", Dest: "wan"}}
	return c
}

// Connections of the LAN, with and without translation, and to a port of the CNF that leads into the LAN, get into the flow table; those of the CNF itself, those to
// the cluster, and questions with an answer do not.
func TestFlowsForward(t *testing.T) {
	c := translating("1")
	c.Redirects = []rest.Redirect{
		{Name: "in", Target: "DNAT", Src: "wan", SrcDPort: "19900", Dest: "lan", DestIP: "192.168.1.1", DestPort: "22", Proto: "tcp"},
		{Name: "cluster", Src: "wan", Target: "DNAT", Proto: "tcp", SrcDPort: "8088", DestIP: "10.96.0.10", DestPort: "8080"},
	}
	s := newFlowSite(t, c)
	s.node.Run("ip addr add 10.96.0.10/32 dev lo")
	server(t, s.far, "192.0.2.1:80")
	server(t, s.lan, "192.168.1.1:22")
	server(t, s.node, "10.96.0.10:8080")
	for _, test := range []struct {
		from     *nstest.NS
		to, seen string
		fast     bool
	}{
		{s.lan, "192.0.2.1:80", "198.51.100.2", true},
		{s.far, "203.0.113.2:19900", "10.2.0.2", true},
		{s.cnf, "192.0.2.1:80", "198.51.100.2", false},
		{s.lan, "198.51.100.2:19900", "192.168.1.254", false}, // leaves by the device on which it came
		{s.far, "203.0.113.2:8088", "10.244.0.7", false},
	} {
		from := ""
		if test.from == s.cnf {
			from = "198.51.100.2:0"
		}
		conn, seen, err := dial(test.from, from, test.to)
		require.NoError(t, err, test.to)
		require.Equal(t, test.seen, seen)
		if test.fast {
			s.fast(conn)
		} else {
			for range 5 {
				alive(t, conn)
			}
			require.NotContains(t, s.entry(conn), "[OFFLOAD]", test.to)
		}
		conn.Close()
	}
	datagrams := answersTo(t, s.far, s.lan, "192.0.2.2:53")
	alive(t, datagrams)
	require.NotContains(t, s.entry(datagrams), "[OFFLOAD]", "a question and an answer")
	s.fast(datagrams)
}

// A connection in the flow table ends as others do: connection tracking sees that it was closed, or reset.
func TestFlowsEnd(t *testing.T) {
	s := newFlowSite(t, translating("1"))
	server(t, s.far, "192.0.2.1:80")
	for state, end := range map[string]func(*net.TCPConn){
		" TIME_WAIT ": func(c *net.TCPConn) { c.Close() },
		" CLOSE ": func(c *net.TCPConn) {
			time.Sleep(resetsInterval + time.Second) // see Kernel.AcceptResets
			_ = c.SetLinger(0)
			c.Close()
		},
	} {
		conn, _, err := dial(s.lan, "", "192.0.2.1:80")
		require.NoError(t, err)
		s.fast(conn)
		end(conn.(*net.TCPConn))
		s.until("its state is"+state, func() bool { return strings.Contains(s.entry(conn), state) })
	}
}

// When pings find that an uplink leads nowhere, only rules of the CNF change, no route. Connections in the flow table take the other one all the same, stay there when the
// uplink is back, and those with translated addresses are reset.
func TestFlowsFailover(t *testing.T) {
	c := translating("")
	s := newFlowSite(t, c)
	s.far.Run("nft 'table ip arrivals { chain in { type filter hook prerouting priority -160; iifname \"isp1\" udp dport 53 counter; iifname \"isp2\" udp dport 53 counter; }; }'")
	arrivals := func() string { return s.far.Run("nft list table ip arrivals | grep -o 'packets [0-9]*'") }
	datagrams := answersTo(t, s.far, s.lan, "192.0.2.2:53")
	s.fast(datagrams)
	require.Regexp(t, `^packets [1-9]\d*\npackets 0\n$`, arrivals())
	routes := s.cnf.Run("ip route show table all; ip rule")
	s.isp1.Run("nft 'table ip dead { chain in { type filter hook input priority -300; iifname \"cnf\" icmp type echo-request drop; }; }'")
	s.online("net1", false)
	require.Equal(t, routes, s.cnf.Run("ip route show table all; ip rule"))
	before := arrivals()
	s.fast(datagrams)
	after := arrivals()
	require.Equal(t, strings.Split(before, "\n")[0], strings.Split(after, "\n")[0], "nothing more through net1")
	require.NotEqual(t, before, after)
	s.isp1.Run("nft delete table ip dead")
	s.online("net1", true)
	s.fast(datagrams)
	require.Equal(t, strings.Split(before, "\n")[0], strings.Split(arrivals(), "\n")[0], "live connections stay")
}

// A connection that began beyond an uplink comes back through the other one when the first is found dead, and its answers follow, though the end in the LAN has sent
// before: what it sent must not be in the flow table.
func TestFlowsFailoverInbound(t *testing.T) {
	c := translating("")
	c.Forwardings = append(c.Forwardings, rest.Forwarding{Name: "in", Src: "wan", Dest: "lan"})
	s := newFlowSite(t, c)
	s.far.Run("nft 'table ip arrivals { chain in { type filter hook prerouting priority -160; iifname \"isp1\" udp sport 53 counter; iifname \"isp2\" udp sport 53 counter; }; }'")
	arrivals := func() []string {
		return strings.Split(s.far.Run("nft list table ip arrivals | grep -o 'packets [0-9]*'"), "\n")
	}
	l := answering(t, s.lan, "192.168.1.1:53")
	var client net.Conn
	s.far.Do(func() {
		var err error
		client, err = (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(192, 0, 2, 3)}}).Dial("udp4", "192.168.1.1:53")
		require.NoError(t, err)
	})
	defer client.Close()
	s.fast(client)
	s.isp1.Run("nft 'table ip dead { chain in { type filter hook input priority -300; iifname \"cnf\" icmp type echo-request drop; }; }'")
	s.online("net1", false)
	for range 5 {
		_, err := l.WriteTo([]byte("x"), client.LocalAddr())
		require.NoError(t, err)
		_ = client.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err = client.Read(make([]byte, 1))
		require.NoError(t, err)
	}
	s.far.Run("ip rule add pref 5 to 192.168.1.0/24 lookup 12")
	before := arrivals()
	s.fast(client)
	after := arrivals()
	require.Equal(t, before[0], after[0], "nothing more through net1")
	require.NotEqual(t, before[1], after[1])
}

// What no rule allows any more passes no longer, though it is in the flow table: as without it, that concerns everything when the CNF is closed, and
// not the connections that a forwarding has allowed before.
func TestFlowsRulesChange(t *testing.T) {
	c := translating("1")
	s, conn := newFastConnection(t, c)
	c.Forwardings = nil
	s.apply(c)
	s.fast(conn)
	c.Awaiting = true
	s.apply(c)
	requireSilent(t, conn)
	c.Awaiting = false
	s.apply(c)
	s.fast(conn)
}

// When a tunnel takes the network of a connection, no packet of it leaves in clear, though the connection was in the flow table.
func TestFlowsTunnel(t *testing.T) {
	c := translating("1")
	s, conn := newFastConnection(t, c)
	c.Remotes = []rest.Remote{{Name: "hub", Gateway: "10.1.0.2", Auth: "psk", PreSharedKey: "correct-horse-battery", Connections: []rest.Connection{{
		Name: "a", Type: "tunnel", Mode: "add", LocalSubnet: "192.168.1.0/24", RemoteSubnet: "192.0.2.0/24",
	}}}}
	s.applyPart(c)
	s.far.Run("nft 'table ip arrivals { chain in { type filter hook prerouting priority -160; tcp dport 80 counter; }; }'")
	requireSilent(t, conn)
	require.Contains(t, s.far.Run("nft list table ip arrivals"), "packets 0")
}

// What becomes of the flow table is repaired, and what is in order is left alone.
func TestFlowsDrift(t *testing.T) {
	s := newFlowSite(t, translating("1"))
	list := func() string { return s.cnf.Run("nft -a list flowtables") }
	before := list()
	s.cnf.Run("ip link add d0 type dummy && ip link set d0 up") // so the agent makes a pass
	time.Sleep(time.Second)
	require.Equal(t, before, list(), "the handle is the same")
	s.cnf.Run("nft flush chain inet subctl-cnf established && nft delete flowtable inet subctl-cnf established")
	s.until("the flow table is there", func() bool { return strings.Contains(list(), "devices = { net0, net1, net2 }") })
	s.cnf.Run("ip link del net2")
	s.until("the device is not in the rules", func() bool {
		return !strings.Contains(s.cnf.Run("nft list chain inet subctl-cnf flow_to"), "net2")
	})
	nstest.Join(nstest.End{NS: s.isp2, Dev: "cnf", Addr: "203.0.113.1/24"}, nstest.End{NS: s.cnf, Dev: "net2", Addr: "203.0.113.2/24"})
	s.until("the device is back", func() bool { return strings.Contains(list(), "devices = { net0, net1, net2 }") })
}
