package join_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/cluster"
	"subctl/cluster/join"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
	"subctl/internal/progress"
)

// A join whose pods the cluster would not admit is refused before anything is changed, with the API
// server's words and the remedy: in a prepared namespace, and before a running gateway is replaced.
func TestRejectionIsFoundFirst(t *testing.T) {
	server := kubetest.Start(t)
	c := server.Client(t)
	s := normal()
	s.Image = "a/b:1"
	try := func(image string) (string, error) {
		s.Image = image
		p, err := s.plan()
		require.NoError(t, err)
		p.Submariner.Spec.ImageOverrides = cluster.ImageOverrides(image)
		var out bytes.Buffer
		op := &join.Operation{Member: cluster.Side{Client: c}, Plan: p, Report: progress.New(&out)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return out.String(), op.Try(ctx)
	}
	_, err := try("a/b:1")
	require.NoError(t, err, "there is no namespace yet: nothing can be asked")

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: cluster.Namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
	}}
	require.NoError(t, c.Create(t.Context(), ns))
	account := client.ObjectKey{Namespace: cluster.Namespace, Name: "default"}
	require.Eventually(t, func() bool { return c.Get(t.Context(), account, &corev1.ServiceAccount{}) == nil },
		time.Minute, 50*time.Millisecond)
	_, err = try("a/b:1")
	require.NoError(t, err, "join labels the namespace")

	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: cluster.Namespace}}
	limits.Spec.Limits = []corev1.LimitRangeItem{
		{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}},
	}
	require.NoError(t, c.Create(t.Context(), limits.DeepCopy()))
	refused := func(image string) {
		t.Helper()
		require.Eventually(t, func() bool { _, err = try(image); return err != nil }, time.Minute, 200*time.Millisecond)
		require.ErrorContains(t, err, "DaemonSet submariner-gateway: its pods would not be created: ")
		require.ErrorContains(t, err,
			"maximum memory usage per Container is 1Gi, but limit is 6Gi: raise the limits of the LimitRange")
		require.ErrorContains(t, err, "DaemonSet submariner-routeagent: its pods would not be created: ")
		require.ErrorContains(t, err, "nothing was changed")
	}
	refused("a/b:1")
	require.NoError(t, c.Delete(t.Context(), limits))

	// The cluster joins, and later the rule appears: an upgrade is refused, a join that replaces no
	// pod is not.
	p, err := s.plan()
	require.NoError(t, err)
	objs, err := cluster.Render(p.Submariner)
	require.NoError(t, err)
	require.NoError(t, kube.Install(t.Context(), c, kube.FieldOwner, objs, nil))
	require.NoError(t, c.Create(t.Context(), limits.DeepCopy()))
	refused("a/b:2")
	_, err = try("a/b:1")
	require.NoError(t, err, "no pod is replaced")
	pods := &corev1.PodList{}
	require.NoError(t, c.List(t.Context(), pods, client.InNamespace(cluster.Namespace)))
	for _, pod := range pods.Items {
		require.Contains(t, []string{cluster.GatewayNodesName, cluster.ServiceDiscoveryName, cluster.DNSName},
			pod.Labels["app"], "no trial was created")
	}
	ds := &appsv1.DaemonSet{}
	require.NoError(t,
		c.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.GatewayName}, ds))
	require.Equal(t, "a/b:1", ds.Spec.Template.Spec.Containers[0].Image)
	require.NoError(t, c.Delete(t.Context(), limits))

	// Somebody deletes the namespace, and something holds it.
	hold := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "held", Namespace: cluster.Namespace, Finalizers: []string{"example.com/theirs"},
	}}
	require.NoError(t, c.Create(t.Context(), hold))
	require.NoError(t, c.Delete(t.Context(), ns))
	require.Eventually(t, func() bool {
		_, err = try("a/b:1")
		return err != nil &&
			bytes.Contains([]byte(err.Error()), []byte("ConfigMap held has the finalizers example.com/theirs"))
	}, time.Minute, 200*time.Millisecond)
	require.ErrorContains(t, err, "namespace submariner-operator is being deleted: ")
	require.NoError(t, c.Patch(t.Context(), hold,
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
}

// A quota that is used up does not keep pods from being replaced, one after the other, unless it
// permits less than what runs now.
func TestExchangeWithinAQuota(t *testing.T) {
	require.True(t, join.ExchangeFits("pods \"x\" is forbidden: exceeded quota: theirs, requested: "+
		"limits.memory=4Gi,pods=1, used: limits.memory=6Gi,pods=2, limited: limits.memory=6Gi,pods=2"))
	require.False(t, join.ExchangeFits("pods \"x\" is forbidden: exceeded quota: theirs, requested: "+
		"limits.memory=4Gi, used: limits.memory=6Gi, limited: limits.memory=5Gi"), "it was lowered")
	require.False(t, join.ExchangeFits("pods \"x\" is forbidden: exceeded quota: theirs, requested: "+
		"limits.memory=4Gi, used: limits.memory=0, limited: limits.memory=1Gi"))
	require.False(t,
		join.ExchangeFits(`pods "x" is forbidden: maximum memory usage per Container is 1Gi, but limit is 4Gi`))
}
