package cable

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	vnl "github.com/vishvananda/netlink"

	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/measure"
	"subctl/internal/nstest"
)

// shareLab is a worker with some gateways, whose kernel is asked by which of them its group sends a
// flow. Packets without a connection follow the group. Connections do not: see Intra.returns.
type shareLab struct {
	t    testing.TB
	ns   *nstest.NS
	host *kernel.Host
	plan Intra
}

func newShareLab(t testing.TB, resilient bool, gateways int) *shareLab {
	t.Helper()
	l := &shareLab{t: t, ns: nstest.New(t, "worker"), plan: Intra{
		Self: gatewayNode(9), MTU: 1500, PodIP: netip.MustParseAddr("10.0.1.1"), OwnPodIP: true, Resilient: resilient,
		Local: Networks{Pods: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}},
		Remote: []Reached{
			{
				Cluster: "west",
				Subnets: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")},
				MTU:     1450,
				Device:  "cable0",
			},
		},
	}}
	for i := range gateways {
		l.plan.Gateways = append(l.plan.Gateways, gatewayNode(i+1))
	}
	l.ns.Run(
		"ip link set lo up && ip link add eth0 type veth peer name eth1 && ip link set eth1 up && ip link set eth0 up && ip addr add 172.18.0.9/24 dev eth0")
	l.ns.Do(func() {
		facts, err := kernel.ReadFacts()
		require.NoError(t, err)
		if resilient && !facts.Resilient {
			t.Skip("this kernel has no resilient groups")
		}
		l.host, err = kernel.New(dataplane.RouteOwner)
		require.NoError(t, err)
	})
	t.Cleanup(l.host.Close)
	l.sync()
	return l
}

func (l *shareLab) sync() {
	l.t.Helper()
	s, err := PlanIntra(l.plan)
	require.NoError(l.t, err)
	l.ns.Do(func() {
		_, err = dataplane.Sync(l.t.Context(), l.host, s)
		require.NoError(l.t, err)
	})
	// A bucket that is used in the clock tick in which it has moved counts as unused
	// (nh_res_bucket_idle_point in net/ipv4/nexthop.c).
	time.Sleep(2 * longestTick)
}

// longestTick is the longest clock tick of kernels: CONFIG_HZ is at least 100.
const longestTick = 10 * time.Millisecond

// flows sends the first packet of flows, number from to number to less one, and returns the
// gateways by which they leave, counted from 0.
func (l *shareLab) flows(from, to int) (via map[int]int) {
	l.t.Helper()
	byVTEP := map[string]int{}
	for i, g := range l.plan.Gateways {
		byVTEP[VTEPOf(dataplane.IntraVTEPNet, g.IP).String()] = i
	}
	via = map[int]int{}
	l.ns.Do(func() {
		for n := from; n < to; n++ {
			routes, err := vnl.RouteGet(net.IPv4(10, 2, byte(n>>8), byte(n)))
			require.NoError(l.t, err)
			gateway, known := byVTEP[routes[0].Gw.String()]
			require.True(l.t, known)
			via[n] = gateway
		}
	})
	return via
}

// firsts returns the part of flows that leave by the first gateway.
func firsts(via map[int]int) float64 {
	n := 0
	for _, g := range via {
		if g == 0 {
			n++
		}
	}
	return float64(n) / float64(len(via))
}

// Flows follow the weights of gateways, in both kinds of groups, and the weights can change.
func TestWeights(t *testing.T) {
	for name, resilient := range map[string]bool{"plain": false, "resilient": true} {
		t.Run(name, func(t *testing.T) {
			l := newShareLab(t, resilient, 2)
			require.InDelta(t, 0.5, firsts(l.flows(0, 4000)), 0.05)
			l = newShareLab(t, resilient, 2)
			l.plan.Gateways[0].Weight = 75
			l.plan.Gateways[1].Weight = 25
			l.sync()
			require.InDelta(t, 0.75, firsts(l.flows(0, 4000)), 0.04)
		})
	}
}

// A gateway that is draining keeps its flows, and gets next to no new ones. Once it is drained it
// has none. When it is in service again, no flow moves.
func TestDrainKeepsFlows(t *testing.T) {
	l := newShareLab(t, true, 2)
	const live = 300
	before := l.flows(0, live)
	require.InDelta(t, 0.5, firsts(before), 0.15)
	l.plan.Gateways[0].Drain = Draining
	l.sync()
	require.Equal(t, before, l.flows(0, live), "flows moved when their gateway was to be drained")
	fresh := firsts(l.flows(1000, 6000))
	t.Logf("%.2f %% of the new flows take the gateway that is draining, which has %.0f flows", 100*fresh,
		live*firsts(before))
	require.Less(t, fresh, 0.03)

	l.plan.Gateways[0].Drain = Drained
	l.sync()
	require.Zero(t, firsts(l.flows(0, live)))
	after := l.flows(0, live)
	stayed := maps.Clone(before)
	maps.DeleteFunc(stayed, func(_, g int) bool { return g == 0 })
	for n := range stayed {
		require.Equal(t, 1, after[n])
	}
	l.plan.Gateways[0].Drain = InService
	l.sync()
	require.Equal(t, after, l.flows(0, live), "flows moved when the gateway came back")
	require.Greater(t, firsts(l.flows(10000, 14000)), 0.2, "the gateway gets new flows again")
}

// The flows of the only gateway stay with it when a cluster gets a second one, which gets new
// flows.
func TestSecondGateway(t *testing.T) {
	l := newShareLab(t, true, 1)
	const live = 300
	before := l.flows(0, live)
	l.plan.Gateways = append(l.plan.Gateways, gatewayNode(2))
	l.sync()
	require.Equal(t, before, l.flows(0, live), "flows moved")
	require.Less(t, firsts(l.flows(10000, 14000)), 0.9)
}

// Without resilient groups, or if no other gateway answers, there is nothing that could keep flows
// apart from new ones.
func TestDrainWithoutAlternative(t *testing.T) {
	l := newShareLab(t, false, 2)
	l.plan.Gateways[0].Drain = Draining
	l.sync()
	require.Zero(t, firsts(l.flows(0, 200)), "a plain group has no buckets: the gateway leaves it at once")
	l.plan.Gateways[1].Down = true
	l.sync()
	require.InDelta(t, 1, firsts(l.flows(0, 200)), 0, "the last path is never withdrawn")
	l.plan.Gateways[0].Drain = Drained
	l.sync()
	require.InDelta(t, 1, firsts(l.flows(0, 200)), 0)
}

// timed is a Target that counts the steps that change it, and how long they take.
type timed struct {
	dataplane.Target
	steps int
	took  time.Duration
}

func (t *timed) Apply(ctx context.Context, op dataplane.Op) error {
	start := time.Now()
	err := t.Target.Apply(ctx, op)
	t.steps, t.took = t.steps+1, t.took+time.Since(start)
	return err
}

// BenchmarkGatewayOut takes a gateway out of use, and back, on a node with 1,000 routes through it.
func BenchmarkGatewayOut(b *testing.B) {
	for name, resilient := range map[string]bool{"plain": false, "resilient": true} {
		l := newShareLab(b, resilient, 2)
		l.plan.Remote = nil
		for i := range 1000 {
			l.plan.Remote = append(l.plan.Remote, Reached{
				Cluster: fmt.Sprintf("c%d", i),
				Subnets: []netip.Prefix{
					netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(100 + i/250), byte(i % 250), 0}), 24),
				},
				MTU:    1450,
				Device: "cable0",
			})
		}
		l.sync()
		var steps, took, whole measure.Values
		for turn := range 40 {
			l.plan.Gateways[0].Down = turn%2 == 0
			s, err := PlanIntra(l.plan)
			require.NoError(b, err)
			host := &timed{Target: l.host}
			l.ns.Do(func() {
				start := time.Now()
				_, err = dataplane.Sync(b.Context(), host, s)
				whole = append(whole, time.Since(start).Seconds()*1000)
				require.NoError(b, err)
			})
			steps = append(steps, float64(host.steps))
			took = append(took, host.took.Seconds()*1000)
		}
		measure.Record(
			b,
			measure.AtMost(
				fmt.Sprintf("a gateway out of use, or back, with 1,000 routes, %s group: messages to the kernel", name),
				steps, 1, "messages"),
			measure.AtMost(
				fmt.Sprintf(
					"a gateway out of use, or back, with 1,000 routes, %s group: until the kernel has the message",
					name),
				took,
				5,
				"ms",
			),
			measure.Info(
				fmt.Sprintf(
					"a gateway out of use, or back, with 1,000 routes, %s group: with reading what the node holds",
					name),
				whole,
				"ms",
			),
		)
	}
}
