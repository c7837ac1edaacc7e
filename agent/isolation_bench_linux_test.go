package agent

import (
	"fmt"
	"testing"

	"subctl/dataplane"
	"subctl/internal/measure"
)

// BenchmarkIsolation compares throughput between pods with and without the tables of nftables that
// keep clusters apart and drop forged packets. The chains of iptables stay, which also accept
// packets. The tables are switched off and on during connections, in turns. See BenchmarkPodToPod
// for receive offload.
func BenchmarkIsolation(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pair := func() (east, west *side) {
				fabric := newFabric(b)
				east = newSide(b, fabric, 1, "east")
				west = newSide(b, fabric, 2, "west")
				measure.OneCPU(b, fabric)
				east.more = n - 1
				west.more = n - 1
				east.sync(b, west)
				west.sync(b, east)
				return east, west
			}
			east, west := pair()
			cardEast, cardWest := pair()
			cardEast.joinReceived()
			cardWest.joinReceived()
			for b.Loop() {
				for _, node := range nodeNames {
					compare := func(connections, turns int, east, west *side) (percent measure.Values) {
						for range measure.Times(connections) {
							percent = append(
								percent,
								path(east, west, node).CompareSettings(b, turns, tables("", east, west),
									tables("flags dormant;", east, west)).Percent...)
						}
						return percent
					}
					card := compare(20, 40, cardEast, cardWest)
					split := compare(2, 25, east, west)
					name := fmt.Sprintf("isolation, %d remote clusters, %s: throughput, of the same without its rules",
						n, map[string]string{"gw": "gateway nodes", "worker": "worker nodes"}[node])
					measure.Record(b, measure.AtLeast(name, card, 97, "%"),
						measure.Info(name+", without receive offload", split, "%"))
				}
			}
		})
	}
}

// tables returns what sets the flags of the tables of all nodes.
func tables(flags string, sides ...*side) func() {
	set := func(o dataplane.Owner) string { return fmt.Sprintf("add table ip %s { %s };", o.Antispoof, flags) }
	return func() {
		for _, s := range sides {
			s.nodes["gw"].Run("nft '" + set(dataplane.GatewayOwner) + set(dataplane.RouteOwner) + "'")
			s.nodes["worker"].Run("nft '" + set(dataplane.RouteOwner) + "'")
		}
	}
}
