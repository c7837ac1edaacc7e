//go:build linux

package kernel

import (
	"net/netip"
	"slices"
	"testing"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// manyAddresses returns n global addresses: half are pods' own, half are Services with an endpoint.
// Without one, the first pod has none of its own.
func manyAddresses(n int, all bool) dataplane.Ruleset {
	e := someElements()
	for _, list := range []*[]string{&e.Pods, &e.Globals, &e.Ports, &e.Endpoints, &e.Exports} {
		*list = nil
	}
	at := func(net byte, i int) string {
		return netip.AddrFrom4([4]byte{net, 1 + byte(i>>16), byte(i >> 8), byte(i)}).String()
	}
	for i := range n / 2 {
		if i > 0 || all {
			e.Pods = append(e.Pods, at(242, i)+" : "+at(10, i))
			e.Globals = append(e.Globals, at(10, i)+" : "+at(242, i))
		}
		service := at(242, n/2+i)
		e.Ports = append(e.Ports, service+" . 6 . 80 : goto slots-1")
		e.Endpoints = append(e.Endpoints, service+" . 6 . 80 . 0 : "+at(11, i)+" . 8080")
		e.Exports = append(e.Exports, at(11, i)+" . 6 . 8080 : "+service+" . 80")
	}
	for _, list := range []*[]string{&e.Pods, &e.Globals, &e.Ports, &e.Endpoints, &e.Exports} {
		slices.Sort(*list)
	}
	return tableOf(e)
}

// The time of a Sync of 50,000 global addresses: from empty, of one more, and of nothing to do
// after another program has changed nftables.
func BenchmarkGlobalnet(b *testing.B) {
	const n = 50_000
	ns, h := node(b, dataplane.GatewayOwner)
	full := manyAddresses(n, true)
	less := manyAddresses(n, false)
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
	b.Run("nothing to do", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			ns.Run("nft add table ip other; nft delete table ip other")
			b.StartTimer()
			require.Empty(b, settle(b, ns, h, state(b, full)))
		}
	})
}
