package agent

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/globalnet"
	"subctl/internal/measure"
	"subctl/internal/nstest"
	"subctl/policy"
)

// allocate adds n global addresses to a cluster, half of them pods' own and half of them Services',
// each with one of these pods.
func (s *side) allocate(n int) {
	for i := range n / 2 {
		name := fmt.Sprintf("p%05d", i)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "many", Name: name}}
		pod.Status.PodIP = netip.AddrFrom4([4]byte{10, byte(110 + s.net), byte(100 + i>>8), byte(i)}).String()
		address := func(name string, high int) *submarinerv1.GlobalIngressIP {
			g := &submarinerv1.GlobalIngressIP{ObjectMeta: metav1.ObjectMeta{Namespace: "many", Name: name}}
			g.Status.AllocatedIP = netip.AddrFrom4([4]byte{242, byte(s.n), byte(high + i>>8), byte(i)}).String()
			return g
		}
		own := address("pod-"+name, 20)
		export := address(name, 130)
		own.Spec.Target = submarinerv1.TargetHeadlessServicePod
		own.Spec.PodRef = &corev1.LocalObjectReference{Name: name}
		export.Spec.Target = submarinerv1.TargetClusterIPService
		export.Spec.ServiceRef = &corev1.LocalObjectReference{Name: name}
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "many", Name: name}}
		service.Spec.Ports = []corev1.ServicePort{{Port: 80}}
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "many",
				Name:      name + "-1",
				Labels:    map[string]string{discoveryv1.LabelServiceName: name},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Port: new(int32(8080))}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{pod.Status.PodIP}}},
		}
		s.objs = append(s.objs, pod, service, slice, own, export)
	}
}

// BenchmarkGlobalnetPlan measures planning and syncing a gateway of a cluster with 50,000 global
// addresses, half of which are pods' own and half of which are Services': the CPU time of the
// agent, which includes the kernel's work on its requests, and the time that passes. Like an agent
// it uses one core, has lists of the objects and remembers what it has translated, except from
// empty. One more is a pod with an address of its own and an exported Service. When there is
// nothing to do, another program has changed other tables of nftables, so the maps are read.
func BenchmarkGlobalnetPlan(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	fabric := newFabric(b)
	east := globalSide(b, fabric, 1, "east", 1, "gw")
	west := globalSide(b, fabric, 2, "west", 1, "gw")
	east.allocate(50_000)
	kinds := map[reflect.Type][]role.Object{}
	for _, kind := range mesh.TranslatedKinds() {
		kinds[reflect.TypeOf(kind)] = nil
	}
	var few []client.Object
	objs, using := east.knowing(west)
	for _, o := range objs {
		if list, many := kinds[reflect.TypeOf(o)]; many {
			kinds[reflect.TypeOf(o)] = append(list, o)
		} else {
			few = append(few, o)
		}
	}
	withOne := map[reflect.Type][]role.Object{} // all, and without it
	without := map[reflect.Type][]role.Object{}
	for kind, list := range kinds {
		slices.SortFunc(list, role.Compare)
		withOne[kind] = list
		without[kind] = slices.DeleteFunc(slices.Clone(list),
			func(o role.Object) bool { return o.GetName() == "p12345" || o.GetName() == "pod-p12345" })
	}
	east.nodes["gw"].Do(func() {
		k, err := kernel.ReadFacts()
		require.NoError(b, err)
		h, err := kernel.New(dataplane.GatewayOwner)
		require.NoError(b, err)
		defer h.Close()
		var translator globalnet.Translator
		sync := func(lists map[reflect.Type][]role.Object, addresses int) (ops []dataplane.Op) {
			snap := role.NewSnapshot("gw", few...)
			for _, list := range lists {
				snap.SetSorted(list)
			}
			members.SetFacts(&snap, k)
			snap.Standing = active("gw")
			snap.Translator = &translator
			snap.PoliciesDigest = policy.Digest(nil)
			snap.Memory.Using = using
			p, err := roles.Gateway().Plan(snap)
			require.NoError(b, err)
			of := dataplane.GlobalnetTable
			table := p.State[dataplane.RulesetKey(of.Family, of.Name)].(dataplane.Ruleset)
			require.Len(b, table.Set(dataplane.GlobalnetOwners).Elements, addresses/2)
			require.Len(b, table.Set(dataplane.GlobalnetPorts).Elements, 2+addresses/2) // of globalSide
			ops, err = dataplane.Sync(context.Background(), h, p.State)
			require.NoError(b, err)
			return ops
		}
		for b.Loop() {
			var full, idle, one timed
			for range 5 {
				translator = globalnet.Translator{}
				full.take(b, func() { sync(withOne, 50_000) })
				for range 10 {
					require.NoError(b,
						exec.CommandContext(b.Context(), "nft", "add table ip other; delete table ip other").Run())
					idle.take(b, func() { require.Empty(b, sync(withOne, 50_000)) })
					sync(without, 49_998)
					one.take(b, func() { require.Len(b, sync(withOne, 50_000), 1) })
				}
				_, err := dataplane.Sync(context.Background(), h, dataplane.State{})
				require.NoError(b, err)
			}
			for _, row := range []struct {
				name  string
				timed timed
				limit float64
			}{{"from empty", full, 1000}, {"one more", one, 50}, {"nothing to do", idle, 200}} {
				name := "plan and sync, 50,000 global addresses: " + row.name
				measure.Record(b, measure.AtMost(name+", CPU time", row.timed.cpu.Per(1e-3), row.limit, "ms"),
					measure.Info(name, row.timed.elapsed.Per(1e-3), "ms"))
			}
		}
	})
}

// BenchmarkGlobalnetTraffic compares throughput and round trip through both translations, of the
// source to a shared address and of the destination from the address of a pod, with the same cable
// without global networks: with 10 and with 50,000 addresses, and these two with each other. All
// paths exist at the same time, and are measured in turns. As in BenchmarkPodToPod, the nodes have
// network cards that put packets together.
func BenchmarkGlobalnetTraffic(b *testing.B) {
	pair := func(addresses int) measure.Path {
		fabric := newFabric(b)
		var east, west *side
		if addresses == 0 {
			east = newSide(b, fabric, 1, "east")
			west = newSide(b, fabric, 2, "west")
		} else {
			east = globalSide(b, fabric, 1, "east", 1, nodeNames...)
			west = globalSide(b, fabric, 2, "west", 1, nodeNames...)
			west.own("gw")
			for _, s := range []*side{east, west} {
				s.allocate(addresses)
			}
		}
		measure.OneCPU(b, fabric)
		for _, s := range []*side{east, west} {
			eachNode(func(ns *nstest.NS) { measure.OneCPU(b, ns) }, s)
			s.joinReceived()
		}
		east.sync(b, west)
		west.sync(b, east)
		p := path(east, west, "gw")
		if addresses > 0 {
			p.Called = west.ownIP("gw")
		}
		return p
	}
	plain := pair(0)
	few := pair(10)
	many := pair(50_000)
	for b.Loop() {
		compare := func(
			turns int,
			of func(measure.Path, testing.TB) float64,
			ours, other measure.Path,
		) measure.Comparison {
			return measure.Compare(measure.Times(turns), func() float64 { return of(ours, b) },
				func() float64 { return of(other, b) })
		}
		const name = "pod to pod with global addresses, gateway nodes"
		paths := map[string]measure.Path{"10": few, "50,000": many}
		for _, n := range []string{"10", "50,000"} {
			bits := compare(200, measure.Path.Throughput, paths[n], plain)
			rtt := compare(100, measure.Path.RoundTrip, paths[n], plain)
			measure.Record(
				b,
				measure.AtLeast(fmt.Sprintf("%s, %s addresses: throughput, of the same cable without", name, n),
					bits.Percent, 95, "%"),
				measure.AtMost(fmt.Sprintf("%s, %s addresses: round trip, of the same cable without", name, n),
					rtt.Percent, 110, "%"),
				measure.Info(fmt.Sprintf("%s, %s addresses: throughput", name, n), bits.Ours.Per(1e9), "Gbit/s"),
				measure.Info(fmt.Sprintf("%s, %s addresses: round trip", name, n), rtt.Ours.Per(1e-6), "µs"),
			)
		}
		bits := compare(200, measure.Path.Throughput, many, few)
		rtt := compare(100, measure.Path.RoundTrip, many, few)
		measure.Record(b,
			measure.AtLeast(name+": throughput with 50,000 addresses, of that with 10", bits.Percent, 97, "%"),
			measure.AtMost(name+": round trip with 50,000 addresses, of that with 10", rtt.Percent, 103, "%"),
		)
	}
}
