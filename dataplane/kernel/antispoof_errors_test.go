//go:build linux

package kernel

import (
	"encoding/binary"
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

// The kernel drops the ICMP errors that are about packets to other clusters than the sender's, and
// no others, whatever networks members announce, and however these change.
func TestHostileErrorNetworks(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	other := nstest.New(t, "other")
	plain := nstest.New(t, "plain")
	nstest.Join(nstest.End{NS: ns, Dev: "up0", Addr: "172.30.0.1/24"},
		nstest.End{NS: other, Dev: "up0", Addr: "172.30.0.2/24"})
	nstest.Join(nstest.End{NS: ns, Dev: "subvx-1", Addr: "172.31.0.1/24"},
		nstest.End{NS: plain, Dev: "up0", Addr: "172.31.0.2/24"})
	const mac = "02:00:00:00:00:01"
	ns.Run("ip link add vx address " + mac + " type vxlan id 7 dstport 4502 dev up0 && ip link set vx up")
	ns.Run(
		"nft -f - <<X\ntable ip probe {\nset seen { typeof ip id; size 65535; flags dynamic; }\nchain in { type filter hook prerouting priority -250; iifname { vx, subvx-1 } meta l4proto icmp add @seen { ip id }; }\n" +
			noICMPErrors + "}\nX")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	outers := []netip.Addr{ip("172.30.0.2"), ip("172.30.0.3"), ip("172.30.0.4")}
	types := []byte{3, 4, 5, 11, 12}
	for range 10 {
		a := cable.Antispoof{
			Table:           "submariner-gateway-antispoof",
			VXLANPorts:      []int{4502},
			Layer3Devices:   []string{"subvx-*"},
			OwnNetworks:     []netip.Prefix{cidr("172.30.0.1/32"), cidr("172.31.0.1/32")},
			ClusterNetworks: []dataplane.ClusterNet{{Net: cidr("172.30.0.0/24"), Cluster: "c"}},
			DecapDevices:    []string{"vx"},
		}
		var inner []netip.Prefix
		for _, o := range outers {
			for _, n := range oddNets(r, 1+r.IntN(5), false) {
				a.InnerSources = append(a.InnerSources, cable.InnerSource{Outer: o, Net: n})
				inner = append(inner, n)
			}
		}
		nets := oddNets(r, 1+r.IntN(12), true)
		for _, n := range nets {
			a.PeerNetworks = append(a.PeerNetworks,
				cable.PeerNet{Net: n, Peer: netip.AddrFrom4([4]byte{242, 0, 0, byte(r.IntN(3))})})
		}
		settle(t, ns, h, state(t, tables(a)...))
		require.Empty(t, settle(t, ns, h, state(t, tables(a)...)), "nothing is left to do")
		ns.Run("nft flush set ip probe seen")
		want := map[string]string{}
		id := 999
		packet := func(typ byte, src, dst string, about netip.Addr, passes bool) []byte {
			id++
			want[fmt.Sprint(id)] = fmt.Sprintf("%t, type %d from %s about %v, with %v and %v", passes, typ, src, about,
				a.InnerSources, a.PeerNetworks)
			p := nstest.IPv4(src, dst, unix.IPPROTO_ICMP,
				nstest.ICMPError(typ, 1, nstest.IPv4(dst, about.String(), unix.IPPROTO_UDP, nstest.UDP(9, 9, nil))))
			binary.BigEndian.PutUint16(p[4:], uint16(id))
			// the checksum is the complement of the sum, and the identification was 1
			sum := uint32(binary.BigEndian.Uint16(p[10:])) - uint32(id-1)
			binary.BigEndian.PutUint16(p[10:], uint16(sum-sum>>31))
			return p
		}
		var in, direct [][]byte
		for _, about := range append(oddSources(r, inner), oddSources(r, nets)...) {
			for _, from := range []cable.InnerSource{a.InnerSources[0], a.InnerSources[len(a.InnerSources)-1]} {
				passes := slices.ContainsFunc(a.InnerSources,
					func(s cable.InnerSource) bool { return s.Outer == from.Outer && s.Net.Contains(about) })
				for _, typ := range []byte{types[r.IntN(len(types))], 0, 8, 13} {
					p := packet(typ, from.Net.Addr().String(), "172.30.0.1", about,
						passes || !slices.Contains(types, typ))
					in = append(
						in,
						nstest.IPv4(from.Outer.String(), "172.30.0.1", unix.IPPROTO_UDP,
							nstest.UDP(9, 4502, nstest.VXLAN(7, mac, p))),
					)
				}
			}
			for _, from := range []cable.PeerNet{a.PeerNetworks[0], a.PeerNetworks[len(a.PeerNetworks)-1]} {
				passes := slices.ContainsFunc(a.PeerNetworks,
					func(n cable.PeerNet) bool { return n.Peer == from.Peer && n.Net.Contains(about) })
				for _, typ := range []byte{types[r.IntN(len(types))], 0, 8, 13} {
					source := from.Net.Addr()
					// the kernel would fill in another one; no network here is a single address
					// 0.0.0.0
					if source.IsUnspecified() {
						source = source.Next()
					}
					direct = append(direct,
						packet(typ, source.String(), "172.31.0.1", about, passes || !slices.Contains(types, typ)))
				}
			}
		}
		require.NoError(t, sendRaw(other, in))
		require.NoError(t, sendRaw(plain, direct))
		got := map[string]bool{}
		arrived := func() bool {
			for _, e := range strings.FieldsFunc(ns.Run(
				"nft list set ip probe seen"), func(c rune) bool { return c < '0' || c > '9' }) {
				got[e] = true
			}
			for id, w := range want {
				if strings.HasPrefix(w, "true") && !got[id] {
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
		for id, w := range want {
			require.Equal(t, strings.HasPrefix(w, "true"), got[id], "%s %s", id, w)
		}
		t.Logf("%d packets, %d arrived; %d chains", len(want), len(got), len(a.Tables()[0].Chains))
	}
}
