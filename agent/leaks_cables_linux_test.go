package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/nstest"
)

// The packets of the leak matrix that an attacker's gateway sends through the cable itself. Nothing
// of the gateway's own keeps them back: it has the keys of the cable, and decides alone which
// packets it encrypts. All of them reach the hub.

// way is a way into a cable of the attacker's gateway to the hub.
type way struct {
	name    string
	packets func(to *member) [][]byte
	send    func(packets [][]byte)
	arrived func() int // packets that the hub's gateway has received through the cable
	done    func()
}

// ways returns all ways into the cable of a member whose nodes are in the hands of the attacker: as
// the cable is used, and without the VXLAN around packets if there is one.
func (w *leakWorld) ways(from *member) []way {
	gw := from.nodes["gw"]
	through := way{
		"through the cable",
		func(to *member) [][]byte { return w.packets(from, to) },
		func(p [][]byte) { send(w.t, gw, p) },
		w.outside(from),
		func() {},
	}
	switch from.driver.Name() {
	case cable.VXLANWireGuard:
		bare := through
		bare.name, bare.packets = "through WireGuard, without VXLAN", func(to *member) [][]byte {
			return w.bare(from, to)
		}
		bare.send = func(p [][]byte) { sendInto(w.t, gw, dataplane.WireGuardDevice, p) }
		return []way{through, bare}
	case cable.IPsec:
		sa := newAttackerSA(w, from)
		through.send = sa.tunnel
		through.arrived = sa.arrived
		through.done = sa.rekey
		return []way{through}
	case cable.VXLANIPsec:
		sa := newAttackerSA(w, from)
		through.arrived = sa.arrived
		other := way{
			"through IPsec, without VXLAN or in another",
			func(to *member) [][]byte { return append(w.tunneled(from.node("gw"), to), w.packets(from, to)...) },
			sa.transport,
			sa.arrived,
			sa.rekey,
		}
		return []way{through, other}
	}
	return []way{through}
}

// send sends packets, as a process with NET_RAW can. Some cables refuse some packets.
func send(t testing.TB, from *nstest.NS, packets [][]byte) {
	t.Helper()
	sendInto(t, from, "", packets)
}

// sendInto sends packets into a device, if one is given, whatever routes there are.
func sendInto(t testing.TB, from *nstest.NS, dev string, packets [][]byte) {
	t.Helper()
	from.Do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		require.NoError(t, err)
		defer unix.Close(fd)
		require.NoError(t, unix.BindToDevice(fd, dev))
		for _, p := range packets {
			_ = unix.Sendto(fd, p, 0, &unix.SockaddrInet4{Addr: [4]byte(p[16:20])})
		}
	})
}

// bare returns what a member sends through WireGuard without VXLAN: there the hub accepts one
// source, the address of the gateway.
func (w *leakWorld) bare(from, to *member) [][]byte {
	out := w.packets(from, to)
	own := netip.MustParseAddr(from.carrier()).As4()
	for _, p := range w.packets(from, to) {
		if w.whose(from, to, p[12:16]) == "itself" {
			copy(p[12:16], own[:])
			out = append(out, nstest.TTL(p, p[8])) // with the checksum
		}
	}
	return out
}

// whose returns whose an address is.
func (w *leakWorld) whose(from, to *member, address []byte) string {
	is := func(m *member) bool {
		a := address
		n := byte(m.n)
		return a[0] == 10 && (a[1] == 110+n || a[1] == 100+n) || a[1] == 18 && a[2] == n
	}
	switch {
	case is(w.hub):
		return "the hub"
	case is(from):
		return "itself"
	case is(to):
		return "the target"
	}
	return "nobody"
}

// outside returns a function that counts the packets of the cable of a member that have reached the
// hub's gateway: WireGuard's with data, and VXLAN's.
func (w *leakWorld) outside(from *member) func() int {
	hub := w.hub.nodes["gw"]
	match := fmt.Sprintf("udp dport %d @th,64,8 0x08", dataplane.VXLANPort)
	if from.driver.Properties().Engine == cable.ProtocolWireGuard {
		// a keepalive has 40 bytes
		match = fmt.Sprintf("udp dport %d @th,64,32 0x04000000 udp length > 40", dataplane.WireGuardPort)
	}
	counts := counters(w.t, hub, "arrived", fmt.Sprintf("ip saddr %s %s counter", from.node("gw"), match))
	return func() int { return counts()[0] }
}

// past returns a function that counts datagrams of a member that the cable itself lets into the
// hub's gateway, although the source is not the member's, or the destination is not the hub's.
func (w *leakWorld) past(from *member) func() []int {
	device := fmt.Sprintf("iifname %q udp dport 7001-7009 ip ", w.hub.device)
	return counters(w.t, w.hub.nodes["gw"], "past",
		device+fmt.Sprintf("saddr != { 10.10%[1]d.0.0/16, 10.11%[1]d.0.0/16, %[2]s } counter", from.n, from.link()),
		device+fmt.Sprintf("daddr != { 10.10%[1]d.0.0/16, 10.11%[1]d.0.0/16, %[2]s } counter", w.hub.n, w.hub.link()))
}

// counters adds a table of rules at "prerouting", and returns a function that returns their counts.
func counters(t testing.TB, ns *nstest.NS, table string, rules ...string) func() []int {
	ns.Run(
		fmt.Sprintf(
			"nft -f - <<X\ntable ip %[1]s\ndelete table ip %[1]s\ntable ip %[1]s {\n chain c {\n type filter hook prerouting priority -450;\n%[2]s\n }\n}\nX",
			table, strings.Join(rules, "\n")),
	)
	return func() (counts []int) {
		for line := range strings.Lines(ns.Run("nft list table ip " + table)) {
			if _, rest, ok := strings.Cut(line, "packets "); ok {
				n, err := strconv.Atoi(strings.Fields(rest)[0])
				require.NoError(t, err)
				counts = append(counts, n)
			}
		}
		return counts
	}
}

// kinds sorts packets of a member by what is in them, and by whose their addresses are.
func (w *leakWorld) kinds(from, to *member, packets [][]byte) map[string][][]byte {
	out := map[string][][]byte{}
	for _, p := range packets {
		what := "datagram"
		switch {
		case p[9] == unix.IPPROTO_ICMP && p[20] == 8:
			what = "ping"
		case p[9] == unix.IPPROTO_ICMP:
			what = "ICMP error"
		case p[9] == unix.IPPROTO_UDP && len(p) > 36:
			what = "VXLAN"
		}
		kind := fmt.Sprintf("%s from %s to %s", what, w.whose(from, to, p[12:16]), w.whose(from, to, p[16:20]))
		out[kind] = append(out[kind], p)
	}
	return out
}

// force sends packets of all kinds into the cable of a member, and requires that every one reaches
// the hub.
func (w *leakWorld) force(from *member) (attempts int) {
	w.t.Helper()
	nstest.Until(w.t, from.host("worker"), w.hub.host("worker")) // what was sent before has arrived
	past := w.past(from)
	for _, way := range w.ways(from) {
		for _, to := range w.strangers(from) {
			kinds := w.kinds(from, to, way.packets(to))
			for _, what := range []string{"datagram", "ping", "ICMP error"} {
				for _, src := range []string{"itself", "the hub", "the target", "nobody"} {
					require.NotEmpty(w.t, kinds[what+" from "+src+" to the hub"])
					require.NotEmpty(w.t, kinds[what+" from "+src+" to the target"])
				}
			}
			var all [][]byte
			for _, packets := range kinds {
				all = append(all, sampled(0, packets)...)
			}
			for packets := range slices.Chunk(all, 100) { // no queue on the way is shorter
				before := way.arrived()
				way.send(packets)
				require.Eventually(w.t, func() bool { return way.arrived() >= before+len(packets) }, 10*time.Second,
					10*time.Millisecond, "%s, %s: %d packets sent, and fewer have reached the hub", from.id, way.name,
					len(packets))
			}
			attempts += len(all)
		}
		way.done()
	}
	nstest.Until(w.t, from.host("worker"), w.hub.host("worker"))
	w.arrived += attempts
	if w.passed = past(); w.hub.wide == "" {
		w.refused(from)
	}
	return attempts
}

// refused requires that the cable itself has refused what it can: IPsec knows both ends' networks,
// WireGuard the sender's. (IPsec in the kernel compares them later, when a packet is forwarded or
// delivered.)
func (w *leakWorld) refused(from *member) {
	w.t.Helper()
	switch from.driver.Name() {
	case cable.IPsec:
		if w.hub.nodes["gw"].Run("ip xfrm state 2>/dev/null; true") == "" {
			require.Equal(w.t, []int{0, 0}, w.passed, "%s: packets with sources or destinations outside the selectors",
				from.id)
		}
	case cable.WireGuard:
		require.Zero(w.t, w.passed[0], "%s: packets with sources of others", from.id)
	}
}

// breakAllowedIPs lets the hub's WireGuard accept any source from the attacker that no other member
// has.
func (w *leakWorld) breakAllowedIPs(from *member) {
	w.t.Run("with wide allowed IPs of the hub", func(t *testing.T) {
		w.hub.wide = from.id
		w.hub.allowAll(t, from)
		_, seen := w.attack(from)
		require.NotContains(t, strings.Join(seen, "\n"), " udp dport", "the rules of the hub hold: it forwards nothing")
		require.Positive(t, w.passed[0], "the test does not see what WireGuard refuses")
		w.hub.wide = ""
		w.hub.sync(t, w.pairs[w.hub.id]...)
	})
}
