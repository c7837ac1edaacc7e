package agent

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/cluster/gatewaynodes"
)

// nodePool is the nodes of a cluster on a real API server, without kubelets.
type nodePool struct {
	*testing.T
	admin client.Client
}

// add registers a node, as a kubelet does.
func (p nodePool) add(name, zone string) {
	p.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux", corev1.LabelTopologyZone: zone},
	}}
	require.NoError(p, p.admin.Create(p.Context(), n))
	p.ready(name, corev1.ConditionTrue, 0)
}

// ready sets the condition Ready of a node, since some time.
func (p nodePool) ready(name string, is corev1.ConditionStatus, since time.Duration) {
	p.Helper()
	p.change(name, func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: is, LastTransitionTime: metav1.NewTime(time.Now().Add(-since)),
			LastHeartbeatTime: metav1.Now(),
		}}
	})
}

// beat has the nodes that are Ready report so until the test ends: the API server's controllers
// take others for failed.
func (p nodePool) beat() {
	for p.Context().Err() == nil {
		list := &corev1.NodeList{}
		if p.admin.List(p.Context(), list) != nil {
			return
		}
		for _, n := range list.Items {
			was := n.DeepCopy()
			if gatewaynodes.IsReady(&n) {
				n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
				_ = p.admin.Status().Patch(p.Context(), &n, client.MergeFrom(was)) // it may be deleted
			}
		}
		time.Sleep(5 * time.Second)
	}
}

// change changes a node and its status.
func (p nodePool) change(name string, change func(*corev1.Node)) {
	p.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(p, p.admin.Get(p.Context(), client.ObjectKeyFromObject(n), n))
	was := n.DeepCopy()
	change(n)
	status := n.DeepCopy()
	require.NoError(p, p.admin.Patch(p.Context(), n, client.MergeFrom(was)))
	require.NoError(p, p.admin.Status().Patch(p.Context(), status, client.MergeFrom(was)))
}

func (p nodePool) remove(name string) {
	p.Helper()
	require.NoError(p, p.admin.Delete(p.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// gateways returns the names of the gateway nodes.
func (p nodePool) gateways() string {
	list := &corev1.NodeList{}
	require.NoError(p, p.admin.List(p.Context(), list, client.MatchingLabels{submarinerv1.GatewayNodeLabel: "true"}))
	names := map[string]bool{}
	for _, n := range list.Items {
		names[n.Name] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), " ")
}

// become waits until the gateway nodes are the given ones.
func (p nodePool) become(want, why string) {
	p.Helper()
	require.Eventually(p, func() bool { return p.gateways() == want }, time.Minute, 20*time.Millisecond,
		"%s: %s, not %s", why, want, p.gateways())
}

// condition waits until the condition of the Submariner has a status and, if any, a text in its
// message.
func (p nodePool) condition(is metav1.ConditionStatus, text string) {
	p.Helper()
	sub := &v1alpha1.Submariner{}
	require.Eventually(p, func() bool {
		require.NoError(p, p.admin.Get(p.Context(),
			client.ObjectKey{Namespace: cluster.Namespace, Name: v1alpha1.SubmarinerName}, sub))
		c := meta.FindStatusCondition(sub.Status.Conditions, v1alpha1.ConditionGateways)
		return c != nil && c.Status == is && strings.Contains(c.Message, text)
	}, time.Minute, 20*time.Millisecond, "%v", sub.Status.Conditions)
}

// connect reports that the gateway of a node is connected.
func (p nodePool) connect(name string) {
	p.Helper()
	g := &submarinerv1.Gateway{
		ObjectMeta: clustertest.In(name), Status: submarinerv1.GatewayStatus{Connections: []submarinerv1.Connection{}},
	}
	g.Status.LocalEndpoint.ClusterID = "west"
	g.Status.LocalEndpoint.Subnets = []string{}
	require.NoError(p, p.admin.Create(p.Context(), g))
}

// On a real API server, with the rights of its account: gateway nodes that are gone are replaced,
// spread over zones, without anybody's command; what was labelled by hand is left alone; and while
// there are fewer, a condition and Events tell why.
func TestGatewayNodesAreReplaced(t *testing.T) {
	sub := clustertest.Submariner()
	sub.Spec.Gateways = new(int32(2))
	admin, config := agentServer(t, sub, cluster.GatewayNodesName)
	p := nodePool{t, admin}
	p.add("a", "x")
	p.add("b", "x")
	p.add("c", "y")
	go p.beat()
	options := func(node string) Options {
		return Options{
			Role: roles.GatewayNodes(), Kernel: NoKernel(), Node: node, MetricsAddr: "127.0.0.1:0",
			ProbeAddr: "127.0.0.1:0", Config: config,
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)).With("node", node),
		}
	}
	stop := runAgent(t, options("first"))
	p.become("a c", "two nodes of different zones become gateways")
	p.condition(metav1.ConditionTrue, "")

	p.remove("c")
	p.become("a b", "the Node of a gateway is deleted")
	p.add("c", "y")
	p.change("a", func(n *corev1.Node) { delete(n.Labels, submarinerv1.GatewayNodeLabel) })
	p.become("a b", "a gateway node has lost its label")

	p.remove("a")
	p.add("a", "x") // a new node with the name of the old one
	p.become("b c", "the Node of a gateway is deleted, and registers again without the label")

	p.change("a", func(n *corev1.Node) { n.Labels[submarinerv1.GatewayNodeLabel] = "true" })
	p.remove("b")
	p.condition(metav1.ConditionTrue, "")
	require.Equal(t, "a c", p.gateways(), "a node that was labelled by hand counts")
	p.remove("c")
	p.condition(metav1.ConditionFalse, "1 of 2 gateway nodes work; there is no other node")
	p.add("b", "x")
	p.become("a b", "a node that comes later becomes a gateway")
	p.condition(metav1.ConditionTrue, "")

	// Another agent takes over, and a node that has failed is replaced before its Node is deleted.
	stop()
	runAgent(t, options("second"))
	p.ready("b", corev1.ConditionUnknown, gatewaynodes.Absence)
	p.condition(metav1.ConditionFalse, "gateway node b is not Ready; there is no other node")
	p.add("c", "y")
	p.become("a b c", "a node that has failed is replaced")
	p.connect("a")
	p.connect("c")
	p.condition(metav1.ConditionTrue, "")
	n := &corev1.Node{}
	require.NoError(t, admin.Get(t.Context(), client.ObjectKey{Name: "c"}, n))
	require.Equal(t, cluster.ManagedBy, n.Annotations[cluster.LabelledByAnnotation], "uninstall removes the label")
	require.NoError(t, admin.Get(t.Context(), client.ObjectKey{Name: "a"}, n))
	require.Empty(t, n.Annotations[cluster.LabelledByAnnotation], "and leaves what a person has set")

	list := &eventsv1.EventList{}
	require.NoError(t, admin.List(t.Context(), list, client.InNamespace(cluster.Namespace)))
	require.True(t, slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
		return e.Regarding.Kind == "Submariner" && e.Reason == "TooFew" &&
			strings.Contains(e.Note, "there is no other node: add one")
	}), "%v", list.Items)

	leaveCluster(t, admin)
	p.remove("c")
	for range 10 {
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, "a b", p.gateways(), "a cluster that leaves labels no nodes")
	}
}
