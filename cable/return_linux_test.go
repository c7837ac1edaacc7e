package cable

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/nstest"
)

// returnLab has a client in another cluster, two gateways that translate Services, and a node with
// a pod:
//
//	client - gateway 1 and gateway 2 - node - pod
//
// Of the client's addresses 10.2.0.1 to 10.2.0.20, the odd ones use gateway 1, and the even ones
// gateway 2. A gateway also forwards replies that it cannot translate back, like those of plain
// connections; the client then knows no such connection.
type returnLab struct {
	t                 *testing.T
	client, node, pod *nstest.NS
	gateways          [2]*nstest.NS
	host              *kernel.Host
	plan              Intra
}

const (
	podService  = "10.96.0.1" // is translated to the pod
	nodeService = "10.96.0.2" // is translated to the node itself
	labPod      = "10.0.1.5"
	labNode     = "10.0.1.1"
	labClients  = 20 // addresses of the client
)

// newReturnLab returns a lab whose node holds its plan, on a worker or on a gateway.
func newReturnLab(t *testing.T, gateway bool) *returnLab {
	t.Helper()
	l := &returnLab{t: t, client: nstest.New(t, "client"), node: nstest.New(t, "node"), pod: nstest.New(t, "pod")}
	lan := nstest.New(t, "lan")
	lan.Run("ip link add br0 type bridge && ip link set br0 up")
	member := func(ns *nstest.NS, n int) {
		nstest.Join(nstest.End{NS: ns, Dev: "eth0", Addr: fmt.Sprintf("172.18.0.%d/24", n)},
			nstest.End{NS: lan, Dev: fmt.Sprintf("p%d", n), Addr: ""})
		lan.Run(fmt.Sprintf("ip link set p%d master br0", n))
	}
	self := gatewayNode(3)
	one := gatewayNode(1)
	two := gatewayNode(2)
	member(l.node, 3)
	nstest.Join(nstest.End{NS: l.node, Dev: "cni0", Addr: labNode + "/24"},
		nstest.End{NS: l.pod, Dev: "eth0", Addr: labPod + "/24"})
	l.pod.Run("ip route add default via " + labNode)
	l.node.Run("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.cni0.rp_filter=1")
	l.client.Run("sysctl -qw net.ipv4.conf.all.rp_filter=0")
	nodeVTEP, nodeMAC := VTEP(dataplane.IntraVTEPNet, self.IP)
	for i, g := range []Node{one, two} {
		n := i + 1
		ns := nstest.New(t, g.Name)
		l.gateways[i] = ns
		member(ns, n)
		nstest.Join(nstest.End{NS: ns, Dev: "cable0", Addr: fmt.Sprintf("192.168.%d.1/24", n)},
			nstest.End{NS: l.client, Dev: fmt.Sprintf("eth%d", n), Addr: fmt.Sprintf("192.168.%d.2/24", n)})
		l.client.Run(
			fmt.Sprintf(
				"echo 0 >/proc/sys/net/ipv4/conf/eth%[1]d/rp_filter; ip route add default via 192.168.%[1]d.1 table %[1]d; for a in $(seq %[1]d 2 %[2]d); do ip addr add 10.2.0.$a/32 dev lo; ip rule add from 10.2.0.$a lookup %[1]d; done",
				n, labClients),
		)
		vtep, mac := VTEP(dataplane.IntraVTEPNet, g.IP)
		ns.Run(fmt.Sprintf(
			`set -e
ip link add vx-submariner address %s mtu 1450 type vxlan id %d local %v dstport %d nolearning
ip link set vx-submariner up
ip addr add %v/8 dev vx-submariner
bridge fdb add %s dev vx-submariner dst %v
ip neigh add %v lladdr %[6]s dev vx-submariner
ip route add 10.0.1.0/24 via %[8]v
ip route add 10.2.0.0/16 via 192.168.%[9]d.2
sysctl -qw net.ipv4.ip_forward=1
for d in /proc/sys/net/ipv4/conf/*; do echo 0 >$d/rp_filter; done
iptables -t nat -A PREROUTING -d %[10]s -p tcp -j DNAT --to-destination %[11]s
iptables -t nat -A PREROUTING -d %[10]s -p udp -j DNAT --to-destination %[11]s
iptables -t nat -A PREROUTING -d %[12]s -p tcp -j DNAT --to-destination %[13]s
iptables -t nat -A PREROUTING -d %[12]s -p udp -j DNAT --to-destination %[13]s`,
			mac,
			dataplane.IntraVNI,
			g.IP,
			dataplane.IntraPort,
			vtep,
			nodeMAC,
			self.IP,
			nodeVTEP,
			n,
			podService,
			labPod,
			nodeService,
			labNode,
		))
	}
	l.plan = Intra{
		Self:     self,
		MTU:      1500,
		PodIP:    netip.MustParseAddr(labNode),
		Gateways: []Node{one, two},
		Ranked:   []Node{one, two},
		Local: Networks{
			Pods: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")},
		},
		Ends: []netip.Addr{self.IP, one.IP, two.IP},
		Remote: []Reached{
			{
				Cluster: "west",
				Subnets: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")},
				MTU:     1450,
				Device:  "cable0",
			},
		},
	}
	if gateway {
		l.plan.Gateways, l.plan.Ranked = append(l.plan.Gateways, self), append(l.plan.Ranked, self)
		l.plan.Workers = []Node{one, two} // which may send to it
		nstest.Join(nstest.End{NS: l.node, Dev: dataplane.VXLANDevice, Addr: "192.168.3.1/24"},
			nstest.End{NS: l.client, Dev: "eth3", Addr: "192.168.3.2/24"})
		l.node.Run("ip route add 10.2.0.0/16 via 192.168.3.2 table 100; ip rule add pref 100 lookup 100")
		l.client.Run("echo 0 >/proc/sys/net/ipv4/conf/eth3/rp_filter")
	}
	l.node.Do(func() {
		var err error
		l.host, err = kernel.New(dataplane.RouteOwner)
		require.NoError(t, err)
	})
	t.Cleanup(l.host.Close)
	l.sync()
	return l
}

// sync makes the node hold the plan.
func (l *returnLab) sync() {
	l.t.Helper()
	s, err := PlanIntra(l.plan)
	require.NoError(l.t, err)
	require.NoError(l.t, l.plan.returns(s))
	l.node.Do(func() {
		_, err = dataplane.Sync(l.t.Context(), l.host, s)
		require.NoError(l.t, err)
	})
}

// serve answers TCP and UDP at an address with what arrives, after the client's address.
func (l *returnLab) serve(ns *nstest.NS, address string) {
	l.t.Helper()
	ns.Do(func() {
		tcp, err := net.Listen("tcp4", address)
		require.NoError(l.t, err)
		udp, err := net.ListenPacket("udp4", address)
		require.NoError(l.t, err)
		l.t.Cleanup(func() {
			_ = tcp.Close()
			_ = udp.Close()
		})
		go func() {
			for {
				c, err := tcp.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					fmt.Fprintf(c, "%v ", c.RemoteAddr().(*net.TCPAddr).IP)
					_, _ = io.Copy(c, c)
				}()
			}
		}()
		go func() {
			b := make([]byte, 1500)
			for {
				n, from, err := udp.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = udp.WriteTo(fmt.Appendf(nil, "%v %s", from.(*net.UDPAddr).IP, b[:n]), from)
			}
		}()
	})
}

// dial opens a connection from one of the client's addresses.
func (l *returnLab) dial(network string, from int, address string) (c net.Conn, err error) {
	l.client.Do(func() {
		var local net.Addr = &net.TCPAddr{IP: net.IPv4(10, 2, 0, byte(from))}
		if network == "udp4" {
			local = &net.UDPAddr{IP: net.IPv4(10, 2, 0, byte(from))}
		}
		d := net.Dialer{Timeout: time.Second, LocalAddr: local}
		c, err = d.DialContext(context.Background(), network, address)
	})
	return c, err
}

// ask sends a word and returns the answer.
func ask(c net.Conn) (string, error) {
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("word")); err != nil {
		return "", err
	}
	var said strings.Builder
	b := make([]byte, 100)
	for !strings.HasSuffix(said.String(), "word") {
		n, err := c.Read(b)
		if err != nil {
			return "", err
		}
		said.Write(b[:n])
	}
	return said.String(), nil
}

// answers returns the error of the first connection that gets no answer, of one from each address
// of the client. The answer must tell the client's own address. Without the return path, some get
// none: the kernel's hash would have to choose the right gateway for each of them.
func (l *returnLab) answers(network, address string) error {
	l.t.Helper()
	for from := 1; from <= labClients; from++ {
		c, err := l.dial(network, from, address)
		if err != nil {
			return err
		}
		said, err := ask(c)
		c.Close()
		if err != nil {
			return err
		}
		require.Equal(l.t, fmt.Sprintf("10.2.0.%d word", from), said)
	}
	return nil
}

// marks returns the connection marks of the client's connections in the node's conntrack table, by
// the client's address.
func (l *returnLab) marks() map[string]uint32 { return l.marksOf("10.2.0.") }

// marksOf returns the marks of the connections that were opened from addresses with a prefix.
func (l *returnLab) marksOf(prefix string) map[string]uint32 {
	l.t.Helper()
	out := map[string]uint32{}
	l.node.Do(func() {
		flows, err := vnl.ConntrackTableList(vnl.ConntrackTable, unix.AF_INET)
		require.NoError(l.t, err)
		for _, f := range flows {
			if src := f.Forward.SrcIP.String(); strings.HasPrefix(src, prefix) {
				out[fmt.Sprintf("%s:%d", src, f.Forward.SrcPort)] = f.Mark
			}
		}
	})
	return out
}

// Connections through Services, which only the gateway that translated them can translate back, are
// answered through that gateway, from pods and from the node itself, on workers and on gateways.
// Without the table they are not.
func TestReturnPath(t *testing.T) {
	for _, role := range []string{"worker", "gateway"} {
		t.Run(role, func(t *testing.T) {
			l := newReturnLab(t, role == "gateway")
			l.serve(l.pod, labPod+":80")
			l.serve(l.node, labNode+":80")
			services := map[string]string{"pod": podService + ":80", "node": nodeService + ":80"}
			for to, service := range services {
				for _, network := range []string{"tcp4", "udp4"} {
					t.Run(network+" to the "+to, func(t *testing.T) {
						l.t = t
						require.NoError(t, l.answers(network, service))
					})
				}
			}
			t.Run("a port on which nobody listens", func(t *testing.T) {
				for _, address := range []string{podService + ":81", nodeService + ":81"} {
					for through := 1; through <= 2; through++ {
						_, err := l.dial("tcp4", through, address)
						require.ErrorIs(t, err, syscall.ECONNREFUSED, "RST from %s through gateway %d", address,
							through)
						c, err := l.dial("udp4", through, address)
						require.NoError(t, err)
						_, err = ask(c)
						require.ErrorIs(t, err, syscall.ECONNREFUSED, "ICMP error from %s through gateway %d", address,
							through)
						c.Close()
					}
				}
			})
			for name, remove := range map[string]string{
				"without the table": "nft delete table ip submariner-route-return",
				"without the rules": "while ip rule del pref 99 2>/dev/null; do :; done",
			} {
				t.Run(name, func(t *testing.T) {
					l.t = t
					l.node.Run(remove)
					require.Error(t, l.answers("udp4", podService+":80"))
					require.Error(t, l.answers("tcp4", nodeService+":80"))
					l.sync()
					require.NoError(t, l.answers("udp4", podService+":80"))
				})
			}
			l.t = t
			l.node.Do(func() {
				_, err := dataplane.Sync(t.Context(), l.host, nil)
				require.NoError(t, err)
			})
			for _, command := range []string{
				"nft list tables | grep submariner; true",
				"ip rule | grep fwmark; true",
				"ip nexthop",
			} {
				require.Empty(t, l.node.Run(command))
			}
		})
	}
}

// The reverse path filter of a pod's device does not drop replies because of their mark, even if it
// is strict and regards marks.
func TestReturnPathAndReversePathFilter(t *testing.T) {
	l := newReturnLab(t, false)
	l.serve(l.pod, labPod+":80")
	for _, valid := range []int{0, 1} {
		t.Run(fmt.Sprintf("src_valid_mark=%d", valid), func(t *testing.T) {
			l.t = t
			l.node.Run(fmt.Sprintf("sysctl -qw net.ipv4.conf.all.src_valid_mark=%d", valid))
			require.NoError(t, l.answers("udp4", podService+":80"))
			require.NoError(t, l.answers("tcp4", podService+":80"))
		})
	}
}

// A plain connection whose gateway dies continues through another one, which may be the node
// itself, and so do its replies. Neither that nor the return to the first gateway needs a new
// connection.
func TestReturnPathMoves(t *testing.T) {
	for role, path := range map[string][]int{"worker": {1, 2, 1}, "gateway": {1, 2, 3, 1}} {
		t.Run(role, func(t *testing.T) { testReturnPathMoves(t, path) })
	}
}

func testReturnPathMoves(t *testing.T, path []int) {
	l := newReturnLab(t, slices.Contains(path, 3))
	l.serve(l.pod, labPod+":80")
	c, err := l.dial("udp4", 1, labPod+":80")
	require.NoError(t, err)
	defer c.Close()
	marks := returnMarks(l.plan.Ranked)
	for _, g := range path {
		l.client.Run(
			fmt.Sprintf(
				"ip route replace default via 192.168.%d.1 table 1; nft flush ruleset; nft 'table ip came { counter other { }; chain in { type filter hook prerouting priority 0; iifname != eth%[1]d udp sport 80 counter name other; }; }'",
				g),
		)
		for range 3 {
			said, err := ask(c)
			require.NoError(t, err)
			require.Equal(t, "10.2.0.1 word", said)
		}
		require.Contains(t, l.client.Run("nft list counter ip came other"), "packets 0 ",
			"replies come through gateway %d", g)
		want := marks[gatewayNode(g).Name]
		if g == 3 {
			want = 0
		}
		require.Equal(t, want, l.marks()[c.LocalAddr().String()])
	}

	// An ICMP error about a reply, which another gateway sends, does not move the connection.
	port := c.LocalAddr().(*net.UDPAddr).Port
	reply := nstest.IPv4(labPod, "10.2.0.1", unix.IPPROTO_UDP, nstest.UDP(80, port, []byte("12345678")))
	sendRaw(t, l.gateways[1], labPod,
		nstest.IPv4("10.2.0.77", labPod, unix.IPPROTO_ICMP, nstest.ICMPError(3, 13, reply)))
	require.Eventually(t, func() bool { return strings.Contains(l.pod.Run("nstat -az IcmpInDestUnreachs"), " 1 ") },
		5*time.Second, 10*time.Millisecond, "the error arrives")
	require.Equal(t, marks["gw01"], l.marks()[c.LocalAddr().String()])

	// Packets from a node that is no gateway, or not any more, have no return path of their own.
	l.plan.Ranked = []Node{l.plan.Ranked[1], gatewayNode(7)}
	l.sync()
	_, err = ask(c)
	require.NoError(t, err)
	require.Zero(t, l.marks()[c.LocalAddr().String()])
}

// The bits of other programs stay in both marks.
func TestReturnPathKeepsOtherBits(t *testing.T) {
	l := newReturnLab(t, false)
	l.serve(l.pod, labPod+":80")
	l.node.Run(`nft 'table ip other {
	counter right { }; counter wrong { };
	chain before { type filter hook prerouting priority -160; ct mark set ct mark or 0xabcd4040; meta mark set 0x1234c080; }
	chain routed { type filter hook forward priority 400; oifname vx-submariner meta mark 0x1234c080 counter name right return; oifname vx-submariner counter name wrong; }
	chain after { type filter hook postrouting priority 400; oifname vx-submariner meta mark 0x1234c080 counter name right return; oifname vx-submariner counter name wrong; }
}'`)
	require.NoError(t, l.answers("udp4", podService+":80"))
	require.Contains(t, l.node.Run("nft list counter ip other right"), "packets 40 ")
	require.Contains(t, l.node.Run("nft list counter ip other wrong"), "packets 0 ")
	marks := returnMarks(l.plan.Ranked)
	want := map[string]uint32{}
	seen := map[string]uint32{}
	for from := range labClients {
		want[fmt.Sprintf("10.2.0.%d", 1+from)] = 0xabcd4040 | marks[fmt.Sprintf("gw0%d", 1+from%2)]
	}
	for flow, mark := range l.marks() {
		client, _, _ := strings.Cut(flow, ":")
		seen[client] = mark
	}
	require.Equal(t, want, seen)
}

// sendRaw sends a packet from a namespace, as it is.
func sendRaw(t *testing.T, from *nstest.NS, to string, packet []byte) {
	t.Helper()
	from.Do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		require.NoError(t, err)
		defer unix.Close(fd)
		require.NoError(t, unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: netip.MustParseAddr(to).As4()}))
	})
}

// A worker spreads connections to another cluster over the gateways, also those between the same
// two hosts, and a connection stays with its gateway. If that does not answer, its connections
// continue through another one: at first as long as it does not answer, and later they stay there
// when it returns.
func TestConnectionsChooseGateways(t *testing.T) {
	l := newReturnLab(t, false)
	l.serve(l.client, "10.2.0.1:80")
	dial := func(from *nstest.NS, source string) (c net.Conn) {
		from.Do(func() {
			d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
			var err error
			c, err = d.Dial("tcp4", "10.2.0.1:80")
			require.NoError(t, err)
		})
		t.Cleanup(func() { c.Close() })
		return c
	}
	answered := func(conns []net.Conn, source string) {
		t.Helper()
		for _, c := range conns {
			said, err := ask(c)
			require.NoError(t, err)
			require.Contains(t, said, "word")
		}
	}
	marks := returnMarks(l.plan.Ranked)
	one := marks["gw01"]
	two := marks["gw02"]
	spread := func(source string, conns []net.Conn) map[uint32]int {
		t.Helper()
		all := l.marksOf(source)
		out := map[uint32]int{}
		for _, c := range conns {
			mark, known := all[c.LocalAddr().String()]
			require.True(t, known)
			out[mark]++
		}
		require.Equal(t, len(conns), out[one]+out[two], "each has one of the gateways")
		return out
	}
	for source, from := range map[string]*nstest.NS{labPod: l.pod, labNode: l.node} {
		t.Run("from "+source, func(t *testing.T) {
			var conns []net.Conn
			more := func(n int) {
				for range n {
					conns = append(conns, dial(from, source))
				}
			}
			more(200)
			answered(conns, source)
			balance := spread(source, conns)
			require.InDelta(t, 100, balance[one], 40, "5 standard deviations are 35")
			t.Logf("of 200 connections, %d go through the first gateway", balance[one])

			l.client.Run("ip route replace default via 192.168.2.1 table 1")
			l.gateways[0].Run("ip link set cable0 down")
			l.plan.Gateways[0].Down = true
			l.plan.Gateways[0].Awaited = true
			l.sync()
			answered(conns, source)
			require.Equal(t, balance, spread(source, conns), "they wait for it")
			conns = append(conns, dial(from, source))
			require.Equal(t, balance[one], spread(source, conns)[one], "new ones do not")
			conns = conns[:200]
			l.plan.Gateways[0].Awaited = false
			l.sync()
			answered(conns, source)
			require.Equal(t, 200, spread(source, conns)[two])

			l.gateways[0].Run("ip link set cable0 up; ip route replace 10.2.0.0/16 via 192.168.1.2")
			l.plan.Gateways[0].Down = false
			l.sync()
			answered(conns, source)
			require.Equal(t, 200, spread(source, conns)[two], "nothing moves when a gateway returns")
			more(100)
			require.InDelta(t, 50, spread(source, conns)[one], 30, "new ones use it")

			l.plan.Gateways[0].Weight = 20
			l.plan.Gateways[1].Weight = 80
			l.sync()
			first := spread(source, conns)[one]
			more(200)
			require.InDelta(t, 40, spread(source, conns)[one]-first, 30,
				"a gateway with a fifth of the weight gets a fifth of the connections")
			l.plan.Gateways[0].Drain = Draining
			l.sync()
			first = spread(source, conns)[one]
			more(50)
			answered(conns, source)
			require.Equal(t, first, spread(source, conns)[one], "one that is draining keeps what it has")
			l.plan.Gateways[0].Drain = InService
			l.plan.Gateways[0].Weight = 0
			l.plan.Gateways[1].Weight = 0

			// The same with the other gateway: connections through the first one do not move.
			before := l.marksOf(source)
			l.gateways[1].Run("ip link set cable0 down")
			l.plan.Gateways[1].Down = true
			l.sync()
			l.client.Run("ip route replace default via 192.168.1.1 table 1")
			answered(conns, source)
			for _, c := range conns {
				if at := c.LocalAddr().String(); before[at] == one {
					require.Equal(t, one, l.marksOf(source)[at])
				}
			}
			l.gateways[1].Run("ip link set cable0 up; ip route replace 10.2.0.0/16 via 192.168.2.2")
			l.plan.Gateways[1].Down = false
			l.sync()
		})
	}
}
