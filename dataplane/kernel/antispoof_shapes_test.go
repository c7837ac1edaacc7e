//go:build linux

package kernel

import (
	"encoding/binary"
	"fmt"
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

// fragments cuts the payload of an IPv4 packet without options at places that are multiples of 8.
func fragments(packet []byte, at ...int) (out [][]byte) {
	header := packet[:20]
	payload := packet[20:]
	from := 0
	for i, to := range append(at, len(payload)) {
		f := slices.Concat(header, payload[from:to])
		offset := from / 8
		if i < len(at) {
			offset |= 0x2000 // more fragments
		}
		binary.BigEndian.PutUint16(f[6:], uint16(offset))
		out = append(out, f)
		from = to
	}
	return out
}

// withOptions adds options to the header of an IPv4 packet: 4 bytes that mean nothing.
func withOptions(packet []byte) []byte {
	p := slices.Concat(packet[:20], []byte{1, 1, 1, 0}, packet[20:])
	p[0]++
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	p[10] = 0
	p[11] = 0
	sum := uint32(0)
	for i := 0; i < 24; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum))
	return p
}

// changed returns a packet with a byte changed.
func changed(packet []byte, at int, to byte) []byte {
	p := slices.Clone(packet)
	p[at] = to
	return p
}

// No shape of a packet hides a forged source: neither to the gateway, nor through a node. True
// packets of the same shape arrive, where the kernel takes such packets at all.
func TestHostileShapes(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	other := nstest.New(t, "other")
	pod := nstest.New(t, "pod")
	nstest.Join(nstest.End{NS: ns, Dev: "up0", Addr: "172.30.0.1/24"},
		nstest.End{NS: other, Dev: "up0", Addr: "172.30.0.2/24"})
	nstest.Join(nstest.End{NS: ns, Dev: "pod0", Addr: "10.9.0.1/24"},
		nstest.End{NS: pod, Dev: "up0", Addr: "10.9.0.2/24"})
	pod.Run("ip route add default via 10.9.0.1")
	other.Run(
		"ip route add default via 172.30.0.1; for d in /proc/sys/net/ipv4/conf/*; do echo 0 >$d/rp_filter; done; ip addr add 172.30.0.200/24 dev up0")
	const mac = "02:00:00:00:00:01"
	ns.Run(
		"ip link add vx address " + mac +
			" type vxlan id 7 dstport 4502 dev up0 && ip link set vx up; echo 1 >/proc/sys/net/ipv4/ip_forward; for d in /proc/sys/net/ipv4/conf/*; do echo 0 >$d/rp_filter; done",
	)
	const probe = `nft 'table ip probe { set seen { type inet_service; size 65535; flags dynamic; }; chain in { type filter hook prerouting priority -250; iifname vx meta l4proto udp add @seen { udp dport }; }; chain last { type filter hook input priority 10; udp dport 4800 @th,64,16 >= 0 add @seen { udp sport }; }; }'`
	ns.Run(probe)
	other.Run(probe)
	settle(t, ns, h, state(t, tables(cable.Antispoof{
		Table: "submariner-gateway-antispoof", VXLANPorts: []int{4502},
		InnerSources: []cable.InnerSource{
			{Outer: ip("172.30.0.2"), Net: cidr("10.1.0.0/16")},
			{Outer: ip("172.30.0.3"), Net: cidr("10.2.0.0/16")},
		},
		TransitPorts: []int{
			4502,
			4800,
		}, TunnelEndpoints: []netip.Prefix{cidr("172.30.0.1/32"), cidr("172.30.0.2/32"), cidr("172.30.0.3/32")},
	})...))
	marker := 7000
	name := map[int]string{}
	inner := func(src, shape string) []byte {
		marker++
		name[marker] = shape
		return nstest.IPv4(src, "172.30.0.1", unix.IPPROTO_UDP, nstest.UDP(9, marker, []byte("0123456789abcdef")))
	}
	outer := func(payload []byte) []byte {
		return nstest.IPv4("172.30.0.2", "172.30.0.1", unix.IPPROTO_UDP, nstest.UDP(9, 4502, payload))
	}
	vxlan := func(packet []byte, tag ...byte) []byte { return nstest.VXLAN(7, mac, packet, tag...) }
	shapes := map[string]func(src, shape string) [][]byte{
		"as usual": func(src, shape string) [][]byte { return [][]byte{outer(vxlan(inner(src, shape)))} },
		"header and rest": func(src, shape string) [][]byte {
			return fragments(outer(vxlan(inner(src, shape))), 8)
		},
		"the source elsewhere": func(src, shape string) [][]byte {
			return fragments(outer(vxlan(inner(src, shape))), 40)
		},
		"last fragment first": func(src, shape string) [][]byte {
			f := fragments(outer(vxlan(inner(src, shape))), 16, 40)
			slices.Reverse(f)
			return f
		},
		"overlapping": func(src, shape string) [][]byte {
			p := outer(vxlan(inner(src, shape)))
			truly := slices.Clone(p)
			copy(truly[20+8+8+14+12:], []byte{10, 1, 0, 9})
			f := fragments(p, 40)
			g := fragments(truly, 48)
			return [][]byte{f[0], g[0], f[1]}
		},
		"options": func(src, shape string) [][]byte {
			return [][]byte{withOptions(outer(vxlan(inner(src, shape))))}
		},
		"options inside": func(src, shape string) [][]byte {
			return [][]byte{outer(vxlan(withOptions(inner(src, shape))))}
		},
		"both options": func(src, shape string) [][]byte {
			return [][]byte{withOptions(outer(vxlan(withOptions(inner(src, shape)))))}
		},
		"VLAN tag 0": func(src, shape string) [][]byte {
			return [][]byte{outer(vxlan(inner(src, shape), 0x81, 0, 0, 0))}
		},
		"two tags": func(src, shape string) [][]byte {
			return [][]byte{outer(vxlan(inner(src, shape), 0x88, 0xa8, 0, 0, 0x81, 0, 0, 0))}
		},
		"fragment inside": func(src, shape string) [][]byte {
			return [][]byte{outer(vxlan(fragments(inner(src, shape), 16)[0]))}
		},
		"short UDP length": func(src, shape string) [][]byte {
			return [][]byte{changed(outer(vxlan(inner(src, shape))), 25, 58)}
		},
		"UDP length of zero": func(src, shape string) [][]byte {
			return [][]byte{changed(outer(vxlan(inner(src, shape))), 25, 0)}
		},
		"wrong UDP checksum": func(src, shape string) [][]byte {
			return [][]byte{changed(outer(vxlan(inner(src, shape))), 27, 1)}
		},
		"other VXLAN flags": func(src, shape string) [][]byte {
			return [][]byte{changed(outer(vxlan(inner(src, shape))), 28, 0xff)}
		},
		"no VXLAN flags": func(src, shape string) [][]byte {
			return [][]byte{changed(outer(vxlan(inner(src, shape))), 28, 0)}
		},
		"EtherType of IPv6": func(src, shape string) [][]byte {
			return [][]byte{changed(outer(vxlan(inner(src, shape))), 20+29, 0xdd)}
		},
		"length inside": func(src, shape string) [][]byte { return [][]byte{outer(vxlan(inner(src, shape))[:50])} },
		"broadcast": func(src, shape string) [][]byte {
			return [][]byte{
				nstest.IPv4("172.30.0.2", "172.30.0.255", unix.IPPROTO_UDP,
					nstest.UDP(9, 4502, vxlan(inner(src, shape)))),
			}
		},
		"in the name of the gateway itself": func(src, shape string) [][]byte {
			return [][]byte{
				nstest.IPv4("172.30.0.1", "172.30.0.1", unix.IPPROTO_UDP,
					nstest.UDP(9, 4502, vxlan(inner(src, shape)))),
			}
		},
		"in the name of nobody": func(src, shape string) [][]byte {
			return [][]byte{
				nstest.IPv4("172.30.0.77", "172.30.0.1", unix.IPPROTO_UDP,
					nstest.UDP(9, 4502, vxlan(inner(src, shape)))),
			}
		},
		"twice": func(src, shape string) [][]byte {
			in := nstest.IPv4("10.1.0.9", "172.30.0.1", unix.IPPROTO_UDP, nstest.UDP(9, 4502, vxlan(inner(src, shape))))
			return [][]byte{outer(vxlan(in))}
		},
	}
	packets := map[*nstest.NS][][]byte{}
	send := func(from *nstest.NS, identifier int, ps [][]byte) { // fragments have the identifier
		for _, p := range ps {
			binary.BigEndian.PutUint16(p[4:], uint16(identifier))
			packets[from] = append(packets[from], p)
		}
	}
	for shape, cut := range shapes {
		send(other, marker+1, cut("10.2.0.9", "forged: "+shape))
		send(other, marker+1, cut("10.1.0.9", "true: "+shape))
	}
	through := 0
	for _, src := range []string{"10.9.0.2", "172.30.0.3", "172.30.0.77"} { // a pod, another gateway, nobody
		for shape, ps := range map[string]func([]byte) [][]byte{
			"as usual":            func(p []byte) [][]byte { return [][]byte{p} },
			"header and rest":     func(p []byte) [][]byte { return fragments(p, 8) },
			"last fragment first": func(p []byte) [][]byte { f := fragments(p, 8, 16); slices.Reverse(f); return f },
			"options":             func(p []byte) [][]byte { return [][]byte{withOptions(p)} },
			"options in fragments": func(p []byte) [][]byte {
				return [][]byte{withOptions(fragments(p, 8)[0]), fragments(p, 8)[1]}
			},
		} {
			through++
			sport := 8000 + through
			name[sport] = "through a node from " + src + ": " + shape
			send(
				pod,
				sport,
				ps(
					nstest.IPv4(src, "172.30.0.2", unix.IPPROTO_UDP,
						nstest.UDP(sport, 4800, []byte("0123456789abcdef"))),
				),
			)
		}
	}
	arrived := func() (out []string) {
		for _, from := range []*nstest.NS{ns, other} {
			from.Run("nft flush set ip probe seen")
		}
		for from, ps := range packets {
			require.NoError(t, sendRaw(from, ps))
		}
		time.Sleep(200 * time.Millisecond)
		seen := ns.Run("nft list set ip probe seen") + other.Run("nft list set ip probe seen")
		for m, n := range name {
			if strings.Contains(seen, fmt.Sprint(m)) {
				out = append(out, n)
			}
		}
		slices.Sort(out)
		return out
	}
	taken := []string{
		"as usual", "both options", "broadcast", "header and rest", "last fragment first", "options", "options inside",
		"the source elsewhere",
	}
	var want []string
	for _, shape := range taken {
		want = append(want, "true: "+shape)
	}
	require.Equal(t, want, arrived())
	ns.Run("nft delete table ip submariner-gateway-antispoof")
	without := arrived()
	for _, shape := range append(taken, "VLAN tag 0", "in the name of nobody", "twice") {
		require.Contains(t, without, "forged: "+shape, "the attack works without the table")
	}
	require.Len(t,
		slices.DeleteFunc(slices.Clone(without), func(n string) bool { return !strings.HasPrefix(n, "through") }),
		through, "%v", without)
}
