package globalnet

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

func ip(text string) netip.Addr { return netip.MustParseAddr(text) }

func gatewayOf(name string, gateways ...string) Gateway {
	return Gateway{
		Node:     name,
		NodeIP:   ip("172.18.0.2"),
		PodIP:    ip("10.0.1.1"),
		Nets:     []netip.Prefix{netip.MustParsePrefix("242.1.0.0/16")},
		Pods:     []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")},
		Several:  len(gateways) > 0,
		Gateways: gateways,
	}
}

func named(namespace, name string, age int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:         namespace,
		Name:              name,
		CreationTimestamp: metav1.NewTime(time.Unix(1000-int64(age), 0)),
	}
}

func pod(namespace, name, address string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Status:     corev1.PodStatus{PodIP: address},
	}
}

func ofPod(age int, name, podName, address string) *submarinerv1.GlobalIngressIP {
	i := &submarinerv1.GlobalIngressIP{ObjectMeta: named("ns", name, age)}
	i.Spec.Target = submarinerv1.TargetHeadlessServicePod
	i.Spec.PodRef = &corev1.LocalObjectReference{Name: podName}
	i.Status.AllocatedIP = address
	return i
}

func ofEgressObject(
	age int,
	name string,
	selector map[string]string,
	addresses ...string,
) *submarinerv1.GlobalEgressIP {
	e := &submarinerv1.GlobalEgressIP{ObjectMeta: named("ns", name, age)}
	if e.Status.AllocatedIPs = addresses; selector != nil {
		e.Spec.PodSelector = &metav1.LabelSelector{MatchLabels: selector}
	}
	return e
}

// An address leads to the pod of the oldest object that has it. Addresses of other networks, and of
// pods without an address of their own, lead nowhere.
func TestOwnAddresses(t *testing.T) {
	host := pod("ns", "host", "10.0.0.77")
	host.Spec.HostNetwork = true
	ended := pod("ns", "ended", "10.0.0.5")
	ended.Status.Phase = corev1.PodSucceeded
	external := &submarinerv1.GlobalIngressIP{ObjectMeta: named("ns", "ep", 1)}
	external.Annotations = map[string]string{submarinerv1.HeadlessEndpointAnnotation: "10.0.0.99"}
	external.Spec.Target = submarinerv1.TargetHeadlessServiceEndpoints
	external.Status.AllocatedIP = "242.1.0.99"
	elsewhere := external.DeepCopy()
	elsewhere.Name = "ep2"
	elsewhere.Status.AllocatedIP = "242.1.0.98"
	elsewhere.Annotations[submarinerv1.HeadlessEndpointAnnotation] = "192.0.2.1"
	out := Translate(gatewayOf("gw"), Objects{
		Ingress: []*submarinerv1.GlobalIngressIP{
			ofPod(1, "young", "a", "242.1.0.5"),
			ofPod(2, "old", "b", "242.1.0.5"),
			ofPod(1, "foreign", "c", "242.2.0.5"),
			ofPod(1, "host", "host", "242.1.0.6"),
			ofPod(1, "ended", "ended", "242.1.0.7"),
			ofPod(1, "none", "none", "242.1.0.8"),
			ofPod(1, "waits", "c", ""),
			ofPod(1, "nonsense", "c", "x"),
			ofPod(2, "first", "c", "242.1.0.9"),
			ofPod(1, "second", "c", "242.1.0.1"),
			external,
			elsewhere,
		},
		Pods: []*corev1.Pod{
			pod("ns", "a", "10.0.0.1"),
			pod("ns", "b", "10.0.0.2"),
			pod("ns", "c", "10.0.0.3"),
			host,
			ended,
			pod("other", "none", "10.0.0.4"),
			pod("ns", "vm", "10.0.0.99"),
		},
	})
	require.Equal(t, []string{"242.1.0.5 : 10.0.0.2", "242.1.0.9 : 10.0.0.3", "242.1.0.99 : 10.0.0.99"}, out.Pods)
	require.Equal(t, []string{"10.0.0.2 : 242.1.0.5", "10.0.0.3 : 242.1.0.9", "10.0.0.99 : 242.1.0.99"}, out.Globals)
}

// A Service leads to its ready endpoints or, without any, to those that still serve.
func TestExportedServices(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	service.Spec.Ports = []corev1.ServicePort{
		{Name: "http", Port: 80},
		{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
		{Name: "gone", Port: 81},
	}
	export := &submarinerv1.GlobalIngressIP{ObjectMeta: named("ns", "web", 1)}
	export.Spec.Target = submarinerv1.TargetClusterIPService
	export.Spec.ServiceRef = &corev1.LocalObjectReference{Name: "web"}
	export.Status.AllocatedIP = "242.1.0.7"
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns",
			Name:      "web-1",
			Labels:    map[string]string{discoveryv1.LabelServiceName: "web"},
		}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("http"), Port: new(int32(8080))},
			{Name: new("dns"), Port: new(int32(53)), Protocol: new(corev1.ProtocolUDP)},
		},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.1"}},
			{Addresses: []string{"172.18.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}},
			{
				Addresses:  []string{"10.0.0.3"},
				Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true)},
			},
			{Addresses: []string{"10.0.0.4"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
		},
	}
	objs := Objects{
		Ingress: []*submarinerv1.GlobalIngressIP{
			export,
		}, Services: []*corev1.Service{service}, Slices: []*discoveryv1.EndpointSlice{slice},
		Pods: []*corev1.Pod{pod("ns", "a", "10.0.0.1"), pod("ns", "b", "10.0.0.3"), pod("ns", "c", "10.0.0.4")},
	}
	targets := func() map[string]int {
		out := map[string]int{}
		for _, e := range having(Translate(gatewayOf("gw"), objs).Endpoints, "242.1.0.7 . 6 . ") {
			_, to, _ := strings.Cut(e, " : ")
			out[to]++
		}
		return out
	}
	out := Translate(gatewayOf("gw"), objs)
	require.Equal(
		t,
		[]string{
			"242.1.0.7 . 17 . 53 : goto slots-16",
			"242.1.0.7 . 6 . 80 : goto slots-16",
			"242.1.0.7 . 6 . 81 : goto slots-0",
		},
		out.Ports,
	)
	require.Equal(
		t,
		map[string]int{"10.0.0.1 . 8080": 8, "10.0.1.1 . 8080": 8},
		targets(),
		"the gateway's own processes are reached at its address in the pod network",
	)
	require.Contains(t, out.Exports, "10.0.0.1 . 6 . 8080 : 242.1.0.7 . 80")
	slice.Endpoints = slice.Endpoints[2:]
	require.Equal(t, map[string]int{"10.0.0.3 . 8080": 1}, targets())
	slice.Endpoints = slice.Endpoints[1:]
	require.Empty(t, targets())
	require.Len(t, Translate(gatewayOf("gw"), objs).Ports, 3, "a port without endpoints is still exported")
	service.Spec.Type = corev1.ServiceTypeExternalName
	require.Empty(t, Translate(gatewayOf("gw"), objs).Ports)
}

// Each endpoint has its share of the slots, and when one leaves, few of the others' slots move.
func TestSpread(t *testing.T) {
	var all []netip.AddrPort
	for i := range 100 {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8080))
	}
	for _, n := range []int{1, 2, 3, 7, 30, 100} {
		slots := slotsOf(n)
		before := spread(all[:n], slots)
		count := map[netip.AddrPort]int{}
		for _, e := range before {
			count[e]++
		}
		require.Len(t, count, n)
		for _, c := range count {
			require.InDelta(t, slots/n, c, 1, "%d endpoints", n)
		}
		if n < 3 {
			continue
		}
		after := spread(slices.Delete(slices.Clone(all[:n]), 1, 2), slots)
		moved := 0
		for i := range before {
			if before[i] != all[1] && before[i] != after[i] {
				moved++
			}
		}
		require.Less(t, moved, slots/4, "%d endpoints", n)
	}
}

// A selector of pods counts before the namespace, and the older of two; all other packets share the
// gateway's addresses.
func TestEgress(t *testing.T) {
	shared := &submarinerv1.ClusterGlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.ClusterEgress}}
	shared.Status.AllocatedIPs = []string{"242.1.0.1", "242.1.0.2"}
	objs := Objects{
		ClusterEgress: []*submarinerv1.ClusterGlobalEgressIP{shared},
		Egress: []*submarinerv1.GlobalEgressIP{
			ofEgressObject(9, "all", nil,
				"242.1.0.10"), ofEgressObject(1, "a-young", map[string]string{"app": "a"}, "242.1.0.11"),
			ofEgressObject(2, "old", map[string]string{"app": "a"}, "242.1.0.12",
				"242.1.0.13"), ofEgressObject(3, "waits", map[string]string{"app": "b"}),
		},
		Pods: []*corev1.Pod{pod("ns", "a", "10.0.0.1"), pod("ns", "b", "10.0.0.2"), pod("other", "a", "10.0.0.3")},
	}
	out := Translate(gatewayOf("gw"), objs)
	require.Equal(t, []string{"10.0.0.1 : goto pool-2", "10.0.0.2 : goto pool-1"}, out.Selected)
	require.Equal(t, []string{
		"10.0.0.1 . 0 : 242.1.0.12", "10.0.0.1 . 1 : 242.1.0.13", "10.0.0.2 . 0 : 242.1.0.10",
	}, out.SelectedAddresses)
	require.Len(t, out.SharedAddresses, shares)
	require.Equal(t, ip("242.1.0.1"), out.Health)
	require.Equal(t, []string{"242.1.0.1 : 10.0.1.1"}, out.Answering)
	require.Empty(t, out.Returned, "all packets return through the only gateway")

	t.Log("several gateways: each has its own object, and shares of the others")
	for _, name := range []string{"gw", "gw2"} {
		e := shared.DeepCopy()
		e.Name = name + submarinerv1.GatewayEgressSuffix
		e.Status.AllocatedIPs = []string{map[string]string{"gw": "242.1.0.3", "gw2": "242.1.0.4"}[name]}
		objs.ClusterEgress = append(objs.ClusterEgress, e)
	}
	one := Translate(gatewayOf("gw", "gw", "gw2"), objs)
	two := Translate(gatewayOf("gw2", "gw", "gw2"), objs)
	require.Equal(t, ip("242.1.0.3"), one.Health)
	require.Equal(t, ip("242.1.0.4"), two.Health)
	all := slices.Concat(one.Returned, two.Returned)
	slices.SortFunc(all, netip.Addr.Compare)
	require.Equal(t, all, slices.Compact(slices.Clone(all)), "each address is one gateway's")
	require.Contains(t, one.Returned, one.Health)
	for _, g := range []Translation{one, two} {
		for _, s := range g.SelectedAddresses {
			require.Contains(t, g.Returned, valueOf(s), "replies to it find the gateway")
		}
	}

	t.Log(
		"one active gateway, and a standby: connections through that one return to it, and go on when it is the active one")
	objs.ClusterEgress[2].Status.AllocatedIPs = []string{"242.1.0.4", "242.1.0.5"}
	active := Translate(gatewayOf("gw"), objs)
	standby := gatewayOf("gw2")
	standby.Standby = true
	waits := Translate(standby, objs)
	standby.Standby = false
	elected := Translate(standby, objs)
	addresses := func(g Translation) (shared []netip.Addr) {
		for _, slot := range []string{"0 : ", "1 : "} {
			shared = append(shared, valueOf(having(g.SharedAddresses, slot)[0]))
		}
		return shared
	}
	both := []netip.Addr{ip("242.1.0.1"), ip("242.1.0.2")}
	require.Equal(t, [][]netip.Addr{both, {ip("242.1.0.4"), ip("242.1.0.5")}, both},
		[][]netip.Addr{addresses(active), addresses(waits), addresses(elected)})
	require.Equal(t, []netip.Addr{ip("242.1.0.3")}, active.Returned)
	require.Equal(t, []netip.Addr{ip("242.1.0.4"), ip("242.1.0.5")}, waits.Returned)
	require.Equal(t, waits.Returned, elected.Returned)
	require.Equal(t, waits.Answering, elected.Answering)
	require.Equal(t, ip("242.1.0.4"), elected.Health)
	require.Len(t, elected.SelectedAddresses, 3)
	require.Empty(t, waits.SelectedAddresses, "replies to them return to the active gateway")

	t.Log("a standby that has no address of its own yet, and a gateway where the cluster has none")
	objs.ClusterEgress[2].Status.AllocatedIPs = nil
	standby.Standby = true
	require.Equal(t, both, addresses(Translate(standby, objs)))
	objs.ClusterEgress[0].Status.AllocatedIPs = nil
	require.Equal(t, []netip.Addr{ip("242.1.0.3"), ip("242.1.0.3")}, addresses(Translate(gatewayOf("gw"), objs)))
}
