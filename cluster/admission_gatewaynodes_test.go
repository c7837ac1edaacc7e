package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

// Whoever has the token of the agent that replaces gateway nodes can make nodes gateways, and no
// longer those that it has made. It changes nothing else of a Node, makes or deletes none, takes no
// label away that a person has set, and changes nothing of the Submariner but one condition.
func TestHostileGatewayNodesAgent(t *testing.T) {
	server := kubetest.Shared(t)
	admin := joined(t, server)
	sub := clustertest.Submariner()
	sub.Spec.Gateways = new(int32(1))
	for _, obj := range clustertest.Render(t, sub) {
		if obj.GetName() == cluster.GatewayNodesName && kube.KindOf(obj) != "Deployment" {
			require.NoError(t, kube.Apply(t.Context(), admin, kube.FieldOwner, obj))
		}
	}
	sub.ObjectMeta = clustertest.In(v1alpha1.SubmarinerName)
	require.NoError(t, admin.Create(t.Context(), sub))
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), sub) })
	agent := agentOf(t, server, cluster.GatewayNodesName, "")
	plain := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "plain", Labels: map[string]string{"site": "a"}, Annotations: map[string]string{"team": "b"},
	}}
	byHand := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand", Labels: map[string]string{"submariner.io/gateway": "true"}},
	}
	excluded := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "excluded", Labels: map[string]string{"submariner.io/gateway": "false"}},
	}
	for _, n := range []*corev1.Node{plain, byHand, excluded} {
		require.NoError(t, admin.Create(t.Context(), n))
		t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), n) })
	}
	patch := func(n *corev1.Node, text string, options ...client.PatchOption) error {
		return agent.Patch(t.Context(), n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)), options...)
	}
	const (
		gateway = `{"metadata":{"labels":{"submariner.io/gateway":"true"},"annotations":{"submariner.io/labelled-by":"subctl"}}}`
		none    = `{"metadata":{"labels":{"submariner.io/gateway":null},"annotations":{"submariner.io/labelled-by":null}}}`
	)
	require.Eventually(t, func() bool {
		return patch(plain, gateway, client.DryRunAll) == nil &&
			patch(plain, `{"metadata":{"labels":{"site":"c"}}}`, client.DryRunAll) != nil
	}, 30*time.Second, 50*time.Millisecond, "its rights and the policy are in force")
	for name, test := range map[string]struct {
		of   *corev1.Node
		text string
	}{
		"another label":              {plain, `{"metadata":{"labels":{"site":"c"}}}`},
		"a new label":                {plain, `{"metadata":{"labels":{"other":"c"}}}`},
		"no labels":                  {plain, `{"metadata":{"labels":null}}`},
		"another annotation":         {plain, `{"metadata":{"annotations":{"team":"c"}}}`},
		"no annotations":             {plain, `{"metadata":{"annotations":null}}`},
		"a gateway without the mark": {plain, `{"metadata":{"labels":{"submariner.io/gateway":"true"}}}`},
		"the mark alone":             {plain, `{"metadata":{"annotations":{"submariner.io/labelled-by":"subctl"}}}`},
		"another value": {
			plain,
			`{"metadata":{"labels":{"submariner.io/gateway":"no"},"annotations":{"submariner.io/labelled-by":"subctl"}}}`,
		},
		"together with a cordon": {
			plain,
			`{"metadata":{"labels":{"submariner.io/gateway":"true"},"annotations":{"submariner.io/labelled-by":"subctl"}},"spec":{"unschedulable":true}}`,
		},
		"a taint":     {plain, `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`},
		"a finalizer": {plain, `{"metadata":{"finalizers":["example.com/f"]}}`},
		"a public address": {
			plain, `{"metadata":{"annotations":{"gateway.submariner.io/public-ip":"ipv4:192.0.2.7"}}}`,
		},
		"the label of a person":        {byHand, none},
		"the mark on a person's label": {byHand, gateway}, // the next step would remove both
		"a node that is excluded":      {excluded, gateway},
		"the label of a person alone":  {byHand, `{"metadata":{"labels":{"submariner.io/gateway":null}}}`},
	} {
		err := patch(test.of, test.text)
		require.True(t, apierrors.IsForbidden(err), "%s: %v", name, err)
		require.ErrorContains(t, err, "the agent that replaces gateway nodes may", name)
	}
	require.True(t, apierrors.IsForbidden(agent.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "made"},
	})))
	require.True(t, apierrors.IsForbidden(agent.Delete(t.Context(), plain.DeepCopy())))
	require.True(t, apierrors.IsForbidden(agent.Status().Patch(t.Context(), plain.DeepCopy(),
		client.RawPatch(types.MergePatchType, []byte(gateway)))))
	lease := func(name string) error { // with another holder, its node could never take it as a gateway
		return agent.Create(t.Context(),
			&coordinationv1.Lease{
				ObjectMeta: clustertest.In(name), Spec: coordinationv1.LeaseSpec{HolderIdentity: new("x")},
			},
			client.DryRunAll)
	}
	require.NoError(t, lease(submarinerv1.GatewayNodesLease))
	for _, name := range []string{
		submarinerv1.NodeLeasePrefix + "plain", submarinerv1.GatewayLease, submarinerv1.GlobalnetLease,
	} {
		require.ErrorContains(t, lease(name), "may write no Lease but", name)
	}
	require.NoError(t, patch(plain, gateway))
	require.NoError(t, patch(plain, none))
	require.NoError(t, patch(plain, gateway))
	require.True(t, apierrors.IsForbidden(patch(plain, `{"metadata":{"labels":{"submariner.io/gateway":null}}}`)),
		"a mark of nothing")

	found := &v1alpha1.Submariner{}
	require.NoError(t,
		admin.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: v1alpha1.SubmarinerName}, found))
	found.Status.ClusterID = "west"
	require.NoError(t, admin.Status().Update(t.Context(), found))
	update := func(change func(*v1alpha1.Submariner)) error {
		s := found.DeepCopy()
		change(s)
		return agent.Status().Update(t.Context(), s, client.DryRunAll)
	}
	now := metav1.Now()
	condition := func(kind string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: "TooFew", LastTransitionTime: now}
	}
	require.NoError(t, update(func(s *v1alpha1.Submariner) {
		s.Status.Conditions = append(s.Status.Conditions, condition(v1alpha1.ConditionGateways))
	}))
	for name, change := range map[string]func(*v1alpha1.Submariner){
		"another condition": func(s *v1alpha1.Submariner) {
			s.Status.Conditions = append(s.Status.Conditions, condition("Other"))
		},
		"the network plugin": func(s *v1alpha1.Submariner) { s.Status.NetworkPlugin = "calico" },
		"the cluster ID":     func(s *v1alpha1.Submariner) { s.Status.ClusterID = "east" },
		"NAT":                func(s *v1alpha1.Submariner) { s.Status.NatEnabled = true },
	} {
		require.True(t, apierrors.IsForbidden(update(change)), name)
	}
	require.True(t, apierrors.IsForbidden(agent.Update(t.Context(), found.DeepCopy())))
}
