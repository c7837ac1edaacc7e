//go:build linux

package agent

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"subctl/internal/nstest"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// origins are where connections through uplinks come from, with what the configuration needs for
// them.
var origins = []struct {
	name   string
	config func(*rest.Config)
	from   func(s *site) *nstest.NS
}{
	{"routed", func(*rest.Config) {}, func(s *site) *nstest.NS { return s.lan }},
	{"masqueraded", masquerade, func(s *site) *nstest.NS { return s.lan }},
	{"of the CNF itself", masquerade, func(s *site) *nstest.NS { return s.cnf }},
}

// A connection that was moved to an uplink through which nobody answers returns when the better
// uplink does, although its retries keep the kernel from forgetting it. One that has answers stays.
func TestTrafficUnanswered(t *testing.T) {
	for _, test := range origins {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			s.far.Run("ip route add 10.244.0.0/24 via 10.1.0.1")
			server(t, s.far, "192.0.2.1:80")
			echo(t, s.far, "192.0.2.1:4500") // no reply through isp2
			echo(t, s.far, "192.0.2.2:4500")
			c := balance("1", "1", "2", "1")
			test.config(&c)
			s.apply(c)
			from := test.from(s)
			silent := datagrams(t, from, "192.0.2.1:4500")
			answered := datagrams(t, from, "192.0.2.2:4500")
			s.until("answers through net1", func() bool { return silent.ask() && answered.ask() })

			s.isp2.Run(
				"nft -f - <<'END'\ntable ip mute { chain f { type filter hook forward priority 0; ip daddr 192.0.2.1 drop; ip saddr 192.0.2.1 drop; }; }\nEND")
			s.isp1.Run("ip link set cnf down")
			s.online("net1", false)
			s.until("answers through net2", answered.ask)
			before := answered.seen
			connected := make(chan error, 1)
			go func() { // its first packets get no answer either
				var err error
				from.Do(func() {
					var c net.Conn
					if c, err = net.DialTimeout("tcp4", "192.0.2.1:80", 30*time.Second); err == nil {
						c.Close()
					}
				})
				connected <- err
			}()
			for range 20 {
				require.False(t, silent.ask(), "net2 has an answer")
			}
			s.isp1.Run(
				"ip link set cnf up && ip route replace 192.168.1.0/24 via 198.51.100.2 && ip route replace 1.2.3.4 via 198.51.100.2")
			s.online("net1", true)
			start := time.Now()
			s.until("answers through net1 again",
				func() bool { require.Less(t, time.Since(start), 10*time.Second); return silent.ask() })
			require.NoError(t, <-connected)
			received := s.transmitted("net1")
			for range 10 {
				s.until("the other flow goes on", answered.ask)
			}
			require.Equal(t, before, answered.seen)
			require.Less(t, s.transmitted("net1")-received, 10, "it stays on net2")
		})
	}
}

// Of the connections that nobody answers over an uplink, half leave it when another one of the same
// metric is back, as of new ones. In TestTrafficUnanswered all do, as net1 has the lower metric.
func TestTrafficUnansweredBalanced(t *testing.T) {
	s := newSite(t)
	echo(t, s.far, "192.0.2.1:4500")
	s.isp2.Run("nft -f - <<'END'\ntable ip mute { chain f { type filter hook forward priority 0; drop; }; }\nEND")
	s.isp1.Run("ip link set cnf down")
	s.online("net1", false)
	s.apply(balance("1", "1", "1", "1"))
	var flows []*flow
	for range 8 {
		flows = append(flows, datagrams(t, s.lan, "192.0.2.1:4500"))
	}
	answered := func() (n int) {
		for _, f := range flows {
			if f.ask() {
				n++
			}
		}
		return n
	}
	require.Zero(t, answered())
	s.isp1.Run("ip link set cnf up && ip route replace 192.168.1.0/24 via 198.51.100.2")
	s.online("net1", true)
	s.until("half of them have answers", func() bool { return answered() == len(flows)/2 })
	require.Equal(t, len(flows)/2, answered(), "the others keep net2 now")
}

// An unanswered connection also takes the uplink of a rule that comes later.
func TestTrafficUnansweredByRule(t *testing.T) {
	s := newSite(t)
	echo(t, s.far, "192.0.2.1:4500")
	s.isp2.Run("nft -f - <<'END'\ntable ip mute { chain f { type filter hook forward priority 0; drop; }; }\nEND")
	c := balance("2", "1", "1", "1")
	s.apply(c)
	flow := datagrams(t, s.lan, "192.0.2.1:4500")
	for range 5 {
		require.False(t, flow.ask())
	}
	c.Policies = append(c.Policies, rest.Policy{Name: "one", Members: []rest.Member{{Interface: "net1"}}})
	c.Rules = append([]rest.Rule{{Name: "hub", Policy: "one", DestIP: "192.0.2.1"}}, c.Rules...)
	s.apply(c)
	s.until("answers", flow.ask)
}

// Datagrams that nobody answers keep their uplink, although each of them looks like the first one.
func TestTrafficOneWay(t *testing.T) {
	s := newSite(t)
	s.apply(balance("1", "1", "1", "1"))
	s.isp1.Run(
		"nft -f - <<'END'\ntable ip count { chain f { type filter hook forward priority 0; udp dport 514 counter; }; }\nEND")
	s.isp2.Run(
		"nft -f - <<'END'\ntable ip count { chain f { type filter hook forward priority 0; udp dport 514 counter; }; }\nEND")
	counted := func(isp *nstest.NS) (n int) {
		out := isp.Run("nft list table ip count")
		_, err := fmt.Sscanf(out[strings.Index(out, "packets"):], "packets %d", &n)
		require.NoError(t, err, out)
		return n
	}
	silent(t, s.far, "192.0.2.1:514")
	stream := datagrams(t, s.lan, "192.0.2.1:514")
	for range 10 {
		stream.send()
	}
	s.until("all arrive", func() bool { return counted(s.isp1)+counted(s.isp2) == 10 })
	require.True(t, counted(s.isp1) == 0 || counted(s.isp2) == 0, "%d and %d", counted(s.isp1), counted(s.isp2))
}

// Datagrams that nobody answers keep an uplink that their policy could choose again, whatever
// changes in policies and rules, and leave one that it could not.
func TestTrafficUnansweredKeeps(t *testing.T) {
	s := newSite(t)
	c := balance("1", "1", "1", "1")
	s.apply(c)
	for _, isp := range []*nstest.NS{s.isp1, s.isp2} {
		isp.Run(
			"nft -f - <<'END'\ntable ip seen { set ports { type inet_service; size 100; flags dynamic; }; chain f { type filter hook forward priority 0; udp dport 514 add @ports { udp sport }; }; }\nEND")
	}
	silent(t, s.far, "192.0.2.1:514")
	var streams []*flow
	for range 16 {
		streams = append(streams, datagrams(t, s.lan, "192.0.2.1:514"))
	}
	// through returns the ports from which datagrams have passed a provider since the last call,
	// and send sends one of each stream.
	through := func(isp *nstest.NS) map[string]bool {
		out := map[string]bool{}
		if _, list, any := strings.Cut(isp.Run("nft list set ip seen ports"), "elements = {"); any {
			list, _, _ = strings.Cut(list, "}")
			for port := range strings.SplitSeq(list, ",") {
				out[strings.TrimSpace(port)] = true
			}
		}
		isp.Run("nft flush set ip seen ports")
		return out
	}
	send := func() (one, two map[string]bool) {
		for _, i := range rand.Perm(len(streams)) {
			streams[i].send()
		}
		s.until("all arrive", func() bool {
			one = merged(one, through(s.isp1))
			two = merged(two, through(s.isp2))
			return len(one)+len(two) >= len(streams)
		})
		return one, two
	}
	one, two := send()
	require.Len(t, one, 8)
	stay := func(what string) {
		t.Helper()
		nowOne, nowTwo := send()
		require.Equal(t, one, nowOne, what)
		require.Equal(t, two, nowTwo, what)
	}
	c.Policies = append(c.Policies, rest.Policy{Name: "only2", Members: []rest.Member{{Interface: "net2"}}})
	s.apply(c)
	stay("another policy")
	c.Rules = append([]rest.Rule{{Name: "other", Policy: "only2", DestIP: "192.0.2.9"}}, c.Rules...)
	s.apply(c)
	stay("a rule about others")
	c.Policies[0].Members[1].Weight = "5"
	s.apply(c)
	stay("other shares")
	c.Rules = append([]rest.Rule{{Name: "log", Policy: "only2", Proto: "udp", DestPort: "514"}}, c.Rules...)
	s.apply(c)
	one, two = send()
	require.Empty(t, one, "a rule that is about them")
	require.Len(t, two, len(streams))
	c.Rules = c.Rules[1:]
	s.apply(c)
	stay("a policy with this uplink")
	c.Policies[0].Members[1].Metric = "2"
	s.apply(c)
	one, two = send()
	require.Len(t, one, len(streams), "the other uplink is better")
	require.Empty(t, two)
}

// silent receives datagrams at an address, and answers none.
func silent(t *testing.T, ns *nstest.NS, at string) (c net.PacketConn) {
	t.Helper()
	var err error
	ns.Do(func() { c, err = net.ListenPacket("udp4", at) })
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// merged adds the elements of a set to another one.
func merged(to, from map[string]bool) map[string]bool {
	if to == nil {
		to = map[string]bool{}
	}
	maps.Copy(to, from)
	return to
}

func masquerade(c *rest.Config) {
	c.Zones = []rest.Zone{
		{Name: "lan", Network: []string{"net0"}},
		{Name: "wan", Network: []string{"net1", "net2"}, Output: "ACCEPT", Masq: "1"},
	}
	c.Forwardings = []rest.Forwarding{{Name: "out", Src: "lan", Dest: "wan"}}
}

// transmitted returns how many packets the CNF has sent through a device, without ARP and pings:
// what is UDP.
func (s *site) transmitted(dev string) (n int) {
	s.t.Helper()
	out := s.cnf.Run("cat /proc/net/dev | grep " + dev + ":")
	fields := strings.Fields(strings.SplitN(out, ":", 2)[1])
	_, err := fmt.Sscan(fields[9], &n)
	require.NoError(s.t, err, out)
	return n
}

// flow is a flow of datagrams from one port to another.
type flow struct {
	net.Conn
	seen string // the address that the other end has seen last
}

func datagrams(t *testing.T, from *nstest.NS, to string) *flow {
	t.Helper()
	f := &flow{}
	var err error
	from.Do(func() { f.Conn, err = net.Dial("udp4", to) })
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func (f *flow) send() { _, _ = f.Write([]byte("x")) }

// ask reports whether a datagram is answered.
func (f *flow) ask() bool {
	f.send()
	_ = f.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	buf := make([]byte, 100)
	n, err := f.Read(buf)
	if err == nil {
		f.seen = string(buf[:n])
	}
	return err == nil
}

// echo answers each datagram to an address with the address of its sender.
func echo(t *testing.T, ns *nstest.NS, at string) {
	t.Helper()
	c := silent(t, ns, at)
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo([]byte(from.String()), from)
		}
	}()
}
