package agent

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/measure"
	"subctl/internal/nstest"
	"subctl/policy"
)

// BenchmarkPodToPod compares throughput and round trip between pods with the same
// path made by hand: plain VXLAN devices, routes in the main table, no rules and
// no chains. All paths exist at the same time, in namespaces of their own, so that they
// can be measured in turns.
//
// The first "ip rule" of a node makes all its route lookups slower, even after the rule is
// deleted (fib_has_custom_rules in the kernel). Some CNIs use rules and some do not. The
// targets are for nodes where something else uses rules too.
//
// The network between the nodes splits what a connection sends into packets of the MTU. A network
// card puts those of a connection together again before anything looks at them (generic receive
// offload, on by default); virtual devices do so only if told to. The target of throughput is for
// nodes with such a card.
func BenchmarkPodToPod(b *testing.B) {
	pair := func() (east, west *side) {
		fabric := newFabric(b)
		east = newSide(b, fabric, 1, "east")
		west = newSide(b, fabric, 2, "west")
		measure.OneCPU(b, fabric)
		return east, west
	}
	ruled := func() (east, west *side) {
		east, west = pair()
		byHand(east, west)
		eachNode(func(ns *nstest.NS) { ns.Run("ip rule add pref 1 lookup main && ip rule del pref 1") }, east, west)
		return east, west
	}
	synced := func() (east, west *side) {
		east, west = pair()
		east.sync(b, west)
		west.sync(b, east)
		return east, west
	}
	plainEast, plainWest := pair()
	byHand(plainEast, plainWest)
	east, west := synced()
	ruledEast, ruledWest := ruled()
	cardEast, cardWest := synced()
	ruledCardEast, ruledCardWest := ruled()
	for _, s := range []*side{cardEast, cardWest, ruledCardEast, ruledCardWest} {
		s.joinReceived()
	}
	for b.Loop() {
		for _, node := range nodeNames {
			ours := path(east, west, node)
			hand := path(ruledEast, ruledWest, node)
			plain := path(plainEast, plainWest, node)
			oursCard := path(cardEast, cardWest, node)
			handCard := path(ruledCardEast, ruledCardWest, node)
			bits := measure.Compare(measure.Times(200), func() float64 { return oursCard.Throughput(b) },
				func() float64 { return handCard.Throughput(b) })
			split := measure.Compare(measure.Times(50), func() float64 { return ours.Throughput(b) },
				func() float64 { return hand.Throughput(b) })
			rtt := measure.Compare(measure.Times(100), func() float64 { return ours.RoundTrip(b) },
				func() float64 { return hand.RoundTrip(b) })
			toPlain := measure.Compare(measure.Times(50), func() float64 { return ours.RoundTrip(b) },
				func() float64 { return plain.RoundTrip(b) })
			where := map[string]string{"gw": "gateway nodes", "worker": "worker nodes, three VXLAN hops"}[node]
			measure.Record(
				b,
				measure.AtLeast("pod to pod, "+where+": throughput, of the same path by hand", bits.Percent, 90, "%"),
				measure.Info("pod to pod, "+where+": throughput, of the same path by hand, without receive offload",
					split.Percent, "%"),
				measure.AtMost("pod to pod, "+where+": round trip, of the same path by hand", rtt.Percent, 110, "%"),
				measure.Info(
					"pod to pod, "+where+
						": round trip, of the same path by hand on nodes that have never had an ip rule",
					toPlain.Percent,
					"%",
				),
				measure.Info("pod to pod, "+where+": throughput", bits.Ours.Per(1e9), "Gbit/s"),
				measure.Info("pod to pod, "+where+": round trip", rtt.Ours.Per(1e-6), "µs"),
			)
		}
	}
}

// BenchmarkRoundTripParts shows how much of the round trip between pods each part of the plan
// costs. It removes the part from all nodes, and compares with the same path by hand, as
// BenchmarkPodToPod does. So a row is what the round trip would be without the part.
func BenchmarkRoundTripParts(b *testing.B) {
	const (
		tables  = "nft list tables ip | grep -o 'submariner-[a-z]*-antispoof$' | xargs -n 1 nft delete table ip"
		inside  = "nft list tables ip | grep -o 'submariner-[a-z]*-antispoof$' | xargs -n 1 nft flush table ip"
		routes  = `for t in 100 150; do ip route show table $t 2>/dev/null | sed -n 's/ nhid \([0-9]*\) .*/ nhid \1/p'; done | xargs -L 1 ip route replace`
		rules   = `ip rule | sed -n 's/^\(1[05][01]\):.*/\1/p' | xargs -n 1 ip rule del pref`
		forward = `iptables-save -t filter | sed -n 's/^-A \(FORWARD -j SUBMARINER\)/\1/p' | xargs -L 1 iptables -D && iptables -P FORWARD ACCEPT`
		input   = `iptables-save -t filter | sed -n 's/^-A \(INPUT -j SUBMARINER\)/\1/p' | xargs -L 1 iptables -D`
	)
	pair := func() (east, west *side) {
		fabric := newFabric(b)
		east = newSide(b, fabric, 1, "east")
		west = newSide(b, fabric, 2, "west")
		measure.OneCPU(b, fabric)
		return east, west
	}
	handEast, handWest := pair()
	byHand(handEast, handWest)
	eachNode(func(ns *nstest.NS) { ns.Run("ip rule add pref 1 lookup main && ip rule del pref 1") }, handEast, handWest)
	for _, part := range []struct {
		name     string
		commands []string
	}{
		{"the tables of nftables", []string{tables}},
		{"the rules in the tables of nftables", []string{inside}},
		{"ip rules", []string{routes, rules}},
		{"the chains of iptables at FORWARD", []string{forward}},
		{"the chains of iptables at INPUT", []string{input}},
		{"all of these", []string{tables, routes, rules, forward, input}},
	} {
		b.Run(part.name, func(b *testing.B) {
			east, west := pair()
			east.sync(b, west)
			west.sync(b, east)
			eachNode(func(ns *nstest.NS) {
				for _, c := range part.commands {
					ns.Run(c)
				}
			}, east, west)
			for b.Loop() {
				for _, node := range nodeNames {
					without := path(east, west, node)
					hand := path(handEast, handWest, node)
					rtt := measure.Compare(measure.Times(100), func() float64 { return without.RoundTrip(b) },
						func() float64 { return hand.RoundTrip(b) })
					where := map[string]string{"gw": "gateway nodes", "worker": "worker nodes, three VXLAN hops"}[node]
					measure.Record(
						b,
						measure.Info("pod to pod, "+where+": round trip, of the same path by hand, without "+part.name,
							rtt.Percent, "%"),
					)
				}
			}
		})
	}
}

// eachNode calls f with the nodes of some clusters.
func eachNode(f func(*nstest.NS), sides ...*side) {
	for _, s := range sides {
		for _, ns := range s.nodes {
			f(ns)
		}
	}
}

// joinReceived makes the nodes' devices put received packets together, as network cards do. The
// kernel does so on a virtual device if the other end splits what it sends.
func (s *side) joinReceived() {
	for i, name := range nodeNames {
		s.fabric.Run(fmt.Sprintf("ethtool -K v%d%d tso off", s.n, i+1))
		s.nodes[name].Run("ethtool -K eth0 gro on")
	}
}

// path is the path from a pod of one cluster to a pod of another.
func path(from, to *side, node string) measure.Path {
	return measure.Path{
		From: nstest.Host{NS: from.pods[node], IP: from.podIP(node)},
		To:   nstest.Host{NS: to.pods[node], IP: to.podIP(node)},
	}
}

// byHand connects two clusters as a person would who needs nothing else.
func byHand(a, b *side) {
	for _, pair := range [][2]*side{{a, b}, {b, a}} {
		s := pair[0]
		o := pair[1]
		vx := func(node string, dev string, vni, port, self, peer int, peerNet int) {
			ns := s.nodes[node]
			ns.Run(
				fmt.Sprintf(
					"ip link add %s type vxlan id %d dstport %d local 172.18.%d.%d nolearning && ip addr add 10.9%d.%d.%d/16 dev %s && ip link set %s mtu 1450 address 02:00:00:00:%02x:%02x up",
					dev, vni, port, s.n, self, vni%10, s.n, self, dev, dev, s.n, self),
			)
			ns.Run(
				fmt.Sprintf(
					"sysctl -qw net.ipv4.conf.%[1]s.rp_filter=0; bridge fdb append 02:00:00:00:%02[2]x:%02[3]x dev %[1]s dst 172.18.%[2]d.%[3]d; ip neigh add 10.9%[4]d.%[2]d.%[3]d lladdr 02:00:00:00:%02[2]x:%02[3]x dev %[1]s nud permanent",
					dev, peerNet, peer, vni%10),
			)
			// the CNI of these namespaces drops and masquerades what it does not know
			ns.Run("iptables -I FORWARD -j ACCEPT; iptables -t nat -I POSTROUTING -j ACCEPT")
		}
		vx("gw", "hand1", 2001, 5001, 11, 11, o.n)
		vx("worker", "hand2", 2002, 5002, 12, 11, s.n)
		vx("gw", "hand2", 2002, 5002, 11, 12, s.n)
		s.nodes["gw"].Run(fmt.Sprintf("ip route add 10.11%d.0.0/16 via 10.91.%d.11 dev hand1", o.n, o.n))
		s.nodes["gw"].Run(fmt.Sprintf("ip route replace 10.11%d.2.0/24 via 10.92.%d.12 dev hand2", s.n, s.n))
		s.nodes["worker"].Run(fmt.Sprintf("ip route add 10.11%d.0.0/16 via 10.92.%d.11 dev hand2", o.n, s.n))
	}
}

// BenchmarkThousandClusters measures planning and syncing a gateway with 1,000
// remote clusters of two networks each: the CPU time of the agent, which includes the
// kernel's work on its requests, and the time that passes. Like an agent it uses one core.
func BenchmarkThousandClusters(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, n := range []int{100, 1000, 4000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { manyClusters(b, n) })
	}
}

func manyClusters(b *testing.B, n int) {
	east := newSide(b, newFabric(b), 1, "east")
	objs := east.objects()
	using := map[string]role.Using{} // every cable has answered
	for i := range n {
		e := remoteCluster(i)
		objs = append(
			objs,
			&submarinerv1.Cluster{
				ObjectMeta: metav1.ObjectMeta{
					Name:        e.Spec.ClusterID,
					Labels:      e.Labels,
					Annotations: map[string]string{submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet},
				},
				Spec: submarinerv1.ClusterSpec{ClusterID: e.Spec.ClusterID},
			},
			e,
		)
		using[e.Spec.CableName] = role.Using{Cluster: e.Spec.ClusterID, Driver: "vxlan", Device: "vxlan-tunnel"}
	}
	moved := slices.Clone(objs)
	other := remoteCluster(n - 1)
	other.Spec.PrivateIP = "172.31.255.1"
	moved[len(moved)-1] = other
	east.nodes["gw"].Do(func() {
		k, err := kernel.ReadFacts()
		require.NoError(b, err)
		h, err := kernel.New(dataplane.GatewayOwner)
		require.NoError(b, err)
		defer h.Close()
		var held []cable.Gateway // as an agent remembers them
		sync := func(objs []client.Object) {
			snap := role.NewSnapshot("gw", objs...)
			snap.Facts = submarinerv1.NodeFacts{
				PrivateIP: k.PrivateIP.String(),
				Device:    "eth0",
				MTU:       1500,
				PodIP:     "10.111.1.1",
			}
			snap.Standing = active("gw")
			snap.Memory = role.Memory{Incumbents: held, Using: using}
			snap.PoliciesDigest = policy.Digest(nil)
			p, err := roles.Gateway().Plan(snap)
			require.NoError(b, err)
			require.Empty(b, mesh.PlanOf(p).Mesh.Cables.Refused)
			held = mesh.PlanOf(p).Mesh.Accepted.Incumbents
			_, err = dataplane.Sync(context.Background(), h, p.State)
			require.NoError(b, err)
		}
		for b.Loop() {
			var full, idle, one timed
			for range 3 {
				full.take(b, func() { sync(objs) })
				for range 10 {
					idle.take(b, func() { sync(objs) })
					one.take(b, func() { sync(moved) })
					sync(objs)
				}
				_, err := dataplane.Sync(context.Background(), h, dataplane.State{})
				require.NoError(b, err)
			}
			name := fmt.Sprintf("plan and sync, %d remote clusters: ", n)
			atMost := func(name string, t timed, limit float64) {
				row := measure.Info(name+", CPU time", t.cpu.Per(1e-3), "ms")
				if n == 1000 {
					row = measure.AtMost(name+", CPU time", t.cpu.Per(1e-3), limit, "ms")
				}
				measure.Record(b, row, measure.Info(name, t.elapsed.Per(1e-3), "ms"))
			}
			atMost(name+"from empty", full, 2000)
			atMost(name+"nothing to do", idle, 100)
			atMost(name+"one endpoint changed", one, 50)
		}
	})
}

// timed are the CPU times and the times that passed of something that was repeated, in
// seconds.
type timed struct{ cpu, elapsed measure.Values }

func (t *timed) take(b *testing.B, f func()) {
	began := time.Now()
	t.cpu = append(t.cpu, measure.CPU(b, f))
	t.elapsed = append(t.elapsed, time.Since(began).Seconds())
}

func remoteCluster(i int) *submarinerv1.Endpoint {
	id := fmt.Sprintf("c%d", i)
	at := func(base string, bits int) string {
		a := netip.MustParseAddr(base).As4()
		v := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
		v += uint32(i) << (32 - bits)
		return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}).String()
	}
	return &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{Name: id, Labels: map[string]string{submarinerv1.ClusterIDLabel: id}},
		Spec: submarinerv1.EndpointSpec{
			ClusterID: id,
			CableName: "submariner-cable-" + id,
			Hostname:  id,
			Backend:   "vxlan",
			PrivateIP: at("172.20.0.1", 32),
			Subnets:   []string{at("20.0.0.0", 24) + "/24", at("30.0.0.0", 24) + "/24"},
		},
	}
}
