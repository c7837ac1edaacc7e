package cable

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	vnl "github.com/vishvananda/netlink"

	"subctl/dataplane"
	"subctl/internal/measure"
	"subctl/internal/nstest"
)

// BenchmarkBuckets measures what the number of buckets of a resilient group is worth: one of two
// gateways leaves, while all flows go on, and returns. No flow moves then. How many new ones does
// it get, of the half that is its share? See docs/adr/0025.
func BenchmarkBuckets(b *testing.B) {
	for _, buckets := range []int{128, dataplane.CableBuckets, dataplane.IntraBuckets} {
		for _, live := range []int{30, 300, 3000, 10000} {
			var got measure.Values
			for range measure.Times(3) {
				got = append(got, 200*shareAfterReturn(b, buckets, live))
			}
			measure.Record(
				b,
				measure.Info(
					fmt.Sprintf(
						"resilient group of %d buckets with %d flows: new flows of a gateway that returns, of its share",
						buckets, live),
					got,
					"%",
				),
			)
		}
	}
}

// shareAfterReturn returns the part of new flows that take one of two gateways, which has returned.
func shareAfterReturn(b *testing.B, buckets, live int) float64 {
	b.Helper()
	ns := nstest.New(b, "worker")
	ns.Run(
		"ip link set lo up && ip link add eth0 type veth peer name eth1 && ip link set eth1 up && ip link set eth0 up && ip addr add 172.18.0.9/24 dev eth0")
	for id, via := range map[int]int{1: 1, 2: 2, 3: 1, 4: 2} { // each next hop twice, as in plans
		ns.Run(fmt.Sprintf("ip nexthop add id %d via 172.18.0.%d dev eth0", id, via))
	}
	group := func(verb, members string) {
		ns.Run(
			fmt.Sprintf("ip nexthop %s id 10 group %s type resilient buckets %d idle_timer 120 unbalanced_timer 0",
				verb, members, buckets),
		)
		time.Sleep(2 * longestTick) // see sync
	}
	group("add", "1/2/3/4")
	ns.Run("ip route add 10.0.0.0/8 nhid 10")
	// flows returns how many of so many flows leave by the first gateway.
	flows := func(from, n int) (first int) {
		ns.Do(func() {
			for i := from; i < from+n; i++ {
				routes, err := vnl.RouteGet(net.IPv4(10, byte(i>>16), byte(i>>8), byte(i)))
				require.NoError(b, err)
				if routes[0].Gw.Equal(net.IPv4(172, 18, 0, 1)) {
					first++
				}
			}
		})
		return first
	}
	flows(0, live)
	group("replace", "2/4")
	require.Zero(b, flows(0, live))
	group("replace", "1/2/3/4")
	require.Zero(b, flows(0, live), "no flow moves")
	const fresh = 10000
	return float64(flows(1<<20, fresh)) / fresh
}
