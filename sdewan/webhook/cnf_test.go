package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"subctl/internal/kubetest"
	"subctl/sdewan"
)

func deployment(namespace, name, purpose string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "cnf", Image: "cnf"}}},
			},
		},
	}
	if purpose != "" {
		d.Labels = map[string]string{sdewan.PurposeLabel: purpose}
	}
	return d
}

func TestOneCNF(t *testing.T) {
	e := env(t)
	c := e.admin
	ns := e.server.Namespace(t, "cnf")
	other := e.server.Namespace(t, "cnf")
	label := func(d *appsv1.Deployment, value string) error {
		return c.Patch(
			t.Context(),
			d.DeepCopy(),
			client.RawPatch(types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"labels":{"sdewanPurpose":%s}}}`, value)),
		)
	}
	a := deployment(ns, "a", "cnf")
	e.create(t, a, deployment(ns, "b", "cnf-2"), deployment(other, "a", "cnf"))
	denied(t, c.Create(t.Context(), deployment(ns, "c", "cnf")),
		"Deployment a has the label sdewanPurpose=cnf already: a label has one CNF in a namespace")

	plain := deployment(ns, "plain", "")
	e.create(t, plain)
	denied(t, label(plain, `"cnf"`), "Deployment a has the label sdewanPurpose=cnf already")
	require.NoError(t, label(plain, `"cnf-3"`))
	denied(t, label(a, `"cnf-4"`), `the label sdewanPurpose cannot change from "cnf" to "cnf-4"`)
	denied(t, label(a, `null`), `the label sdewanPurpose cannot change from "cnf" to ""`)
	require.NoError(t,
		c.Patch(t.Context(), a.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`))))

	require.NoError(t, c.Delete(t.Context(), a))
	require.Eventually(t, func() bool { return c.Create(t.Context(), deployment(ns, "c", "cnf")) == nil }, patience,
		100e6)
}

// Several pods with one address are allowed, as a network may be able to handle that, with a
// warning.
func TestSharedAddresses(t *testing.T) {
	d := deployment("ns", "edge", "cnf")
	d.Spec.Template.Annotations = map[string]string{
		sdewan.NetworksAnnotation: `{"interface":[{"interface":"net0","name":"lan"},{"interface":"net1","name":"wan","ipAddress":"192.0.2.7/24"}]}`,
	}
	require.Empty(t, sharedAddresses(d), "one replica is the default")
	d.Spec.Replicas = new(int32(2))
	w := &oneCNF{
		live:    fake.NewClientBuilder().WithScheme(kubetest.Scheme(t)).Build(),
		decoder: admission.NewDecoder(kubetest.Scheme(t)),
		pending: map[string]pendingCNF{},
	}
	raw, err := json.Marshal(d)
	require.NoError(t, err)
	answer := w.Handle(
		t.Context(),
		admission.Request{
			AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create,
				Namespace: "ns",
				Object:    runtime.RawExtension{Raw: raw},
			},
		},
	)
	require.True(t, answer.Allowed)
	require.Len(t, answer.Warnings, 1)
	require.Contains(t, answer.Warnings[0],
		"each of the 2 pods of Deployment edge gets the address 192.0.2.7 in network wan: omit ipAddress")
	d.Labels = nil
	require.Empty(t, sharedAddresses(d), "no CNF")
}

// Many Deployments with one label at the same time: one of them is created.
func TestHostileManyCNFs(t *testing.T) {
	e := env(t)
	ns := e.server.Namespace(t, "many")
	var created atomic.Int32
	var wait sync.WaitGroup
	for i := range 10 {
		wait.Go(func() {
			d := deployment(ns, fmt.Sprintf("cnf-%d", i), "cnf")
			if i%3 == 0 {
				d.Name = ""
				d.GenerateName = "cnf-"
			}
			if e.admin.Create(t.Context(), d) == nil {
				created.Add(1)
			}
		})
	}
	wait.Wait()
	require.EqualValues(t, 1, created.Load())
}

// A request waits for the Deployment of another one that was allowed a moment ago, and is allowed
// if that does not come.
func TestPendingCNF(t *testing.T) {
	scheme := kubetest.Scheme(t)
	for _, comes := range []bool{true, false} {
		c := fake.NewClientBuilder().WithScheme(scheme).Build()
		w := &oneCNF{live: c, decoder: admission.NewDecoder(scheme), pending: map[string]pendingCNF{}}
		ask := func(name string) bool {
			raw, err := json.Marshal(deployment("here", name, "cnf"))
			require.NoError(t, err)
			return w.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Namespace: "here", Object: runtime.RawExtension{Raw: raw},
			}}).Allowed
		}
		require.True(t, ask("a"))
		require.True(t, ask("a"), "the API server repeats requests")
		answer := make(chan bool, 1)
		go func() { answer <- ask("b") }()
		select {
		case <-answer:
			t.Fatal("the request did not wait")
		case <-time.After(settle / 4):
		}
		if comes {
			require.NoError(t, c.Create(t.Context(), deployment("here", "a", "cnf")))
		}
		require.Equal(t, !comes, <-answer)
	}
}

// A request whose list of Deployments takes long does not make others wait.
func TestSlowListOfCNFs(t *testing.T) {
	scheme := kubetest.Scheme(t)
	slow := make(chan struct{}, 1)
	release := make(chan struct{})
	c := interceptor.NewClient(
		fake.NewClientBuilder().WithScheme(scheme).Build(),
		interceptor.Funcs{
			List: func(
				ctx context.Context,
				c client.WithWatch,
				list client.ObjectList,
				opts ...client.ListOption,
			) error {
				if err := c.List(ctx, list, opts...); err != nil {
					return err
				}
				if o := (&client.ListOptions{}).ApplyOptions(opts); o.Namespace == "slow" {
					slow <- struct{}{}
					<-release
				}
				return nil
			},
		},
	)
	w := &oneCNF{live: c, decoder: admission.NewDecoder(scheme), pending: map[string]pendingCNF{}}
	ask := func(namespace string) bool {
		raw, err := json.Marshal(deployment(namespace, "a", "cnf"))
		require.NoError(t, err)
		return w.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: namespace, Object: runtime.RawExtension{Raw: raw},
		}}).Allowed
	}
	first := make(chan bool)
	go func() { first <- ask("slow") }()
	<-slow
	done := make(chan bool, 1)
	go func() { done <- ask("other") }()
	select {
	case allowed := <-done:
		require.True(t, allowed)
	case <-time.After(10 * time.Second):
		t.Error("the request waited for the list of another one")
	}
	close(release)
	require.True(t, <-first)
}
