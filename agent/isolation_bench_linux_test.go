package agent

import (
	"fmt"
	"testing"

	"subctl/dataplane"
	"subctl/internal/measure"
	"subctl/internal/nstest"
)

// BenchmarkIsolation compares throughput between pods with the same plan without the tables of nftables that
// keep clusters apart and drop forged packets. The chains of iptables stay, which also accept packets. Both exist
// at the same time, and are measured in turns. See BenchmarkPodToPod for receive offload.
func BenchmarkIsolation(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pair := func() (east, west *side) {
				fabric := newFabric(b)
				east, west = newSide(b, fabric, 1, "east"), newSide(b, fabric, 2, "west")
				measure.OneCPU(b, fabric)
				east.more, west.more = n-1, n-1
				east.sync(b, west)
				west.sync(b, east)
				return east, west
			}
			open := func() (east, west *side) {
				east, west = pair()
				eachNode(func(ns *nstest.NS) {
					for _, o := range dataplane.Owners() {
						ns.Run("nft delete table ip " + o.Antispoof + " 2>/dev/null; true")
					}
				}, east, west)
				return east, west
			}
			east, west := pair()
			openEast, openWest := open()
			cardEast, cardWest := pair()
			cardOpenEast, cardOpenWest := open()
			for _, s := range []*side{cardEast, cardWest, cardOpenEast, cardOpenWest} {
				s.joinReceived()
			}
			for b.Loop() {
				for _, node := range nodeNames {
					compare := func(turns int, ours, open measure.Path) measure.Values {
						return measure.Compare(measure.Times(turns), func() float64 { return ours.Throughput(b) }, func() float64 { return open.Throughput(b) }).Percent
					}
					card := compare(200, path(cardEast, cardWest, node), path(cardOpenEast, cardOpenWest, node))
					split := compare(50, path(east, west, node), path(openEast, openWest, node))
					name := fmt.Sprintf("isolation, %d remote clusters, %s: throughput, of the same without its rules", n, map[string]string{"gw": "gateway nodes", "worker": "worker nodes"}[node])
					measure.Record(b, measure.AtLeast(name, card, 97, "%"), measure.Info(name+", without receive offload", split, "%"))
				}
			}
		})
	}
}
