//go:build linux

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// noICMPErrors is a chain that drops the ICMP errors of a node that gets forged packets. The kernel
// sends the ICMP packets of all network namespaces through one socket for each processor
// (ipv4_icmp_sk): errors that wait for an answer to ARP fill its send buffer, and then echo replies
// are lost in the namespaces of other tests.
const noICMPErrors = "chain errors { type filter hook output priority 0; meta l4proto icmp drop; }\n"

// sendRaw sends IPv4 packets as a process with NET_RAW can.
func sendRaw(ns *nstest.NS, packets [][]byte) (err error) {
	ns.Do(func() {
		var fd int
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW); err != nil {
			return
		}
		defer unix.Close(fd)
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
			return
		}
		for _, p := range packets {
			err = unix.Sendto(fd, p, 0, &unix.SockaddrInet4{Addr: [4]byte(p[16:20])})
			if errors.Is(err, unix.EPERM) { // dropped at postrouting
				err = nil
			}
			if err != nil {
				return
			}
		}
	})
	return err
}

// oddNet returns a network of any size, often next to, around or inside one of others.
func oddNet(r *rand.Rand, others []netip.Prefix) netip.Prefix {
	bits := 1 + r.IntN(32)
	base := r.Uint32()
	if len(others) > 0 && r.IntN(2) == 0 {
		o := others[r.IntN(len(others))]
		base = asNumber(o.Addr()) + uint32(r.IntN(3)-1)<<(32-o.Bits())
		bits = min(32, max(1, o.Bits()+r.IntN(5)-2))
	}
	base = base&0x7fffffff | 0x01000000 // unicast, without 0.0.0.0/8
	return netip.PrefixFrom(asAddr(base), bits).Masked()
}

func asNumber(a netip.Addr) uint32 { return binary.BigEndian.Uint32(a.AsSlice()) }

func asAddr(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n)))
}

// oddNets returns n networks, or fewer; disjoint ones are as Antispoof wants its sets.
func oddNets(r *rand.Rand, n int, disjoint bool) (out []netip.Prefix) {
	for range n {
		p := oddNet(r, out)
		clashes := func(o netip.Prefix) bool { return o == p || disjoint && (o.Overlaps(p) || p.Bits() < 4) }
		if !slices.ContainsFunc(out, clashes) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// oddSources returns addresses on both sides of the edges of networks, with their bytes reversed,
// and others.
func oddSources(r *rand.Rand, nets []netip.Prefix) (out []netip.Addr) {
	for _, n := range nets {
		first := asNumber(n.Addr())
		size := uint32(1) << (32 - n.Bits())
		b := n.Addr().As4()
		slices.Reverse(b[:])
		out = append(out, asAddr(first), asAddr(first-1), asAddr(first+size-1), asAddr(first+size), netip.AddrFrom4(b))
	}
	for range 10 {
		out = append(out, asAddr(r.Uint32()))
	}
	return slices.DeleteFunc(out, func(a netip.Addr) bool { return a == netip.IPv4Unspecified() })
}

func inOneOf(a netip.Addr, nets []netip.Prefix) bool {
	return slices.ContainsFunc(nets, func(n netip.Prefix) bool { return n.Contains(a) })
}

// The kernel drops the packets that the networks of a table say, and no others, whatever networks
// members announce, and however these change.
func TestHostileNetworks(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	other := nstest.New(t, "other")
	nstest.Join(nstest.End{NS: ns, Dev: "up0", Addr: "172.30.0.1/24"},
		nstest.End{NS: other, Dev: "up0", Addr: "172.30.0.2/24"})
	const mac = "02:00:00:00:00:01"
	ns.Run("ip link add vx address " + mac + " type vxlan id 7 dstport 4502 dev up0 && ip link set vx up")
	ns.Run(
		"ip link add subvx-1 type veth peer name sink && ip link set sink up && ip link set subvx-1 up && ip route add 172.31.0.0/24 dev subvx-1")
	ns.Run(`nft -f - <<X
table ip probe {
	set seen { type ifname . inet_service; size 65535; flags dynamic; }
	chain in { type filter hook prerouting priority -250; meta l4proto udp iifname { "up0", "vx" } add @seen { iifname . udp dport }; }
	chain out { type filter hook postrouting priority 400; udp dport != 4502 oifname "subvx-1" add @seen { oifname . udp dport }; udp dport 4502 oifname "subvx-1" add @seen { oifname . udp sport }; }
` + noICMPErrors + `}
X`)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var outers []netip.Addr
	for i := range 4 {
		outers = append(outers, netip.AddrFrom4([4]byte{172, 30, 0, byte(2 + i)}))
	}
	sizes := []int{0, 1, 3, 4, 5, 6, 40}
	for range 12 {
		a := cable.Antispoof{
			Table:         "submariner-gateway-antispoof",
			VXLANPorts:    []int{4502},
			CommonDevices: []string{"vx"},
			RemoteDevices: []string{"vx", "subvx-*"},
			Layer3Devices: []string{"subvx-*"},
			DecapDevices:  []string{"vx"},
		}
		var all []netip.Prefix
		for _, o := range outers {
			nets := oddNets(r, r.IntN(6), false)
			for _, n := range nets {
				a.InnerSources = append(a.InnerSources, cable.InnerSource{Outer: o, Net: n})
			}
			all = append(all, nets...)
		}
		a.RemoteNetworks = oddNets(r, sizes[r.IntN(len(sizes))], true)
		a.OwnNetworks = oddNets(r, sizes[r.IntN(len(sizes))], true)
		a.RemoteNetworks = slices.DeleteFunc(a.RemoteNetworks,
			func(n netip.Prefix) bool { return n.Contains(outers[0]) })
		settle(t, ns, h, state(t, tables(a)...))
		require.Empty(t, settle(t, ns, h, state(t, tables(a)...)), "nothing is left to do")
		ns.Run("nft flush set ip probe seen")
		want := map[string]string{}
		marker := 9999
		udp := func(src netip.Addr, dst, dev string, passes bool, why string) []byte {
			marker++
			want[fmt.Sprintf("%s . %d", dev, marker)] = fmt.Sprintf("%t %s", passes, why)
			return nstest.IPv4(src.String(), dst, unix.IPPROTO_UDP, nstest.UDP(9, marker, nil))
		}
		var in, out [][]byte
		here := "10.9.0.1" // is accepted as a destination
		if len(a.OwnNetworks) > 0 {
			here = a.OwnNetworks[len(a.OwnNetworks)-1].Addr().String()
			if a.OwnNetworks[len(a.OwnNetworks)-1].Addr().IsUnspecified() {
				here = "0.0.0.1"
			}
		}
		for _, src := range oddSources(r, all) {
			for _, o := range outers {
				passes := len(a.InnerSources) == 0 ||
					slices.ContainsFunc(a.InnerSources,
						func(s cable.InnerSource) bool { return s.Outer == o && s.Net.Contains(src) })
				if inOneOf(o, a.RemoteNetworks) {
					continue // dropped before
				}
				p := nstest.VXLAN(7, mac,
					udp(src, here, "vx", passes, fmt.Sprintf("%v inside packets from %v, with %v", src, o, a.InnerSources)))
				in = append(in, nstest.IPv4(o.String(), "172.30.0.1", unix.IPPROTO_UDP, nstest.UDP(9, 4502, p)))
			}
		}
		if len(a.InnerSources) > 0 && len(a.OwnNetworks) > 0 && !inOneOf(outers[0], a.RemoteNetworks) {
			from := a.InnerSources[r.IntN(len(a.InnerSources))]
			for _, dst := range oddSources(r, a.OwnNetworks) {
				passes := inOneOf(dst, a.OwnNetworks) && !inOneOf(from.Outer, a.RemoteNetworks)
				p := nstest.VXLAN(
					7,
					mac,
					udp(from.Net.Addr(), dst.String(), "vx", passes,
						fmt.Sprintf("to %v inside packets, with own %v", dst, a.OwnNetworks)),
				)
				in = append(in,
					nstest.IPv4(from.Outer.String(), "172.30.0.1", unix.IPPROTO_UDP, nstest.UDP(9, 4502, p)))
				leaves := udp(dst, "10.9.0.1", "subvx-1", inOneOf(dst, a.OwnNetworks),
					fmt.Sprintf("%v inside packets that leave, with own %v", dst, a.OwnNetworks))
				out = append(
					out,
					nstest.IPv4(here, "172.31.0.9", unix.IPPROTO_UDP,
						nstest.UDP(marker, 4502, nstest.VXLAN(7, mac, leaves))),
				)
			}
		}
		for _, src := range oddSources(r, a.RemoteNetworks) {
			in = append(
				in,
				udp(src, "172.30.0.1", "up0", !inOneOf(src, a.RemoteNetworks),
					fmt.Sprintf("%v, with remote %v", src, a.RemoteNetworks)),
			)
		}
		for _, src := range oddSources(r, a.OwnNetworks) {
			out = append(
				out,
				udp(src, "172.31.0.9", "subvx-1", len(a.OwnNetworks) == 0 || inOneOf(src, a.OwnNetworks),
					fmt.Sprintf("%v, with own %v", src, a.OwnNetworks)),
			)
		}
		require.NoError(t, sendRaw(other, in))
		require.NoError(t, sendRaw(ns, out))
		got := map[string]bool{}
		arrived := func() bool {
			text := strings.ReplaceAll(ns.Run("nft list set ip probe seen"), `"`, "")
			for _, e := range strings.FieldsFunc(text, func(c rune) bool {
				return strings.ContainsRune("{},\n\t=", c)
			}) {
				got[strings.TrimSpace(e)] = true
			}
			for marker, w := range want {
				if strings.HasPrefix(w, "true") && !got[marker] {
					return false
				}
			}
			return true
		}
		for end := time.Now().Add(5 * time.Second); !arrived() && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond) // for a packet that should not arrive
		arrived()
		passed := 0
		for marker, w := range want {
			passes := strings.HasPrefix(w, "true")
			require.Equal(t, passes, got[marker], "%s %s", marker, w)
			if passes {
				passed++
			}
		}
		t.Logf("%d packets, %d passed; %d chains, %d remote, %d own", len(want), passed, len(a.Tables()[0].Chains), len(a.RemoteNetworks),
			len(a.OwnNetworks))
	}
}

// No forged packet passes while a clusterset grows and shrinks around the number of networks that
// are compared one by one, or while a member changes its networks.
func TestHostilePacketsDuringChange(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	other := nstest.New(t, "other")
	nstest.Join(nstest.End{NS: ns, Dev: "up0", Addr: "172.30.0.1/24"},
		nstest.End{NS: other, Dev: "up0", Addr: "172.30.0.2/24"})
	const mac = "02:00:00:00:00:01"
	ns.Run("ip link add vx address " + mac + " type vxlan id 7 dstport 4502 dev up0 && ip link set vx up")
	ns.Run(`nft -f - <<X
table ip probe {
	chain in { type filter hook prerouting priority -250; udp dport 7001 counter comment "forged"; udp dport 7002 counter comment "true"; }
}
X`)
	var turns []cable.Antispoof
	nets := []netip.Prefix{
		cidr("10.1.0.0/16"),
		cidr("10.2.0.0/16"),
		cidr("10.3.0.0/16"),
		cidr("10.4.0.0/16"),
		cidr("10.5.0.0/17"),
		cidr("10.5.128.0/17"),
	}
	for i, n := range []int{4, 5, 3, 6, 4, 1} {
		a := cable.Antispoof{
			Table:          "submariner-gateway-antispoof",
			VXLANPorts:     []int{4502},
			CommonDevices:  []string{"vx"},
			RemoteDevices:  []string{"vx", "subvx-*"},
			RemoteNetworks: nets[:n],
			InnerSources: []cable.InnerSource{
				{Outer: ip("172.30.0.2"), Net: cidr("10.1.0.0/16")},
				{Outer: ip("172.30.0.3"), Net: cidr("10.2.0.0/16")},
			},
		}
		if i%2 == 0 { // another mask
			a.InnerSources = append(a.InnerSources, cable.InnerSource{Outer: ip("172.30.0.4"), Net: cidr("10.3.0.0/20")})
		}
		turns = append(turns, a)
	}
	udp := func(src string, marker int) []byte {
		return nstest.IPv4(src, "172.30.0.1", unix.IPPROTO_UDP, nstest.UDP(9, marker, nil))
	}
	inner := func(outer, src string, marker int) []byte {
		return nstest.IPv4(outer, "172.30.0.1", unix.IPPROTO_UDP,
			nstest.UDP(9, 4502, nstest.VXLAN(7, mac, udp(src, marker))))
	}
	packets := [][]byte{
		udp("10.1.0.9", 7001),
		inner("172.30.0.2", "10.2.0.9", 7001),
		inner("172.30.0.3", "10.1.0.9", 7001),
		inner("172.30.0.9", "10.1.0.9", 7001),
		inner("172.30.0.2", "10.1.0.9", 7002),
		inner("172.30.0.3", "10.2.0.9", 7002),
	}
	settle(t, ns, h, state(t, tables(turns[0])...))
	stop := make(chan struct{})
	done := make(chan int)
	go func() {
		rounds := 0
		for ; sendRaw(other, packets) == nil; rounds++ {
			select {
			case <-stop:
				done <- rounds
				return
			case <-time.After(200 * time.Microsecond): // all namespaces share the queues of received packets
			}
		}
		done <- -1
	}()
	for i := range 90 {
		require.NotEmpty(t, settle(t, ns, h, state(t, tables(turns[(i+1)%len(turns)])...)))
	}
	close(stop)
	rounds := <-done
	require.Positive(t, rounds)
	time.Sleep(50 * time.Millisecond)
	counts := ns.Run("nft list chain ip probe in")
	t.Logf("%d rounds\n%s", rounds, counts)
	require.Contains(t, counts, "udp dport 7001 counter packets 0 ")
	require.NotContains(t, counts, "udp dport 7002 counter packets 0 ")
}
