package globalnet

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// Whoever may write EndpointSlices and Services in a namespace opens neither pods of other
// namespaces to other clusters, nor what only gateways reach, and gives nobody else's pod another
// source.
func TestHostileEndpoints(t *testing.T) {
	victim := pod("bank", "vault", "10.0.0.9")
	squatter := pod("ns", "squatter", "10.0.0.9") // a kubelet that was taken over says so
	squatter.CreationTimestamp = metav1.Now()
	pods := []*corev1.Pod{pod("ns", "mine", "10.0.0.1"), victim, squatter}
	for address, allowed := range map[string]bool{
		"10.0.0.1":        true,
		"172.18.0.7":      true,
		"192.0.2.1":       true,
		"10.0.0.9":        false,
		"10.0.1.1":        false,
		"10.0.7.7":        false,
		"127.0.0.1":       false,
		"0.0.0.0":         false,
		"169.254.169.254": false,
		"224.0.0.1":       false,
		"255.255.255.255": false,
		"240.18.0.2":      false,
		"241.18.0.2":      false,
		"245.18.0.2":      false,
		"248.18.0.2":      false,
		"::1":             false,
		"::ffff:10.0.0.1": false,
		"":                false,
	} {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		export := &submarinerv1.GlobalIngressIP{ObjectMeta: named("ns", "web", 1)}
		export.Spec.Target = submarinerv1.TargetClusterIPService
		export.Spec.ServiceRef = &corev1.LocalObjectReference{Name: "web"}
		export.Status.AllocatedIP = "242.1.0.7"
		own := &submarinerv1.GlobalIngressIP{ObjectMeta: named("ns", "ep", 1)}
		own.Annotations = map[string]string{submarinerv1.HeadlessEndpointAnnotation: address}
		own.Spec.Target = submarinerv1.TargetHeadlessServiceEndpoints
		own.Status.AllocatedIP = "242.1.0.8"
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns",
				Name:      "web-1",
				Labels:    map[string]string{discoveryv1.LabelServiceName: "web"},
			}, AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{
				{Port: new(int32(80))},
			}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		}
		out := Translate(gatewayOf("gw"), Objects{
			Ingress: []*submarinerv1.GlobalIngressIP{
				export,
				own,
			}, Services: []*corev1.Service{service}, Slices: []*discoveryv1.EndpointSlice{slice}, Pods: pods,
		}).Elements
		require.Equal(t, allowed, len(out.Endpoints) > 0, "a Service that leads to %q", address)
		require.Equal(t, allowed, len(out.Exports) > 0, "a Service that leads to %q", address)
		require.Equal(t, address == "10.0.0.1", len(out.Pods) > 0, "an address that stands for %q", address)
	}
	t.Log("a pod whose status has the gateway's own address")
	out := Translate(
		gatewayOf("gw"),
		Objects{
			Ingress: []*submarinerv1.GlobalIngressIP{ofPod(1, "a", "a", "242.1.0.5")},
			Pods:    []*corev1.Pod{pod("ns", "a", "10.0.1.1")},
		},
	)
	require.Empty(t, out.Pods)
}

// GlobalEgressIPs in a namespace change no source of pods of other namespaces, whatever they
// select, and with several gateways no number of new ones takes the addresses of the old ones away.
func TestHostileEgress(t *testing.T) {
	old := ofEgressObject(9, "old", nil, "242.1.9.9")
	old.Namespace = "victim"
	objs := Objects{Pods: []*corev1.Pod{pod("ns", "mine", "10.0.0.1"), pod("victim", "a", "10.0.0.2")}}
	for i := range 100 {
		e := ofEgressObject(1, fmt.Sprintf("e%03d", i), nil, fmt.Sprintf("242.1.1.%d", i), "242.1.9.9")
		if e.Namespace = "aaa"; i%2 == 0 {
			e.Namespace = "ns"
			e.Spec.PodSelector = &metav1.LabelSelector{}
		}
		objs.Egress = append(objs.Egress, e)
	}
	objs.Egress = append(objs.Egress, old) // they are sorted by namespace
	for _, g := range []Gateway{gatewayOf("gw"), gatewayOf("gw", "gw")} {
		out := Translate(g, objs)
		require.Equal(t, []string{"10.0.0.2 . 0 : 242.1.9.9"}, having(out.SelectedAddresses, "10.0.0.2 . "))
		for _, s := range having(out.SelectedAddresses, "10.0.0.1 . ") {
			require.NotContains(t, s, "242.1.9.9")
		}
		require.LessOrEqual(t, len(out.Returned), submarinerv1.MaxAllocatedIPs)
	}
	crowded := Crowded([]string{"gw"}, objs.Egress, nil)
	require.Zero(t, crowded[old])
	require.Len(t, crowded, 101-submarinerv1.MaxAllocatedIPs/2, "each claims two addresses")
}

// With several gateways, a gateway uses no shared address to which replies do not find it.
func TestHostileSharedAddresses(t *testing.T) {
	e := &submarinerv1.ClusterGlobalEgressIP{
		ObjectMeta: metav1.ObjectMeta{Name: "gw" + submarinerv1.GatewayEgressSuffix},
	}
	for i := range 30 {
		e.Status.AllocatedIPs = append(e.Status.AllocatedIPs, fmt.Sprintf("242.1.0.%d", 1+i))
	}
	shared := []*submarinerv1.ClusterGlobalEgressIP{e}
	out := Translate(gatewayOf("gw", "gw"), Objects{ClusterEgress: shared})
	require.Len(t, out.Returned, submarinerv1.MaxAllocatedIPs)
	one := []*submarinerv1.GlobalEgressIP{ofEgressObject(1, "one", nil, "242.1.1.1")}
	require.Equal(t, map[*submarinerv1.GlobalEgressIP]int{one[0]: 1}, Crowded([]string{"gw"}, one, shared))
	require.Empty(t, Crowded([]string{"other"}, one, shared), "this gateway shares none")
	for _, s := range out.SharedAddresses {
		require.Contains(t, out.Returned, valueOf(s))
	}
}
