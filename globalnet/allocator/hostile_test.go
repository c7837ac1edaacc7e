package allocator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/globalnet"
	"subctl/globalnet/allocator"
)

// EndpointSlices that somebody has made by hand get no global addresses for pods of other
// namespaces, nodes, or what the cluster does not have. The ServiceExport's condition names the
// refused endpoints, and thousands of them do not stop the agent.
func TestHostileExports(t *testing.T) {
	vault := &corev1.Pod{Status: corev1.PodStatus{PodIP: "10.244.1.9"}}
	vault.Namespace = "bank"
	vault.Name = "vault"
	forged := slice("forged")
	for i := range 20_000 {
		forged.Endpoints = append(forged.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.%d.%d", 100+i/250, i%250)}})
	}
	endpoint := func(ip string) discoveryv1.Endpoint { return discoveryv1.Endpoint{Addresses: []string{ip}} }
	c := newGlobalCluster(
		t,
		vault,
		shopPod("mine", "10.244.1.7"),
		shopService("forged", corev1.ServiceSpec{ClusterIP: "None"}),
		shopExport("forged"),
		forged,
		shopService("some", corev1.ServiceSpec{ClusterIP: "None"}),
		shopExport("some"),
		slice("some", endpoint("10.244.1.9"), endpoint("10.244.1.7"), endpoint("172.18.0.3"), endpoint("127.0.0.1"),
			endpoint("no address")),
		shopService("web", corev1.ServiceSpec{ClusterIP: "10.96.0.9"}),
		shopExport("web"),
		slice("web", endpoint("10.244.1.9"), endpoint("172.18.0.3")),
	)
	started := time.Now()
	c.settle()
	require.Less(t, time.Since(started), 20*time.Second)
	require.Equal(t, `cluster-egress.submariner.io 8 allocated 242.0.0.1-242.0.0.8
shop/ep-some-10.244.1.7 HeadlessServiceEndpoints 242.0.0.30
shop/web ClusterIPService 242.0.0.29
export shop/forged Valid=True Valid, Ready=False NoEndpoints
export shop/some Valid=True Valid, Ready=True Exported
export shop/web Valid=True Valid, Ready=True Exported
`, c.text())
	messages := map[string]string{}
	for _, e := range role.List[*mcsv1alpha1.ServiceExport](role.NewSnapshot("node", c.objects...)) {
		messages[e.Name] = meta.FindStatusCondition(e.Status.Conditions, "Ready").Message
	}
	require.Equal(
		t,
		"other clusters reach the Service at 242.0.0.30; they do not reach 3 endpoints: 10.244.1.9 is in the pod network, and no pod of namespace shop has it, "+
			"172.18.0.3 is not in the pod network, 127.0.0.1 is not in the pod network",
		messages["some"],
	)
	require.Equal(t,
		"other clusters reach the Service at 242.0.0.29; they do not reach an endpoint: 10.244.1.9 is in the pod network, and no pod of namespace shop has it",
		messages["web"])
	require.Contains(t, messages["forged"], "they do not reach 10000 or more endpoints, among them: ")

	t.Log("somebody changes by hand for which endpoint the object is")
	edited := role.Find[*submarinerv1.GlobalIngressIP](role.NewSnapshot("node", c.objects...), "ep-some-10.244.1.7")
	edited.Annotations[submarinerv1.HeadlessEndpointAnnotation] = "10.244.1.9"
	s := role.NewSnapshot("node", c.seen()...)
	s.Previous = c.memory.Memory
	p, err := allocator.Role().Plan(s)
	require.NoError(t, err)
	apply := allocator.Role().Report(s, p, mesh.NewOutcome(p, c.now, nil, nil)).Apply
	require.Len(t, apply, 1)
	require.Equal(t, "10.244.1.7", apply[0].GetAnnotations()[submarinerv1.HeadlessEndpointAnnotation])
}

// Who edits the status of an object by hand takes no address away from another object, not even
// from a younger one.
func TestHostileStatus(t *testing.T) {
	c := newGlobalCluster(t, &submarinerv1.GlobalEgressIP{ObjectMeta: inShop("old")})
	c.settle()
	c.now = c.now.Add(time.Hour)
	c.add(&submarinerv1.GlobalEgressIP{ObjectMeta: inShop("young")})
	c.settle()
	status := func(name string) []string {
		return role.Find[*submarinerv1.GlobalEgressIP](role.NewSnapshot("node", c.objects...), name).Status.AllocatedIPs
	}
	had := status("young")
	require.Equal(t, []string{"242.0.0.29"}, had)
	for _, stolen := range [][]string{had, {"242.0.0.1"}, {"192.0.2.1"}, {"x"}} {
		old := role.Find[*submarinerv1.GlobalEgressIP](role.NewSnapshot("node", c.objects...), "old").DeepCopy()
		c.remove(old)
		old.Status.AllocatedIPs, old.ResourceVersion = stolen, old.ResourceVersion+"!"
		c.objects = append(c.objects, old)
		c.settle()
		require.Equal(t, had, status("young"))
		require.Len(t, status("old"), 1)
		require.NotContains(t, []string{had[0], "242.0.0.1", "192.0.2.1", "x"}, status("old")[0])
	}
}

// GlobalEgressIPs with mistakes are told once, with bounded messages, and too many of one namespace
// take no addresses from others.
func TestHostileEgressIPs(t *testing.T) {
	c := newGlobalCluster(t)
	for i := range globalnet.MaxOfNamespace + 10 {
		e := &submarinerv1.GlobalEgressIP{ObjectMeta: inShop(fmt.Sprintf("e%03d", i))}
		e.Spec.NumberOfIPs = new(0)
		if i%2 == 0 {
			e.Spec.PodSelector = &metav1.LabelSelector{
				MatchLabels: map[string]string{"a": strings.Repeat("x ", 30_000), "b": "y z", "c": "! "},
			}
		}
		c.add(e)
	}
	last := &submarinerv1.GlobalEgressIP{ObjectMeta: inShop("last")}
	c.add(last)
	modest := &submarinerv1.GlobalEgressIP{ObjectMeta: inShop("modest")}
	modest.Namespace = "other"
	c.add(modest)
	c.settle()
	conditions := map[string]string{}
	for _, e := range role.List[*submarinerv1.GlobalEgressIP](role.NewSnapshot("node", c.objects...)) {
		condition := meta.FindStatusCondition(e.Status.Conditions, submarinerv1.ConditionAllocated)
		require.LessOrEqual(t, len(condition.Message), 2010, e.Name)
		conditions[e.Name] = condition.Message
	}
	require.Contains(t, conditions["e000"], "podSelector is not valid: ")
	require.Equal(t, "namespace shop has 100 older GlobalEgressIPs, and no more get addresses: delete some",
		conditions["last"])
	require.Contains(t, conditions["modest"], "allocated 242.0.0.")
}
