package allocator_test

import (
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
	"subctl/globalnet/allocator"
)

// All kinds of Services, exported; what cannot be exported; and a name that somebody else uses.
func TestExports(t *testing.T) {
	own := &corev1.Pod{ObjectMeta: inShop("own")}
	own.Annotations = map[string]string{submarinerv1.OwnGlobalIPAnnotation: submarinerv1.OwnGlobalIP}
	taken := &submarinerv1.GlobalIngressIP{ObjectMeta: inShop("taken"), Spec: submarinerv1.GlobalIngressIPSpec{
		Target: submarinerv1.TargetHeadlessServicePod, PodRef: &corev1.LocalObjectReference{Name: "own"},
	}}
	c := newGlobalCluster(
		t,
		shopService("web", corev1.ServiceSpec{ClusterIP: "10.96.0.9"}),
		shopExport("web"),
		shopService("db", corev1.ServiceSpec{ClusterIP: "None", Selector: map[string]string{"app": "db"}}),
		shopExport("db"),
		slice(
			"db",
			discoveryv1.Endpoint{
				Addresses: []string{"10.244.1.7"},
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "db-0"},
			},
		),
		&corev1.Pod{ObjectMeta: inShop("db-0")},
		shopService("legacy", corev1.ServiceSpec{ClusterIP: "None"}),
		shopExport("legacy"),
		slice("legacy", discoveryv1.Endpoint{Addresses: []string{"10.244.1.8"}}),
		shopPod("vm", "10.244.1.8"),
		shopService("outside", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}),
		shopExport("outside"),
		shopService("taken", corev1.ServiceSpec{ClusterIP: "10.96.0.10"}),
		shopExport("taken"),
		shopExport("nothing"),
		own,
		taken,
		&corev1.Pod{ObjectMeta: inShop("other")},
	)
	c.settle()
	require.Equal(t, `cluster-egress.submariner.io 8 allocated 242.0.0.1-242.0.0.8
shop/ep-legacy-10.244.1.8 HeadlessServiceEndpoints 242.0.0.29
shop/pod-db-0 HeadlessServicePod 242.0.0.28
shop/pod-own HeadlessServicePod 242.0.0.27
shop/taken HeadlessServicePod 242.0.0.30
shop/web ClusterIPService 242.0.0.26
export shop/db Valid=True Valid, Ready=True Exported
export shop/legacy Valid=True Valid, Ready=True Exported
export shop/nothing Valid=False NoService, Ready=False Pending
export shop/outside Valid=False InvalidServiceType, Ready=False Pending
export shop/taken Valid=True Valid, Ready=False NameTaken
export shop/web Valid=True Valid, Ready=True Exported
`, c.text())

	for _, o := range append([]role.Object{}, c.objects...) {
		if _, is := o.(*mcsv1alpha1.ServiceExport); is || o.GetName() == "own" {
			c.remove(o)
		}
	}
	c.settle()
	require.Equal(t,
		"cluster-egress.submariner.io 8 allocated 242.0.0.1-242.0.0.8\nshop/taken HeadlessServicePod 242.0.0.30\n",
		c.text())
}

func ownPod(name string) *corev1.Pod {
	p := shopPod(name, "10.244.1.9")
	p.Annotations = map[string]string{submarinerv1.OwnGlobalIPAnnotation: submarinerv1.OwnGlobalIP}
	return p
}

// A pod that ends keeps its address until it is gone: its connections may go on. One that has none
// gets none.
func TestEndingPods(t *testing.T) {
	own := ownPod("own")
	late := ownPod("late")
	soon := metav1.Unix(1700000600, 0)
	late.DeletionTimestamp = &soon
	c := newGlobalCluster(t, own, late)
	c.settle()
	before := c.text()
	require.Contains(t, before, "shop/pod-own HeadlessServicePod 242.0.0.")
	require.NotContains(t, before, "late")
	own.DeletionTimestamp = &soon
	c.settle()
	require.Equal(t, before, c.text())
	c.remove(own)
	c.settle()
	require.NotContains(t, c.text(), "pod-own")
}

// A Service with the name that the GlobalIngressIP of a pod has does not get the address of the
// pod, which would open all its ports.
func TestExportNamedLikeAPod(t *testing.T) {
	c := newGlobalCluster(t, ownPod("web"), shopService("pod-web", corev1.ServiceSpec{ClusterIP: "10.96.0.9"}),
		shopExport("pod-web"))
	c.settle()
	require.Contains(t, c.text(), "shop/pod-web HeadlessServicePod")
	require.Contains(t, c.text(), "export shop/pod-web Valid=True Valid, Ready=False NameTaken")
}

// Services and pods without an IPv4 address get no global address. A Service without endpoints that
// other clusters may reach is not Ready.
func TestExportsThatNobodyReaches(t *testing.T) {
	six := shopPod("six", "fd00::7")
	six.Annotations = map[string]string{submarinerv1.OwnGlobalIPAnnotation: submarinerv1.OwnGlobalIP}
	c := newGlobalCluster(
		t,
		six,
		shopService("web6", corev1.ServiceSpec{ClusterIP: "fd00::1", ClusterIPs: []string{"fd00::1"}}),
		shopExport("web6"),
		shopService("both", corev1.ServiceSpec{ClusterIP: "fd00::2", ClusterIPs: []string{"fd00::2", "10.96.0.8"}}),
		shopExport("both"),
		shopService("pods6", corev1.ServiceSpec{ClusterIP: "None", Selector: map[string]string{"app": "x"}}),
		shopExport("pods6"),
		slice(
			"pods6",
			discoveryv1.Endpoint{
				Addresses: []string{"fd00::7"},
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "six"},
			},
		),
		shopService("refused", corev1.ServiceSpec{ClusterIP: "10.96.0.9"}),
		shopExport("refused"),
		slice("refused", discoveryv1.Endpoint{Addresses: []string{"127.0.0.1"}}),
	)
	c.settle()
	require.Equal(t, `cluster-egress.submariner.io 8 allocated 242.0.0.1-242.0.0.8
shop/both ClusterIPService 242.0.0.30
shop/refused ClusterIPService 242.0.0.29
export shop/both Valid=True Valid, Ready=True Exported
export shop/pods6 Valid=True Valid, Ready=False NoEndpoints
export shop/refused Valid=True Valid, Ready=False NoEndpoints
export shop/web6 Valid=True Valid, Ready=False NoEndpoints
`, c.text())
}

// An endpoint has one global address. The conditions of other Services with the same endpoint name
// it.
func TestExportsWithOneEndpoint(t *testing.T) {
	headless := corev1.ServiceSpec{ClusterIP: "None"}
	endpoint := discoveryv1.Endpoint{Addresses: []string{"10.244.1.8"}}
	c := newGlobalCluster(t, shopPod("vm", "10.244.1.8"), shopService("old", headless), shopExport("old"),
		slice("old", endpoint))
	c.settle()
	c.now = c.now.Add(time.Hour)
	c.add(shopService("new", headless), shopExport("new"),
		slice("new", endpoint, discoveryv1.Endpoint{Addresses: []string{"10.244.1.9"}}), shopPod("other", "10.244.1.9"))
	c.settle()
	require.Contains(t, c.text(), "export shop/old Valid=True Valid, Ready=True Exported")
	ready := func(name string) *metav1.Condition {
		e := role.Find[*mcsv1alpha1.ServiceExport](role.NewSnapshot("node", c.objects...), name)
		return meta.FindStatusCondition(e.Status.Conditions, string(mcsv1alpha1.ServiceExportConditionReady))
	}
	require.Equal(t, "other clusters reach the Service at 242.0.0.30", ready("old").Message)
	require.Equal(t,
		"other clusters reach the Service at 242.0.0.28; other clusters reach endpoints that another object has at 242.0.0.30 (GlobalIngressIP ep-old-10.244.1.8)",
		ready("new").Message)

	t.Log("no endpoint of its own; and a pod that has been the endpoint of another Service for longer")
	c.now = c.now.Add(time.Hour)
	pod := discoveryv1.Endpoint{
		Addresses: []string{"10.244.1.9"},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "other"},
	}
	c.add(shopService("third", headless), shopExport("third"), slice("third", endpoint),
		shopService("pods", corev1.ServiceSpec{ClusterIP: "None", Selector: map[string]string{"app": "x"}}),
		shopExport("pods"), slice("pods", pod))
	c.settle()
	require.Equal(t, allocator.ReasonEndpointsTaken, ready("third").Reason)
	require.Equal(t,
		"none of its endpoints has an address for this Service; other clusters reach endpoints that another object has at 242.0.0.30 (GlobalIngressIP ep-old-10.244.1.8)",
		ready("third").Message)
	require.Equal(t, allocator.ReasonEndpointsTaken, ready("pods").Reason)
	require.Contains(t, ready("pods").Message, "242.0.0.28 (GlobalIngressIP ep-new-10.244.1.9)")

	t.Log("an object in another namespace that leads nowhere changes nothing")
	foreign := &submarinerv1.GlobalIngressIP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "other",
			Name:        "claim",
			Annotations: map[string]string{submarinerv1.HeadlessEndpointAnnotation: "10.244.1.8"},
		},
		Spec: submarinerv1.GlobalIngressIPSpec{Target: submarinerv1.TargetHeadlessServiceEndpoints},
	}
	c.now = time.Unix(1600000000, 0)
	c.add(foreign)
	c.settle()
	require.Equal(t, "other clusters reach the Service at 242.0.0.30", ready("old").Message)
	c.remove(role.Find[*mcsv1alpha1.ServiceExport](role.NewSnapshot("node", c.objects...), "old"))
	c.settle()
	require.Contains(t, ready("new").Message, "242.0.0.29")
	require.NotContains(t, ready("new").Message, "another object")
}

// A Service that waits for an address tells that the pool has none, and gets the next one that is
// freed.
func TestExportWithAFullPool(t *testing.T) {
	c := newGlobalCluster(
		t,
		&submarinerv1.GlobalEgressIP{
			ObjectMeta: inShop("many"),
			Spec:       submarinerv1.GlobalEgressIPSpec{NumberOfIPs: new(20)},
		},
		&submarinerv1.GlobalEgressIP{
			ObjectMeta: inShop("more"),
			Spec:       submarinerv1.GlobalEgressIPSpec{NumberOfIPs: new(2)},
		},
		&submarinerv1.ClusterGlobalEgressIP{
			ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.ClusterEgress},
			Spec:       submarinerv1.ClusterGlobalEgressIPSpec{NumGlobalIPs: new(8)},
		},
	)
	c.settle()
	c.now = c.now.Add(time.Hour)
	c.add(shopService("web", corev1.ServiceSpec{ClusterIP: "10.96.0.9"}), shopExport("web"))
	c.settle()
	ready := func() *metav1.Condition {
		e := role.Find[*mcsv1alpha1.ServiceExport](role.NewSnapshot("node", c.objects...), "web")
		return meta.FindStatusCondition(e.Status.Conditions, string(mcsv1alpha1.ServiceExportConditionReady))
	}
	require.Equal(t, metav1.ConditionFalse, ready().Status)
	require.Equal(t, submarinerv1.ReasonPoolExhausted, ready().Reason)
	require.Equal(t,
		"0 of 1 global addresses are allocated: the global network has no free address: it waits until others are deleted, or ask for a larger network with subctl join --globalnet-cluster-size",
		ready().Message)
	c.remove(role.Find[*submarinerv1.GlobalEgressIP](role.NewSnapshot("node", c.objects...), "more"))
	c.settle()
	require.Equal(t, metav1.ConditionTrue, ready().Status)
}

// An annotation with another value than "own" gives no address, and is reported.
func TestOwnAddressMisspelt(t *testing.T) {
	good := ownPod("good")
	bad := ownPod("bad")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	bad.Annotations = map[string]string{submarinerv1.OwnGlobalIPAnnotation: "Own"}
	ns.Annotations = map[string]string{submarinerv1.OwnGlobalIPAnnotation: "true"}
	c := newGlobalCluster(t, good, bad, ns)
	c.settle()
	require.Contains(t, c.text(), "shop/pod-good")
	require.NotContains(t, c.text(), "shop/pod-bad")
	s := role.NewSnapshot("node", c.seen()...)
	s.Now = c.now
	p, err := allocator.Role().Plan(s)
	require.NoError(t, err)
	var about []string
	for _, w := range allocator.Role().Report(s, p, mesh.NewOutcome(p, c.now, nil, nil)).Warn {
		about = append(about, string(w.About.GetUID()))
		require.Equal(t,
			`the value of annotation submariner.io/global-ip is not "own", so the annotation has no effect: correct the value, or remove the annotation`,
			w.Condition.Message)
	}
	require.Equal(t, []string{string(ns.UID), string(bad.UID)}, about)
}

// The conditions of an export do not show a state that lasts only a moment, such as a Service that
// has no address yet, or that was deleted just before its export.
func TestExportsComeAndGo(t *testing.T) {
	web := shopService("web", corev1.ServiceSpec{ClusterIP: "10.96.0.9"})
	export := shopExport("web")
	c := newGlobalCluster(t)
	c.settle()
	var written []string // reasons
	loop := func() (again time.Duration) {
		s := role.NewSnapshot("node", c.seen()...)
		s.Now = c.now
		s.Previous = c.memory.Memory
		p, err := allocator.Role().Plan(s)
		require.NoError(t, err)
		c.memory = p.Decisions.(*allocator.Addresses)
		r := allocator.Role().Report(s, p, mesh.NewOutcome(p, c.now, nil, nil))
		c.write(r)
		for _, o := range r.UpdateStatus {
			if e, is := o.(*mcsv1alpha1.ServiceExport); is {
				for _, cond := range e.Status.Conditions {
					written = append(written, cond.Reason)
				}
			}
		}
		return r.Again
	}

	t.Log("the agent sees the export first, and the Service a moment later")
	c.add(export)
	require.Equal(t, time.Second, loop())
	c.now = c.now.Add(300 * time.Millisecond)
	require.Equal(t, 700*time.Millisecond, loop())
	c.add(web)
	require.NotZero(t, loop(), "it requests an address")
	require.Zero(t, loop())
	require.Zero(t, loop())
	require.Equal(t, []string{"Valid", "Exported"}, written, "written once")

	t.Log("the Service is deleted, and then the export")
	written = nil
	c.remove(web)
	require.Equal(t, time.Second, loop())
	require.NotContains(t, c.text(), "shop/web ClusterIPService", "the address is released at once")
	c.remove(export)
	require.Zero(t, loop())
	require.Empty(t, written)

	t.Log("an export without a Service says so after a second, once")
	export.Status = mcsv1alpha1.ServiceExportStatus{}
	c.add(export)
	require.Equal(t, time.Second, loop())
	c.now = c.now.Add(time.Second)
	require.Zero(t, loop())
	require.Equal(t, []string{"NoService", "Pending"}, written)
	require.Zero(t, loop())
	require.Len(t, written, 2)

	t.Log("a Service that cannot be exported is a mistake that lasts")
	written = nil
	c.add(shopService("outside", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}), shopExport("outside"))
	require.Zero(t, loop())
	require.Equal(t, []string{"InvalidServiceType", "Pending"}, written)
}
