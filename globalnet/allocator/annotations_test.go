package allocator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/globalnet/allocator"
)

// object returns an object of the cluster.
func (c *globalCluster) object(of role.Object) role.Object {
	for _, o := range c.objects {
		if o.GetUID() == of.GetUID() {
			return o
		}
	}
	c.t.Fatalf("%s does not exist", of.GetName())
	return nil
}

// Pods and Services tell their address, as long as they have one, whatever users write there.
func TestAnnotations(t *testing.T) {
	web := shopService("web", corev1.ServiceSpec{ClusterIP: "10.96.0.9"})
	db := shopPod("db-0", "10.244.1.7")
	own := ownPod("own")
	exported := shopExport("web")
	plain := shopPod("plain", "10.244.1.8")
	foreign := shopService("foreign", corev1.ServiceSpec{ClusterIP: "10.96.0.10"})
	plain.Labels = map[string]string{"app": "crawler"}
	c := newGlobalCluster(
		t,
		web,
		exported,
		db,
		own,
		plain,
		foreign,
		shopService("db", corev1.ServiceSpec{ClusterIP: "None", Selector: map[string]string{"app": "db"}}),
		shopExport("db"),
		slice(
			"db",
			discoveryv1.Endpoint{
				Addresses: []string{"10.244.1.7"},
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "db-0"},
			},
		),
		&submarinerv1.GlobalEgressIP{
			ObjectMeta: inShop("crawlers"),
			Spec:       submarinerv1.GlobalEgressIPSpec{PodSelector: &metav1.LabelSelector{MatchLabels: plain.Labels}},
		},
	)
	c.settle()
	const all = "db-0 242.0.0.29, own 242.0.0.28, web 242.0.0.27"
	require.Equal(t, all, c.annotations(), "and no address that pods share")
	require.Contains(t, c.text(),
		"shop/pod-db-0 HeadlessServicePod 242.0.0.29\nshop/pod-own HeadlessServicePod 242.0.0.28\nshop/web ClusterIPService 242.0.0.27\n")
	require.Equal(t, "own", c.object(own).GetAnnotations()[submarinerv1.OwnGlobalIPAnnotation], "others stay")

	t.Log("what users write there changes nothing but what the agent writes back")
	before := c.text()
	used := c.memory.Used
	for _, value := range []string{
		"242.0.0.9", "242.0.0.29", "0.0.0.0", "255.255.255.255", "", "none", "242.0.0.29 ", "::ffff:242.0.0.29",
		"fd00::1",
	} {
		for _, o := range []role.Object{web, db, own, plain, foreign} {
			is := c.object(o)
			annotations := is.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[submarinerv1.GlobalIPAnnotation] = value
			is.SetAnnotations(annotations)
		}
		c.settle()
		require.Equal(t, all, c.annotations(), "%q", value)
	}
	delete(c.object(web).GetAnnotations(), submarinerv1.GlobalIPAnnotation)
	c.settle()
	require.Equal(t, all, c.annotations())
	require.Equal(t, before, c.text())
	require.Equal(t, used, c.memory.Used)

	t.Log("without an address, without an annotation")
	c.remove(exported)
	c.settle()
	require.Equal(t, "db-0 242.0.0.29, own 242.0.0.28", c.annotations())
	delete(c.object(own).GetAnnotations(), submarinerv1.OwnGlobalIPAnnotation)
	c.settle()
	require.Equal(t, "db-0 242.0.0.29", c.annotations())
	shop := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "shop",
			Annotations: map[string]string{submarinerv1.OwnGlobalIPAnnotation: submarinerv1.OwnGlobalIP},
		},
	}
	c.add(shop)
	c.settle()
	require.Regexp(t, `^db-0 242.0.0.29, own 242.0.0.\d+, plain 242.0.0.\d+$`, c.annotations())
	c.remove(shop)
	c.settle()
	require.Equal(t, "db-0 242.0.0.29", c.annotations())
	role.List[*v1alpha1.Submariner](role.NewSnapshot("node", c.objects...))[0].DeletionTimestamp = &metav1.Time{
		Time: c.now,
	}
	c.settle()
	require.Empty(t, c.annotations())
}

// Of two GlobalIngressIPs of a pod, the annotation has the address of the one that gateways
// translate.
func TestAnnotationOfTwoAddresses(t *testing.T) {
	second := &submarinerv1.GlobalIngressIP{ObjectMeta: inShop("a-second"), Spec: submarinerv1.GlobalIngressIPSpec{
		Target: submarinerv1.TargetHeadlessServicePod, PodRef: &corev1.LocalObjectReference{Name: "own"},
	}}
	c := newGlobalCluster(t, ownPod("own"))
	c.settle()
	c.now = c.now.Add(time.Minute)
	third := second.DeepCopy()
	third.Name = "third"
	c.add(second, third)
	c.settle()
	require.Contains(t, c.text(), "shop/third HeadlessServicePod 242.0.0.")
	require.Equal(t, "own 242.0.0.30", c.annotations(), "between two newer ones")

	t.Log("an older address as the endpoint of a Service")
	c = newGlobalCluster(t, shopService("old", corev1.ServiceSpec{ClusterIP: "None"}), shopExport("old"),
		slice("old", discoveryv1.Endpoint{Addresses: []string{"10.244.1.9"}}), shopPod("own", "10.244.1.9"))
	c.settle()
	c.now = c.now.Add(time.Minute)
	c.add(second)
	c.settle()
	require.Contains(t, c.text(), "shop/a-second HeadlessServicePod 242.0.0.29")
	require.Empty(t, c.annotations(), "it has no effect")
}

// Annotations wait until all addresses are allocated, and are written in parts.
func TestAnnotationsComeLast(t *testing.T) {
	c := newGlobalCluster(t)
	role.List[*v1alpha1.Submariner](role.NewSnapshot("node", c.objects...))[0].Spec.GlobalCIDR = "242.0.0.0/16"
	for i := range 1000 {
		p := ownPod(fmt.Sprint("p-", i))
		o := &submarinerv1.GlobalIngressIP{ObjectMeta: inShop("pod-" + p.Name), Spec: submarinerv1.GlobalIngressIPSpec{
			Target: submarinerv1.TargetHeadlessServicePod, PodRef: &corev1.LocalObjectReference{Name: p.Name},
		}}
		c.add(p, o)
		if i < 500 {
			o.Status.AllocatedIP = fmt.Sprintf("242.0.%d.%d", 1+i/250, 1+i%250)
		}
	}
	report := func() role.Report {
		s := role.NewSnapshot("node", c.seen()...)
		s.Now = c.now
		p, err := allocator.Role().Plan(s)
		require.NoError(t, err)
		return allocator.Role().Report(s, p, mesh.NewOutcome(p, c.now, nil, nil))
	}
	r := report()
	require.Len(t, r.UpdateStatus, 399)
	require.True(t, r.More)
	require.Empty(t, r.Annotate, "500 have an address already")
	for range 6 { // 1000 statuses and 1000 annotations
		require.LessOrEqual(t, len(r.Apply)+len(r.Delete)+len(r.UpdateStatus)+len(r.Annotate), 400)
		c.write(r)
		r = report()
	}
	require.Empty(t, r)
	require.Equal(t, 1000, strings.Count(c.annotations(), "242."))
}
