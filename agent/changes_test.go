package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	submarinerv1 "subctl/api/submariner/v1"
)

func TestChanges(t *testing.T) {
	gateway := func(change func(*submarinerv1.Gateway)) client.Object {
		g := &submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{
			Name:            "gw",
			ResourceVersion: "1",
			Generation:      1,
			Annotations:     map[string]string{submarinerv1.TimestampAnnotation: "1"},
		}}
		g.Status.Connections = []submarinerv1.Connection{
			{Status: submarinerv1.Connected, LatencyRTT: &submarinerv1.LatencyRTT{Last: "1ms"}},
		}
		change(g)
		return g
	}
	node := func(change func(*corev1.Node)) client.Object {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}}
		change(n)
		slim, err := slimNode(n)
		require.NoError(t, err)
		return slim.(client.Object)
	}
	for _, test := range []struct {
		name     string
		old, new client.Object
		want     bool
	}{
		{"an agent is alive", gateway(func(*submarinerv1.Gateway) {}), gateway(func(g *submarinerv1.Gateway) {
			g.ResourceVersion = "2"
			g.Generation = 2
			g.Annotations[submarinerv1.TimestampAnnotation] = "6"
			g.Status.Connections[0].LatencyRTT.Last = "2ms"
		}), false},
		{"a connection is lost", gateway(func(*submarinerv1.Gateway) {}), gateway(func(g *submarinerv1.Gateway) {
			g.Status.Connections[0].Status = submarinerv1.ConnectionError
		}), true},
		{"a kubelet is alive", node(func(*corev1.Node) {}), node(func(n *corev1.Node) {
			n.ResourceVersion = "2"
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
		}), false},
		{"a gateway has other flows", gateway(func(*submarinerv1.Gateway) {}), gateway(func(g *submarinerv1.Gateway) {
			g.Status.Flows = new(int64(7))
		}), false},
		{"a gateway gets another weight", node(func(*corev1.Node) {}), node(func(n *corev1.Node) {
			n.Annotations = map[string]string{submarinerv1.WeightAnnotation: "7"}
		}), true},
		{"a gateway is to be drained", node(func(*corev1.Node) {}), node(func(n *corev1.Node) {
			n.Annotations = map[string]string{submarinerv1.DrainAnnotation: "5m"}
		}), true},
		{"a node becomes a gateway", node(func(*corev1.Node) {}), node(func(n *corev1.Node) {
			n.Labels = map[string]string{submarinerv1.GatewayNodeLabel: "true"}
		}), true},
		{
			"an object is being deleted",
			node(func(*corev1.Node) {}),
			node(func(n *corev1.Node) { n.DeletionTimestamp = new(metav1.Now()) }),
			true,
		},
	} {
		before := test.new.DeepCopyObject()
		require.Equal(t, test.want, changes.Update(event.UpdateEvent{ObjectOld: test.old, ObjectNew: test.new}),
			test.name)
		require.Equal(t, before, test.new, "%s: objects of the cache are not changed", test.name)
	}
	require.True(t, changes.Create(event.CreateEvent{Object: node(func(*corev1.Node) {})}))
	require.True(t, changes.Delete(event.DeleteEvent{Object: node(func(*corev1.Node) {})}))
}
