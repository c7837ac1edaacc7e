//go:build linux

package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

// thousand returns the plan of a gateway that is connected to 1,000 clusters with 2 CIDRs
// each. The cluster with the number moved, if any, has moved to another gateway.
func thousand(t testing.TB, moved int) dataplane.State {
	const dev = dataplane.VXLANDevice
	members := make([]netip.Prefix, 0, 2000)
	s := state(t, dataplane.VXLAN{
		Name:  dev,
		MAC:   "0a:58:ac:12:00:02",
		VNI:   dataplane.CableVNI,
		Local: ip("172.18.0.2"),
		Port:  dataplane.VXLANPort,
		MTU:   1450,
		Conf:  dataplane.Conf{RPFilter: 2, Forwarding: 1},
	}, dataplane.Addr{Dev: dev, Prefix: cidr("241.18.0.2/8")},
		dataplane.Rule{Priority: dataplane.CablePriority, Table: dataplane.CableTable})
	for i := range 1000 {
		a := byte(i >> 8)
		b := byte(i)
		mac := fmt.Sprintf("0a:58:ac:13:%02x:%02x", a, b)
		vtep := netip.AddrFrom4([4]byte{241, 19, a, b})
		nh := uint32(dataplane.VXLANNexthopID<<24 + i + 1)
		group := uint32(dataplane.CableGroupID<<24 + i + 1)
		dst := netip.AddrFrom4([4]byte{172, 19, a, b})
		if i == moved {
			dst = netip.AddrFrom4([4]byte{172, 20, a, b})
			mac = fmt.Sprintf("0a:58:ac:14:%02x:%02x", a, b)
		}
		require.NoError(t, s.Add(dataplane.FDB{Dev: dev, MAC: mac, Dst: dst},
			dataplane.Neigh{Dev: dev, IP: vtep, MAC: mac}, dataplane.Nexthop{ID: nh, Via: vtep, Dev: dev},
			dataplane.Group{ID: group, Members: []dataplane.Member{{ID: nh, Weight: 1}}}))
		for j := range 2 {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10 + byte(j), a, b, 0}), 24)
			members = append(members, p)
			require.NoError(t,
				s.Add(dataplane.Route{Table: dataplane.CableTable, Dst: p, Group: group, Src: ip("172.18.0.2")}))
		}
	}
	require.NoError(t, s.Add(set("SUBMARINER-GW-REMOTE", members...)))
	for _, hook := range []string{"FORWARD", "POSTROUTING"} {
		require.NoError(t, s.Add(dataplane.Chain{
			Table: "mangle", Name: "SUBMARINER-GW-" + hook, Hook: hook, Sets: []string{"SUBMARINER-GW-REMOTE"},
			Rules: []string{"-m set --match-set SUBMARINER-GW-REMOTE src -j MARK --set-xmark 0x0/0x4000"},
		}))
	}
	return s
}

// bench measures f in a node of its own.
func bench(b *testing.B, prepare, f func(*nstest.NS, *Host)) {
	ns, h := node(b, dataplane.GatewayOwner)
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		prepare(ns, h)
		b.StartTimer()
		f(ns, h)
	}
}

func must(b *testing.B, h *Host, want dataplane.State, steps int) {
	ops, err := dataplane.Sync(context.Background(), h, want)
	require.NoError(b, err)
	require.Len(b, ops, steps)
}

func BenchmarkSync1000FromEmpty(b *testing.B) {
	want := thousand(b, -1)
	bench(b, func(ns *nstest.NS, h *Host) { settle(b, ns, h, nil) },
		func(ns *nstest.NS, h *Host) { ns.Do(func() { must(b, h, want, len(want)) }) })
}

func BenchmarkSync1000Nothing(b *testing.B) {
	want := thousand(b, -1)
	bench(b, func(ns *nstest.NS, h *Host) { settle(b, ns, h, want) },
		func(ns *nstest.NS, h *Host) { ns.Do(func() { must(b, h, want, 0) }) })
}

func BenchmarkSync1000OneChanged(b *testing.B) {
	before := thousand(b, -1)
	after := thousand(b, 500)
	bench(b, func(ns *nstest.NS, h *Host) { settle(b, ns, h, before) },
		func(ns *nstest.NS, h *Host) { ns.Do(func() { must(b, h, after, 3) }) })
}

func BenchmarkSync1000ToEmpty(b *testing.B) {
	want := thousand(b, -1)
	bench(b, func(ns *nstest.NS, h *Host) { settle(b, ns, h, want) },
		func(ns *nstest.NS, h *Host) { ns.Do(func() { must(b, h, nil, len(want)) }) })
}

// Beside kube-proxy, which has 9,000 rules and has just changed one of them.
func BenchmarkObserveBusyNode(b *testing.B) {
	ns, h := node(b, dataplane.GatewayOwner)
	settle(b, ns, h, state(b, one()...))
	ns.Run(`( echo "*nat"; for i in $(seq 3000); do echo ":KUBE-SVC-$i - [0:0]"; done
		for i in $(seq 3000); do for p in 80 443 8080; do echo "-A KUBE-SVC-$i -p tcp -m tcp --dport $p -j RETURN"; done; done
		echo COMMIT ) | iptables-restore --noflush`)
	look(b, ns, h)
	for b.Loop() {
		b.StopTimer()
		ns.Run("iptables -t nat -R KUBE-SVC-1 1 -j RETURN")
		b.StartTimer()
		look(b, ns, h)
	}
}

// On a node of a cluster that is connected to 1,000 others with 2 CIDRs each, one CIDR
// changes.
func BenchmarkSourcesOneChanged(b *testing.B) {
	ns, h := node(b, dataplane.RouteOwner)
	var remote []netip.Prefix
	for i := range 2000 {
		remote = append(remote,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10 + byte(i>>9), byte(i), byte(i >> 8), 0}), 24))
	}
	slices.SortFunc(remote, netip.Prefix.Compare)
	for i := 0; b.Loop(); i++ {
		s := sourcesOf(slices.Delete(slices.Clone(remote), i%2000, i%2000+1)...)
		require.Len(b, settle(b, ns, h, state(b, s)), 1)
		require.Empty(b, settle(b, ns, h, state(b, s)))
	}
}

// The time of a Sync of 50,000 elements of a map: of all of them, of one more or less, the same by
// nft(8), and of nothing to do after another program has changed nftables.
func BenchmarkElements(b *testing.B) {
	const n = 50_000
	ns, h := node(b, dataplane.RouteOwner)
	table := func(first int) dataplane.Ruleset {
		r := returnsOf(1)
		m := dataplane.RuleSet{Name: "pairs", Type: "ipv4_addr : ipv4_addr"}
		for i := first; i < n; i++ {
			m.Elements = append(m.Elements, fmt.Sprintf("242.1.%d.%d : 10.1.%d.%d", i>>8, i&255, i>>8, i&255))
		}
		slices.Sort(m.Elements)
		r.Sets = []dataplane.RuleSet{m}
		return r
	}
	full := table(0)
	less := table(1)
	b.Run("from empty", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			settle(b, ns, h, nil)
			b.StartTimer()
			settle(b, ns, h, state(b, full))
		}
	})
	settle(b, ns, h, state(b, full))
	b.Run("one more or less", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			require.Len(b, settle(b, ns, h, state(b, []dataplane.Ruleset{less, full}[i%2])), 1)
		}
	})
	settle(b, ns, h, state(b, full))
	b.Run("one more or less by nft", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			ns.Run(
				"nft -f - <<'END'\n" + []dataplane.Ruleset{less, full}[i%2].Script(
					[]dataplane.Ruleset{full, less}[i%2]) + "END",
			)
		}
	})
	settle(b, ns, h, state(b, full))
	b.Run("nothing to do", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			ns.Run("nft add table ip other; nft delete table ip other")
			b.StartTimer()
			require.Empty(b, settle(b, ns, h, state(b, full)))
		}
	})
}
