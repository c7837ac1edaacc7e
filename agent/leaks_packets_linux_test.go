package agent

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/measure"
	"subctl/internal/nstest"
)

// The packets of the leak matrix. Each has a marker in it, a number for its target, and so has each
// error and answer to it.

// mark returns the marker of packets for a member: a port, or a number in the payload of ICMP.
func (m *member) mark() int { return 7000 + m.n }

// marked are the matches of nftables for packets with a marker, for answers to them and for errors
// about them.
var marked = []string{
	"udp dport 7001-7009", "udp sport 7001-7009",
	"icmp type != 255 @th,240,16 >= 7001 @th,240,16 <= 7009", // after 8+22 bytes: an echo, or an error about a datagram
	"icmp type != 255 @th,464,16 >= 7001 @th,464,16 <= 7009", // an error about an echo
}

// Addresses of the hub that its translations and routes by hand lead to another member.
func (m *member) service() string  { return fmt.Sprintf("10.101.0.%d", m.n) }    // at the gateway
func (m *member) nodePort() string { return fmt.Sprintf("10.111.2.%d", 90+m.n) } // at the worker
func (m *member) routed() string   { return fmt.Sprintf("10.111.200.%d", m.n) }  // without translation

// watch counts packets with a marker that arrive through cables at nodes and pods of members other
// than from, and packets that the hub sends to members other than from. from may be nil. A packet
// to a Service of the hub that kube-proxy does not translate takes the hub's default route, to
// nobody.
func (w *leakWorld) watch(from *member) {
	table := func(ns *nstest.NS, hook, which string) {
		text := "table ip leaks\ndelete table ip leaks\ntable ip leaks {\n chain seen { type filter hook " + hook + "\n"
		for _, m := range marked {
			text += "  " + which + " " + m + " counter\n"
		}
		ns.Run("nft -f - <<X\n" + text + " }\n}\nX")
	}
	others := " ip daddr != 10.101.0.0/16"
	if from != nil {
		others += fmt.Sprintf(" ip daddr != { 10.11%[1]d.0.0/16, 10.10%[1]d.0.0/16, 172.18.%[1]d.0/24, %[2]s, %[3]s }",
			from.n, from.link(), from.carrier())
	}
	cables := fmt.Sprintf("oifname { eth0, %s, %s, %s, %s, %s }", dataplane.VXLANDevice, dataplane.WireGuardDevice,
		dataplane.IPsecDevice, dataplane.VXLANWireGuardDevice, dataplane.VXLANIPsecDevice)
	table(w.hub.nodes["gw"], "postrouting priority 400;", cables+others)
	table(w.hub.nodes["worker"], "postrouting priority 400;", "oifname { eth0, "+dataplane.IntraDevice+" }"+others)
	for _, m := range w.members[1:] {
		for _, name := range nodeNames {
			which := ""
			if m == from {
				which = "meta mark 0x1ea4" // which nobody sets
			}
			table(m.nodes[name], "prerouting priority -450;", "iifname != { cni0, eth0, lo } "+which)
			table(m.pods[name], "prerouting priority -450;", which)
		}
	}
}

// seen returns the counters that are not 0.
func (w *leakWorld) seen() (out []string) {
	look := func(where string, ns *nstest.NS) {
		for line := range strings.Lines(ns.Run("nft list table ip leaks")) {
			if strings.Contains(line, "packets ") && !strings.Contains(line, "packets 0 ") {
				out = append(out, where+": "+strings.TrimSpace(line))
			}
		}
	}
	for _, m := range w.members {
		for _, name := range nodeNames {
			look(m.id+", node "+name, m.nodes[name])
			if m != w.hub {
				look(m.id+", pod on "+name, m.pods[name])
			}
		}
	}
	return out
}

// control requires that the hub reaches all members, and they the hub, and that such packets are
// seen.
func (w *leakWorld) control() {
	w.watch(nil)
	for _, m := range w.members[1:] {
		for _, name := range nodeNames {
			nstest.Until(w.t, w.hub.host(name), m.host(name))
			nstest.Until(w.t, m.host(name), w.hub.host(name))
		}
		send(w.t, w.hub.pods["gw"], bodies(w.hub.podIP("gw"), m.podIP("worker"), m.mark()))
		nstest.Until(w.t, w.hub.host("gw"), m.host("worker"))
	}
	seen := strings.Join(w.seen(), "\n")
	for _, m := range w.members[1:] {
		for _, kind := range []string{"udp dport", "@th,240,16", "@th,464,16"} {
			require.Regexp(w.t, m.id+", node gw: .*"+kind, seen, "the test does not see what passes")
		}
	}
}

// bodies returns packets of all kinds from src to dst: a datagram, a ping, and ICMP errors.
func bodies(src, dst string, mark int) (out [][]byte) {
	about := func(proto byte, payload []byte) []byte { return nstest.IPv4(dst, src, proto, payload) }
	datagram := nstest.UDP(9, mark, []byte("x"))
	ping := nstest.ICMPError(8, 0, binary.BigEndian.AppendUint16(make([]byte, 22), uint16(mark)))
	out = append(out, nstest.IPv4(src, dst, unix.IPPROTO_UDP, datagram), nstest.IPv4(src, dst, unix.IPPROTO_ICMP, ping))
	for _, e := range []struct {
		typ, code byte
		about     []byte
	}{
		{11, 0, about(unix.IPPROTO_UDP, datagram)}, // time exceeded
		{3, 3, about(unix.IPPROTO_UDP, datagram)},  // port unreachable
		{3, 4, about(unix.IPPROTO_UDP, datagram)},  // fragmentation needed
		{3, 1, about(unix.IPPROTO_ICMP, ping)},     // host unreachable
	} {
		out = append(out, nstest.IPv4(src, dst, unix.IPPROTO_ICMP, nstest.ICMPError(e.typ, e.code, e.about)))
	}
	return out
}

// packets returns what a member sends towards another: to all its addresses, and to addresses of
// the hub that lead there. The sources are its own, the hub's, the target's and one that nobody
// has. It also sends packets to the hub in the name of the target, so that the hub's answers and
// errors would go there.
func (w *leakWorld) packets(from, to *member) (out [][]byte) {
	add := func(src, dst string) {
		out = append(out, bodies(src, dst, to.mark())...)
		for ttl := byte(1); ttl <= 3; ttl++ { // it ends at the hub, which may report it to the source
			out = append(out,
				nstest.TTL(nstest.IPv4(src, dst, unix.IPPROTO_UDP, nstest.UDP(9, to.mark(), []byte("x"))), ttl))
		}
	}
	const nobody = "198.51.100.1"
	for _, dst := range []string{
		to.podIP("worker"),
		to.podIP("gw"),
		fmt.Sprintf("10.11%d.1.1", to.n),
		fmt.Sprintf("10.10%d.0.1", to.n),
		to.link(),
		to.node("gw"),
		to.node("worker"),
		to.service(),
		to.nodePort(),
		to.routed(),
	} {
		for _, src := range []string{
			from.podIP("worker"),
			from.podIP("gw"),
			fmt.Sprintf("10.11%d.1.1", from.n),
			from.link(),
			w.hub.podIP("worker"),
			w.hub.link(),
			to.podIP("worker"),
			nobody,
		} {
			add(src, dst)
		}
	}
	for _, dst := range []string{
		w.hub.podIP("worker"),
		w.hub.podIP("gw"),
		"10.111.1.1",
		"10.111.2.1",
		w.hub.link(),
		w.hub.node("worker"),
		"10.101.0.200",
	} {
		for _, src := range []string{to.podIP("worker"), to.link(), to.node("gw")} {
			add(src, dst)
		}
	}
	return out
}

// tunneled returns packets of VXLAN from a node to the nodes of another member, and of the hub,
// without a cable. The cables of drivers that encrypt are also tried with the address of the hub's
// gateway, which the network between the gateways carries.
func (w *leakWorld) tunneled(from string, to *member) (out [][]byte) {
	senders := []string{from}
	if to.driver.Properties().Encrypts {
		senders = append(senders, w.hub.node("gw"))
	}
	devices := []struct {
		port, vni int
		net       byte
	}{
		{dataplane.VXLANPort, dataplane.CableVNI, dataplane.VXLANNet},
		{dataplane.IntraPort, dataplane.IntraVNI, dataplane.IntraVTEPNet},
		{dataplane.VXLANWireGuardPort, dataplane.CableVNI, dataplane.VXLANWireGuardNet},
		{dataplane.VXLANIPsecPort, dataplane.CableVNI, dataplane.VXLANIPsecNet},
	}
	for _, d := range devices {
		for _, node := range []string{to.node("gw"), to.node("worker"), w.hub.node("gw"), w.hub.node("worker")} {
			for _, src := range []string{w.hub.podIP("worker"), to.podIP("gw"), "198.51.100.1"} {
				for _, inner := range bodies(src, to.podIP("worker"), to.mark()) {
					for _, sender := range senders {
						// VXLAN between the nodes of a cluster is not encrypted
						if sender == from || d.port != dataplane.IntraPort {
							out = append(
								out,
								nstest.IPv4(sender, node, unix.IPPROTO_UDP,
									nstest.UDP(9, d.port, nstest.VXLAN(d.vni, vtepMAC(d.net, node), inner))),
							)
						}
					}
				}
			}
		}
	}
	return out
}

// sampled returns the packets that sender number n of a pair sends: every fifth, or all where the
// number of attempts is recorded ("make bench"). Blocks of 6 and of 9 packets have the same
// addresses, so each sender sends to and from all of them, and all kinds of packets.
func sampled(n int, all [][]byte) (out [][]byte) {
	if os.Getenv(measure.File) != "" && !testing.Short() {
		return all
	}
	for i := n; i < len(all); i += 5 {
		out = append(out, all[i])
	}
	return out
}

// attack lets a member send to all others with which it has no clusterset in common, from its pods
// and nodes, through the hub. The member's own nodes are in the hands of the attacker, and the hub
// has routes by hand.
func (w *leakWorld) attack(from *member) (attempts int, seen []string) {
	w.t.Helper()
	w.misguide()
	w.watch(from)
	for _, to := range w.strangers(from) {
		for i, name := range nodeNames { // before takeOver routes the addresses of nodes to the hub
			packets := sampled(i, w.tunneled(from.node(name), to))
			send(w.t, from.nodes[name], packets)
			attempts += len(packets)
		}
	}
	w.takeOver(from)
	for _, to := range w.strangers(from) {
		all := w.packets(from, to)
		for i, ns := range []*nstest.NS{from.pods["worker"], from.pods["gw"], from.nodes["worker"]} {
			packets := sampled(i, all)
			send(w.t, ns, packets)
			attempts += len(packets)
		}
	}
	attempts += w.force(from)
	nstest.Until(w.t, from.host("worker"), w.hub.host("worker")) // all packets have arrived before
	for _, to := range w.strangers(from) {
		nstest.Until(w.t, w.hub.host("worker"), to.host("worker"))
	}
	seen = w.seen()
	for i := range seen {
		seen[i] = "from " + from.id + ": " + seen[i]
	}
	for _, ns := range from.nodes {
		ns.Run("ip rule del pref 1; ip route flush table 888")
	}
	from.sync(w.t, w.pairs[from.id]...)
	return attempts, seen
}

// misguide adds to the nodes of the hub the routes and translations that its administrator or
// kube-proxy may add.
func (w *leakWorld) misguide() {
	routes := map[string]string{}
	rules := map[string]string{}
	for _, m := range w.members[1:] {
		for _, dst := range []string{
			fmt.Sprintf("10.11%d.0.0/16", m.n),
			fmt.Sprintf("10.10%d.0.0/16", m.n),
			m.routed(),
		} {
			routes["gw"] += fmt.Sprintf("route replace %s via %s dev %s onlink table 888\n", dst, m.link(),
				w.hub.device)
			routes["worker"] += fmt.Sprintf("route replace %s via 240.18.1.11 dev %s onlink table 888\n", dst,
				dataplane.IntraDevice)
		}
		for node, service := range map[string]string{"gw": m.service(), "worker": m.nodePort()} {
			rules[node] += fmt.Sprintf(
				"-A LEAK-PREROUTING -d %s -j DNAT --to-destination %s\n-A LEAK-POSTROUTING -d %[2]s ! -s 10.111.0.0/16 -j SNAT --to-source 10.111.%[3]d.1\n",
				service, m.podIP("worker"), map[string]int{"gw": 1, "worker": 2}[node])
		}
	}
	for node, ns := range w.hub.nodes {
		ns.Run("ip rule del pref 1 2>/dev/null; ip rule add pref 1 lookup 888; ip -batch - <<X\n" + routes[node] + "X")
		ns.Run(
			"for c in PREROUTING POSTROUTING; do iptables -t nat -C $c -j LEAK-$c 2>/dev/null || { iptables -t nat -N LEAK-$c; iptables -t nat -I $c -j LEAK-$c; }; done; " +
				"iptables-restore --noflush <<X\n*nat\n:LEAK-PREROUTING -\n:LEAK-POSTROUTING -\n" + rules[node] +
				"COMMIT\nX",
		)
	}
}

// takeOver removes our rules from the nodes of a member, and routes everything to the hub.
func (w *leakWorld) takeOver(m *member) {
	for name, ns := range m.nodes {
		ns.Run(
			fmt.Sprintf(
				"nft delete table ip %s; nft delete table ip %s; iptables -t nat -F; for c in $(iptables -S | sed -n 's/^-N \\(SUBMARINER-[^ ]*\\)$/\\1/p'); do iptables -F $c; done; true",
				dataplane.GatewayOwner.Antispoof, dataplane.RouteOwner.Antispoof),
		)
		via := w.hub.link()
		dev := m.device
		if name != "gw" {
			via = fmt.Sprintf("240.18.%d.11", m.n)
			dev = dataplane.IntraDevice
		}
		dsts := []string{"10.111.0.0/16", "10.101.0.0/16", w.hub.node("worker")}
		for _, to := range w.strangers(m) {
			dsts = append(dsts, fmt.Sprintf("10.11%d.0.0/16", to.n), fmt.Sprintf("10.10%d.0.0/16", to.n),
				fmt.Sprintf("172.18.%d.0/24", to.n), to.link())
		}
		routes := ""
		for _, dst := range dsts {
			routes += fmt.Sprintf("route replace %s via %s dev %s onlink table 888\n", dst, via, dev)
		}
		ns.Run("ip -batch - <<X\n" + routes + "rule add pref 1 lookup 888\nX")
	}
	if m.driver.Properties().Engine == cable.ProtocolWireGuard {
		m.allowAll(w.t, w.hub)
	}
}

// allowAll lets WireGuard send everything to a peer.
func (m *member) allowAll(t testing.TB, peer *member) {
	t.Helper()
	m.nodes["gw"].Do(func() {
		c, err := wgctrl.New()
		require.NoError(t, err)
		defer c.Close()
		d, err := c.Device(dataplane.WireGuardDevice)
		require.NoError(t, err)
		for _, p := range d.Peers {
			if p.Endpoint.IP.String() != peer.node("gw") {
				continue
			}
			all := wgtypes.PeerConfig{
				PublicKey:  p.PublicKey,
				UpdateOnly: true,
				AllowedIPs: []net.IPNet{{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}},
			}
			require.NoError(t, c.ConfigureDevice(d.Name, wgtypes.Config{Peers: []wgtypes.PeerConfig{all}}))
		}
	})
}
