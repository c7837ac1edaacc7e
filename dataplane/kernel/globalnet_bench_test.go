//go:build linux

package kernel

import (
	"net/netip"
	"testing"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// manyAddresses returns a table with n global addresses: half are pods' own, half are Services with
// an endpoint.
func manyAddresses(n int) dataplane.Globalnet {
	g := globalnet()
	g.Own = nil
	g.Services = nil
	g.Backends = nil
	g.Replies = nil
	at := func(net byte, i int) netip.Addr {
		return netip.AddrFrom4([4]byte{net, 1 + byte(i>>16), byte(i >> 8), byte(i)})
	}
	for i := range n / 2 {
		g.Own = append(g.Own, dataplane.GlobalAddr{Global: at(242, i), Local: at(10, i)})
		s := dataplane.GlobalService{Addr: at(242, n/2+i), Proto: 6, Port: 80, Slots: 1}
		to := netip.AddrPortFrom(at(11, i), 8080)
		g.Services = append(g.Services, s)
		g.Backends = append(g.Backends, dataplane.GlobalBackend{Addr: s.Addr, Proto: 6, Port: 80, To: to})
		g.Replies = append(g.Replies, dataplane.GlobalReply{From: to, Proto: 6, As: netip.AddrPortFrom(s.Addr, 80)})
	}
	return g
}

// The time of a Sync of 50,000 global addresses: from empty, of one more, and of nothing to do
// after another program has changed nftables.
func BenchmarkGlobalnet(b *testing.B) {
	const n = 50_000
	ns, h := node(b, dataplane.GatewayOwner)
	full := manyAddresses(n)
	less := full
	less.Own = full.Own[1:]
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
			require.Len(b, settle(b, ns, h, state(b, []dataplane.Globalnet{less, full}[i%2])), 1)
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
