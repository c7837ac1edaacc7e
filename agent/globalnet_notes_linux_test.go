package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

// A user reads the global address of a pod or a Service from its annotation. On a real API server,
// with the rights of the agent.
func TestAnnotationsOfAddresses(t *testing.T) {
	admin, config := globalnetServer(t)
	runGlobalnetAgent(t, config)
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	annotated := func(o client.Object, want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			value := ""
			has := false
			if admin.Get(t.Context(), client.ObjectKeyFromObject(o), o) == nil {
				value, has = o.GetAnnotations()[submarinerv1.GlobalIPAnnotation]
			}
			return value == want && has == (want != "")
		}, time.Minute, 50*time.Millisecond, "%s should be %q", o.GetName(), want)
	}
	pod := func(name string, annotations map[string]string) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: in(name),
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		p.Annotations = annotations
		p.Labels = map[string]string{"app": name}
		require.NoError(t, admin.Create(t.Context(), p))
		p.Status.Phase = corev1.PodRunning
		p.Status.PodIP = "10.244.1." + name[len(name)-1:]
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
		require.NoError(t, admin.Status().Update(t.Context(), p))
		return p
	}
	address := func(name string) string {
		t.Helper()
		o := &submarinerv1.GlobalIngressIP{ObjectMeta: in(name)}
		require.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		return o.Status.AllocatedIP
	}

	web := &corev1.Service{ObjectMeta: in("web"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	require.NoError(t, admin.Create(t.Context(), web))
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: in("web")}
	require.NoError(t, admin.Create(t.Context(), export))
	annotated(web, "242.7.255.254")
	require.Equal(t, "242.7.255.254", address("web"))

	own := pod("own-1",
		map[string]string{submarinerv1.OwnGlobalIPAnnotation: submarinerv1.OwnGlobalIP, "example.com/mine": "kept"})
	before := own.DeepCopy()
	annotated(own, "242.7.255.253")
	require.Equal(t, before.Spec, own.Spec)
	require.Equal(t, before.Status, own.Status)
	require.Equal(t, before.Labels, own.Labels)
	require.Equal(t, "kept", own.Annotations["example.com/mine"])

	t.Log("headless: each pod")
	db := pod("db-2", nil)
	require.NoError(t, admin.Create(t.Context(), &corev1.Service{ObjectMeta: in("db"), Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone,
		Selector:  map[string]string{"app": "db-2"},
		Ports:     []corev1.ServicePort{{Port: 5432}},
	}}))
	endpoints := &discoveryv1.EndpointSlice{
		ObjectMeta:  in("db-x"),
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{
				"10.244.1.2",
			}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "db-2"},
		}},
	}
	endpoints.Labels = map[string]string{discoveryv1.LabelServiceName: "db"}
	require.NoError(t, admin.Create(t.Context(), endpoints))
	require.NoError(t, admin.Create(t.Context(), &mcsv1alpha1.ServiceExport{ObjectMeta: in("db")}))
	annotated(db, "242.7.255.252")

	t.Log("nobody acts on what a user writes; the agent corrects it")
	require.NoError(t,
		admin.Patch(t.Context(), web, merge(`{"metadata":{"annotations":{"submariner.io/GlobalIp":"242.7.0.99"}}}`)))
	require.NoError(t,
		admin.Patch(t.Context(), own, merge(`{"metadata":{"annotations":{"submariner.io/GlobalIp":null}}}`)))
	other := pod("other-3", map[string]string{submarinerv1.GlobalIPAnnotation: "242.7.255.253"})
	annotated(web, "242.7.255.254")
	annotated(own, "242.7.255.253")
	annotated(other, "")
	require.Equal(t, "242.7.255.253", address("pod-own-1"))

	t.Log("without an address, no annotation")
	require.NoError(t, admin.Delete(t.Context(), export))
	require.NoError(t,
		admin.Patch(t.Context(), own, merge(`{"metadata":{"annotations":{"submariner.io/global-ip":null}}}`)))
	annotated(web, "")
	annotated(own, "")
	require.Equal(t, "kept", own.Annotations["example.com/mine"])
	annotated(db, "242.7.255.252")
	leaveCluster(t, admin)
	annotated(db, "")
}

// TestHostileAnnotator is an agent that was taken over, on a real API server: of pods and Services
// it changes nothing but the annotation.
func TestHostileAnnotator(t *testing.T) {
	admin, config := globalnetServer(t)
	agent := kubetest.Client(t, config)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "default",
			Name:        "p",
			Labels:      map[string]string{"app": "p"},
			Annotations: map[string]string{"a": "b"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	s := &corev1.Service{
		ObjectMeta: *p.ObjectMeta.DeepCopy(),
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	s.Name = "s"
	for _, o := range []client.Object{p, s} {
		require.NoError(t, admin.Create(t.Context(), o))
	}
	forbidden := func(err error) bool { return apierrors.IsForbidden(err) }
	require.Eventually(t, func() bool { // the policy is in force
		return forbidden(
			agent.Status().Patch(t.Context(), p.DeepCopy(), merge(`{"metadata":{"labels":{"app":"x"}}}`),
				client.DryRunAll),
		)
	}, 30*time.Second, 50*time.Millisecond)
	owner := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":%q}]}}`,
		p.UID)
	require.True(t, forbidden(agent.Status().Patch(t.Context(), s.DeepCopy(), merge(owner))),
		"Kubernetes would delete the Service with its owner")
	for _, o := range []client.Object{p, s} {
		kind := kube.KindOf(o)
		for _, patch := range []string{
			`{"metadata":{"labels":{"app":"x"}}}`,
			`{"metadata":{"labels":{"new":"x"}}}`,
			`{"metadata":{"labels":{"app":null}}}`,
			`{"metadata":{"labels":null}}`,
			`{"metadata":{"annotations":null}}`,
			`{"metadata":{"annotations":{"a":"x"}}}`,
			`{"metadata":{"annotations":{"new":"x"}}}`,
			`{"metadata":{"annotations":{"a":null}}}`,
			`{"metadata":{"finalizers":["example.com/x"]}}`,
			`{"metadata":{"annotations":{"a":"x","submariner.io/GlobalIp":"242.7.0.9"}}}`,
			`{"status":{"phase":"Succeeded","podIP":"10.0.0.9","loadBalancer":{"ingress":[{"ip":"192.0.2.9"}]}}}`,
			`{"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2024-01-01T00:00:00Z"}]}}`,
		} {
			require.True(t,
				forbidden(agent.Status().Patch(t.Context(), o.DeepCopyObject().(client.Object), merge(patch))), "%s %s",
				kind, patch)
		}
		for _, patch := range []string{
			`{"metadata":{"annotations":{"submariner.io/GlobalIp":"242.7.0.9"}}}`,
			`{"spec":{"containers":[{"name":"c","image":"evil"}]}}`,
		} {
			require.True(t, forbidden(agent.Patch(t.Context(), o.DeepCopyObject().(client.Object), merge(patch))),
				"%s %s", kind, patch)
		}
		t.Log("a change of the spec is dropped:", kind)
		was := o.DeepCopyObject().(client.Object)
		require.NoError(t, agent.Status().Patch(
			t.Context(),
			o.DeepCopyObject().(client.Object),
			merge(
				`{"metadata":{"annotations":{"submariner.io/GlobalIp":"242.7.0.9"}},"spec":{"containers":[{"name":"c","image":"evil"}],"selector":{"app":"evil"}}}`),
		))
		require.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		require.Equal(t, "242.7.0.9", o.GetAnnotations()[submarinerv1.GlobalIPAnnotation])
		clean := o.DeepCopyObject().(client.Object)
		clean.SetAnnotations(was.GetAnnotations())
		clean.SetResourceVersion(was.GetResourceVersion())
		clean.SetManagedFields(was.GetManagedFields())
		clean.SetGeneration(was.GetGeneration())
		require.Equal(t, was, clean)
		require.NoError(
			t,
			agent.Status().Patch(t.Context(), o.DeepCopyObject().(client.Object),
				merge(`{"metadata":{"annotations":{"submariner.io/GlobalIp":null}}}`)),
		)
	}
}
