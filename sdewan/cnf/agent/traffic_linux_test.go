//go:build linux

package agent

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"subctl/internal/nstest"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// balance is a policy over both uplinks, and a rule for everything.
func balance(metric1, weight1, metric2, weight2 string) rest.Config {
	return rest.Config{
		Policies: []rest.Policy{
			{
				Name: "both",
				Members: []rest.Member{
					{Interface: "net1", Metric: metric1, Weight: weight1},
					{Interface: "net2", Metric: metric2, Weight: weight2},
				},
			},
		},
		Rules: []rest.Rule{{Name: "all", Policy: "both", DestIP: "0.0.0.0/0", Proto: "all"}},
	}
}

// counters counts the connections that reach far through each uplink.
const counters = `nft -f - <<'END'
table ip count {
	counter one { }
	counter two { }
	chain in {
		type filter hook prerouting priority -160;
		iifname "isp1" ct state new tcp flags & (syn | ack) == syn counter name one
		iifname "isp2" ct state new tcp flags & (syn | ack) == syn counter name two
	}
}
END`

// Two uplinks share connections 2:3.
func TestTrafficBalance(t *testing.T) {
	s := newSite(t)
	server(t, s.far, "192.0.2.1:80")
	s.apply(balance("1", "2", "1", "3"))
	s.far.Run(counters)
	const connections = 200
	for range connections {
		c, seen, err := dial(s.lan, "", "192.0.2.1:80")
		require.NoError(t, err)
		require.Equal(t, "192.168.1.2", seen)
		c.Close()
	}
	one, two := s.count()
	require.Equal(t, connections, one+two)
	require.InDelta(t, 0.4, float64(one)/connections, 0.4*0.05, "%d and %d", one, two)
}

// The uplink with the lowest metric carries all connections. When its gateway does not answer, and
// when its link goes down, the other one takes over; when it is back, new connections return, and
// live ones stay.
func TestTrafficFailover(t *testing.T) {
	s := newSite(t)
	server(t, s.far, "192.0.2.1:80")
	s.apply(balance("1", "1", "2", "1"))
	s.far.Run(counters)
	open := func() net.Conn {
		t.Helper()
		c, _, err := dial(s.lan, "", "192.0.2.1:80")
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	open()
	one, two := s.count()
	require.Equal(t, []int{1, 0}, []int{one, two})

	for name, fault := range map[string]struct{ down, up string }{
		"gateway": {
			"nft -f - <<'END'\ntable ip dead { chain in { type filter hook prerouting priority -300; iifname \"cnf\" drop; }; }\nEND",
			"nft delete table ip dead",
		},
		"link": {
			"ip link set cnf down",
			"ip link set cnf up && ip route replace 192.168.1.0/24 via 198.51.100.2 && ip route replace 1.2.3.4 via 198.51.100.2",
		},
	} {
		before1, before2 := s.count()
		s.isp1.Run(fault.down)
		start := time.Now()
		s.online("net1", false)
		t.Logf("%s: offline after %v", name, time.Since(start))
		var stays net.Conn
		s.until("connections take net2", func() (ok bool) {
			c, _, err := dial(s.lan, "", "192.0.2.1:80")
			if stays = c; err == nil {
				t.Cleanup(func() { c.Close() })
			}
			return err == nil
		})
		one, two := s.count()
		require.Equal(t, before1, one, name)
		require.Greater(t, two, before2, name)

		s.isp1.Run(fault.up)
		s.online("net1", true)
		alive(t, stays)
		s.until("new connections return to net1", func() bool { open(); one, _ := s.count(); return one > before1 })
		before1, before2 = s.count()
		alive(t, stays)
		open()
		one, two = s.count()
		require.Equal(t, []int{before1 + 1, before2}, []int{one, two}, "%s: live connections stay, new ones return",
			name)
	}
}

// A TCP connection that was masqueraded to the address of an uplink cannot continue through another
// one: the client learns it at once. Others continue, and so do all if there is no other uplink.
func TestTrafficFailoverOfTranslated(t *testing.T) {
	s := newSite(t)
	server(t, s.far, "192.0.2.1:80")
	c := balance("1", "1", "2", "1")
	c.Zones = []rest.Zone{
		{Name: "lan", Network: []string{"net0"}},
		{Name: "wan", Network: []string{"net1", "net2"}, Masq: "1"},
	}
	c.Forwardings = []rest.Forwarding{{Name: "out", Src: "lan", Dest: "wan"}}
	// 192.168.1.3 is not masqueraded: it has an address that both uplinks lead to.
	c.Redirects = []rest.Redirect{
		{Name: "own", Target: "SNAT", Dest: "wan", SrcIP: "192.168.1.3", SrcDIP: "1.2.3.4", Proto: "tcp"},
	}
	s.apply(c)
	open := func(from, want string) net.Conn {
		t.Helper()
		c, seen, err := dial(s.lan, from+":0", "192.0.2.1:80")
		require.NoError(t, err)
		require.Equal(t, want, seen)
		t.Cleanup(func() { c.Close() })
		return c
	}
	s.isp2.Run("ip link set cnf down")
	s.online("net2", false)
	waits := open("192.168.1.2", "198.51.100.2")
	const fault = "nft -f - <<'END'\ntable ip dead { chain in { type filter hook prerouting priority -300; iifname \"cnf\" drop; }; }\nEND"
	s.isp1.Run(fault)
	s.online("net1", false)
	_, err := waits.Write([]byte("x")) // there is no other uplink
	require.NoError(t, err)
	time.Sleep(time.Second)
	s.isp1.Run("nft delete table ip dead")
	s.online("net1", true)
	_, err = waits.Read(make([]byte, 1))
	require.NoError(t, err)
	s.isp2.Run(
		"ip link set cnf up; ip route replace 192.0.2.0/24 via 10.2.0.2; ip route replace 1.2.3.4 via 203.0.113.2")
	s.online("net2", true)

	masqueraded := open("192.168.1.2", "198.51.100.2")
	own := open("192.168.1.3", "1.2.3.4")
	s.isp1.Run(fault)
	s.online("net1", false)
	s.far.Run("ip route replace 1.2.3.4 via 10.2.0.1")
	// The server knows no connection from the other address, and its answer to that may not arrive.
	s.far.Run(
		"nft -f - <<'END'\ntable ip quiet { chain out { type filter hook output priority 0; tcp flags & rst == rst drop; }; }\nEND")
	start := time.Now()
	_ = masqueraded.SetDeadline(start.Add(15 * time.Second))
	_, err = masqueraded.Write([]byte("x"))
	require.NoError(t, err)
	_, err = masqueraded.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Less(t, time.Since(start), 3*time.Second)
	alive(t, own)
	open("192.168.1.2", "203.0.113.2")
}

// What the CNF itself sends from the address of an uplink leaves through it: without any rule, when
// the default route of the pod leads elsewhere, and against the policy for others. From other
// addresses, the rules count.
func TestTrafficFromAnUplink(t *testing.T) {
	s := newSite(t)
	server(t, s.far, "192.0.2.1:80")
	s.far.Run(counters)
	from := func(address string) {
		t.Helper()
		c, seen, err := dial(s.cnf, address+":0", "192.0.2.1:80")
		require.NoError(t, err)
		require.Equal(t, address, seen)
		c.Close()
	}
	from("203.0.113.2")
	one, two := s.count()
	require.Equal(t, []int{0, 1}, []int{one, two})
	s.apply(balance("1", "1", "2", "1"))
	from("203.0.113.2")
	from("198.51.100.2")
	one, two = s.count()
	require.Equal(t, []int{1, 2}, []int{one, two})
}

// A pod that has just started forwards nothing, although it has got rules already, until a service
// was started.
func TestTrafficAwaits(t *testing.T) {
	s := newSite(t)
	server(t, s.far, "192.0.2.1:80")
	c := balance("1", "1", "2", "1")
	c.Awaiting = true
	s.apply(c)
	_, _, err := dial(s.lan, "", "192.0.2.1:80")
	require.Error(t, err)
	c.Awaiting = false
	s.apply(c)
	open, _, err := dial(s.lan, "", "192.0.2.1:80")
	require.NoError(t, err)
	defer open.Close()
	alive(t, open)
	c.Awaiting = true // as if the file with the state were lost
	s.apply(c)
	_, _, err = dial(s.lan, "", "192.0.2.1:80")
	require.Error(t, err)
}

// A port of the CNF that leads to a Service of the cluster can be reached from the LAN and from the
// Internet, through each uplink, whatever kind of object makes it lead there.
func TestTrafficToTheCluster(t *testing.T) {
	s := newSite(t)
	s.node.Run("ip addr add 10.96.0.10/32 dev lo") // it has no route to the clients
	server(t, s.node, "10.96.0.10:8080")
	c := balance("1", "1", "2", "1")
	c.Zones = []rest.Zone{
		{Name: "lan", Network: []string{"net0"}, Input: "REJECT", Output: "ACCEPT", Forward: "REJECT"},
		{Name: "wan", Network: []string{"net1", "net2"}, Input: "REJECT", Output: "ACCEPT", Forward: "REJECT"},
	}
	c.Redirects = []rest.Redirect{
		{
			Name:     "wan",
			Src:      "wan",
			Target:   "DNAT",
			Proto:    "tcp",
			SrcDPort: "8088",
			DestIP:   "10.96.0.10",
			DestPort: "8080",
		},
		{
			Name:     "lan",
			Src:      "lan",
			Target:   "DNAT",
			Proto:    "tcp",
			SrcDPort: "8088",
			DestIP:   "10.96.0.10",
			DestPort: "8080",
		},
	}
	server(t, s.node, "10.96.0.10:8081")
	c.NATs = []rest.NAT{
		{Name: "nat", Target: "DNAT", Proto: "tcp", SrcDPort: "8089", DestIP: "10.96.0.10", DestPort: "8081"},
	}
	s.apply(c)
	for _, port := range []string{":8088", ":8089"} {
		for _, from := range []struct {
			ns *nstest.NS
			at string
		}{{s.lan, "192.168.1.254"}, {s.far, "198.51.100.2"}, {s.far, "203.0.113.2"}} {
			open, seen, err := dial(from.ns, "", from.at+port)
			require.NoError(t, err, from.at+port)
			require.Equal(t, "10.244.0.7", seen)
			alive(t, open)
			open.Close()
		}
	}
}

// A route that Linux would refuse has no effect, and keeps nothing else from having one.
func TestHostileRoutes(t *testing.T) {
	s := newSite(t)
	server(t, s.far, "192.0.2.1:80")
	c := balance("1", "1", "2", "1")
	c.Routes = []rest.Route{
		{Name: "far", Dst: "10.20.0.0/16", GW: "203.0.113.77", Dev: "net0"},
		{Name: "broadcast", Dst: "10.21.0.0/16", GW: "192.168.1.255", Dev: "net0"},
		{Name: "link", Dst: "10.40.0.0/16", Dev: "net0"},
		{Name: "behind", Dst: "10.50.0.0/16", GW: "10.40.0.1", Dev: "net0"},
		{Name: "near", Dst: "10.30.0.0/16", GW: "192.168.1.2", Dev: "net0"},
	}
	out := s.applyPart(c)
	for _, gateway := range []string{"203.0.113.77", "192.168.1.255", "10.40.0.1"} {
		require.Contains(t, out, "gw: "+gateway+" is in no network of device net0")
	}
	require.Equal(t, 1, strings.Count(s.cnf.Run("ip route"), "via 192.168.1.2 dev net0"))
	open, _, err := dial(s.lan, "", "192.0.2.1:80")
	require.NoError(t, err)
	defer open.Close()
	alive(t, open)
}

// A connection whose uplink goes offline goes on through the other one, if its addresses are not
// translated.
func TestTrafficMoves(t *testing.T) {
	s := newSite(t)
	// replies take the way that works
	s.far.Run("ip route del 192.168.1.0/24 table 11; ip route add 192.168.1.0/24 via 10.2.0.1 table 11")
	server(t, s.far, "192.0.2.1:80")
	s.apply(balance("1", "1", "2", "1"))
	c, _, err := dial(s.lan, "", "192.0.2.1:80")
	require.NoError(t, err)
	defer c.Close()
	s.isp1.Run("ip link set cnf down")
	s.online("net1", false)
	alive(t, c)
}

// The samples of the proposal: TCP from port 80 is refused, ICMP leaves with another source, port
// 19900 leads to SSH in the LAN, and connections are forwarded in one direction only.
func TestTrafficFirewall(t *testing.T) {
	s := newSite(t)
	firewall := rest.Config{
		Zones: []rest.Zone{
			{Name: "lan1", Network: []string{"net0"}, Input: "ACCEPT", Output: "ACCEPT"},
			{Name: "wan1", Network: []string{"net1", "net2"}, Input: "REJECT", Output: "ACCEPT"},
		},
		Firewall: []rest.FirewallRule{
			{Name: "reject_80", Src: "lan1", SrcIP: "192.168.1.2", SrcPort: "80", Proto: "tcp", Target: "REJECT"},
		},
		Redirects: []rest.Redirect{
			{
				Name:   "snat_lan1",
				Src:    "lan1",
				SrcIP:  "192.168.1.2",
				SrcDIP: "1.2.3.4",
				Dest:   "wan1",
				Proto:  "icmp",
				Target: "SNAT",
			},
			{
				Name:     "dnat_wan1",
				Src:      "wan1",
				SrcDPort: "19900",
				Dest:     "lan1",
				DestIP:   "192.168.1.1",
				DestPort: "22",
				Proto:    "tcp",
				Target:   "DNAT",
			},
		},
	}
	b := balance("1", "1", "2", "1")
	firewall.Policies = b.Policies
	firewall.Rules = b.Rules
	s.apply(firewall)
	server(t, s.cnf, "192.168.1.254:8443")
	server(t, s.lan, "192.168.1.1:22")
	server(t, s.lan, "192.168.1.2:443")
	server(t, s.far, "192.0.2.1:80")

	t.Run("reject", func(t *testing.T) {
		_, _, err := dial(s.lan, "192.168.1.2:80", "192.168.1.254:8443")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		c, seen, err := dial(s.lan, "192.168.1.3:80", "192.168.1.254:8443")
		require.NoError(t, err)
		require.Equal(t, "192.168.1.3", seen)
		c.Close()
	})
	t.Run("translated destination", func(t *testing.T) {
		// each is answered through its uplink
		for from, to := range map[string]string{"10.1.0.2:0": "198.51.100.2:19900", "10.2.0.2:0": "203.0.113.2:19900"} {
			host, _, _ := strings.Cut(from, ":")
			c, seen, err := dial(s.far, from, to)
			require.NoError(t, err, to)
			require.Equal(t, host, seen)
			c.Close()
		}
	})
	t.Run("one direction", func(t *testing.T) {
		_, _, err := dial(s.lan, "", "192.0.2.1:80")
		require.ErrorIs(t, err, syscall.ECONNREFUSED, "without a forwarding")
		firewall.Forwardings = []rest.Forwarding{{Name: "forwarding_lan_to_wan", Src: "lan1", Dest: "wan1"}}
		s.apply(firewall)
		c, _, err := dial(s.lan, "", "192.0.2.1:80")
		require.NoError(t, err)
		defer c.Close()
		_, _, err = dial(s.far, "", "192.168.1.2:443")
		require.ErrorIs(t, err, syscall.ECONNREFUSED, "not the other way round")
	})
	t.Run("translated source", func(t *testing.T) {
		stop := s.far.Start(
			"exec tcpdump --immediate-mode -Z root -U -n -l -i isp1 icmp >" + s.dir + "/icmp 2>" + s.dir + "/icmp.err")
		s.until("tcpdump listens", func() bool {
			out, _ := s.far.Try("cat " + s.dir + "/icmp.err")
			return strings.Contains(out, "listening")
		})
		s.lan.Run("ping -c2 -W2 -I 192.168.1.2 192.0.2.1")
		s.until("the packets are seen",
			func() bool { out, _ := s.far.Try("cat " + s.dir + "/icmp"); return strings.Contains(out, "echo reply") })
		stop()
		seen := s.far.Run("cat " + s.dir + "/icmp")
		require.Contains(t, seen, "IP 1.2.3.4 > 192.0.2.1: ICMP echo request")
		require.NotContains(t, seen, "192.168.1.2")
	})
}

// Hosts of the LAN reach a host of the LAN by the addresses of the CNF on the WAN, as hosts of the
// WAN do, if the WAN's zone masquerades.
func TestTrafficReflection(t *testing.T) {
	s := newSite(t)
	c := rest.Config{
		Zones: []rest.Zone{
			{Name: "lan1", Network: []string{"net0"}, Input: "ACCEPT", Output: "ACCEPT", Forward: "REJECT"},
			{Name: "wan1", Network: []string{"net1", "net2"}, Input: "REJECT", Output: "ACCEPT"},
		},
		Redirects: []rest.Redirect{
			{
				Name:     "dnat_wan1",
				Src:      "wan1",
				SrcDPort: "19900",
				Dest:     "lan1",
				DestIP:   "192.168.1.1",
				DestPort: "22",
				Proto:    "tcp",
				Target:   "DNAT",
			},
		},
	}
	server(t, s.lan, "192.168.1.1:22")
	s.apply(c)
	_, _, err := dial(s.lan, "192.168.1.2:0", "198.51.100.2:19900")
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "by the CNF itself")
	c.Zones[1].Masq = "1"
	s.apply(c)
	for _, to := range []string{"198.51.100.2:19900", "203.0.113.2:19900"} {
		conn, seen, err := dial(s.lan, "192.168.1.2:0", to)
		require.NoError(t, err, to)
		require.Equal(t, "192.168.1.254", seen)
		alive(t, conn)
		conn.Close()
	}
	conn, seen, err := dial(s.far, "10.1.0.2:0", "198.51.100.2:19900")
	require.NoError(t, err)
	require.Equal(t, "10.1.0.2", seen)
	conn.Close()
}

// Nothing that changes interrupts a live connection, and no packet of it is lost: the modules
// change one after the other.
func TestTrafficSurvivesChanges(t *testing.T) {
	s := newSite(t)
	server(t, s.far, "192.0.2.1:80")
	c := balance("1", "2", "1", "3")
	c.Zones = []rest.Zone{
		{Name: "lan", Network: []string{"net0"}},
		{Name: "wan", Network: []string{"net1", "net2"}, Masq: "1"},
	}
	c.Forwardings = []rest.Forwarding{{Name: "out", Src: "lan", Dest: "wan"}}
	s.apply(c)
	var conns []net.Conn
	for range 10 {
		conn, _, err := dial(s.lan, "", "192.0.2.1:80")
		require.NoError(t, err)
		defer conn.Close()
		conns = append(conns, conn)
	}
	ended := s.lan.Ping(50, "192.0.2.2")
	for i := range 10 {
		c.Firewall = append(
			c.Firewall,
			rest.FirewallRule{
				Name:     fmt.Sprint("rule-", i),
				Src:      "lan",
				DestPort: fmt.Sprint(1000 + i),
				Proto:    "tcp",
				Target:   "DROP",
			},
		)
		s.apply(c)
		c.Rules = append(
			[]rest.Rule{
				{Name: fmt.Sprint("rule-", i), Policy: "both", DestIP: fmt.Sprintf("192.0.2.%d", 10+i), Sticky: "1"},
			},
			c.Rules...)
		s.apply(c)
		c.NATs = append(
			c.NATs,
			rest.NAT{
				Name:   fmt.Sprint("nat-", i),
				Dest:   "net1",
				SrcIP:  fmt.Sprintf("10.9.%d.0/24", i),
				Target: "MASQUERADE",
			},
		)
		s.apply(c)
		c.Routes = append(
			c.Routes,
			rest.Route{
				Name:  fmt.Sprint("route-", i),
				Dst:   fmt.Sprintf("10.8.%d.0/24", i),
				GW:    "192.168.1.1",
				Dev:   "net0",
				Table: "cnf",
			},
		)
		s.apply(c)
	}
	sent, lost := ended()
	require.Zero(t, lost, "of %d packets", sent)
	for _, conn := range conns {
		alive(t, conn)
	}
}

// A sticky rule keeps the uplink of a source.
func TestTrafficSticky(t *testing.T) {
	s := newSite(t)
	server(t, s.far, "192.0.2.1:80")
	c := balance("1", "1", "1", "1")
	c.Rules[0].Sticky = "1"
	s.apply(c)
	s.far.Run(counters)
	for range 6 {
		conn, _, err := dial(s.lan, "", "192.0.2.1:80")
		require.NoError(t, err)
		conn.Close()
	}
	one, two := s.count()
	require.Equal(t, 6, max(one, two), "%d and %d", one, two)
	// a change of another module does not make it forget
	c.Zones = []rest.Zone{{Name: "lan", Network: []string{"net0"}}}
	s.apply(c)
	conn, _, err := dial(s.lan, "", "192.0.2.1:80")
	require.NoError(t, err)
	conn.Close()
	one, two = s.count()
	require.Equal(t, 7, max(one, two), "%d and %d", one, two)
}

// What another program deletes comes back.
func TestTrafficDrift(t *testing.T) {
	s := newSite(t)
	s.apply(balance("1", "2", "1", "3"))
	// chains are listed in the order in which they were made
	const all = "(nft list ruleset; ip rule; ip route show table 42) | sort"
	before := s.cnf.Run(all)
	for _, damage := range []string{
		"nft flush ruleset", "nft flush chain inet subctl-cnf uplink", "nft insert rule inet subctl-cnf uplink drop",
		"nft delete rule inet subctl-cnf uplink handle $(nft -a list chain inet subctl-cnf uplink | grep -o 'handle [0-9]*$' | tail -1 | cut -d' ' -f2)",
		"ip rule del pref 2002", "ip route flush table 42", "ip rule add pref 77 lookup 43 protocol 172",
	} {
		s.cnf.Run(damage)
		s.until("it is repaired: "+damage, func() bool {
			out, _ := s.cnf.Try(all)
			return out == before
		})
	}
}
