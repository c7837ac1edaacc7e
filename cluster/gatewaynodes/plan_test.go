package gatewaynodes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// node returns a Linux node that is Ready, changed.
func node(name string, changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}, Annotations: map[string]string{},
	}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, change := range changes {
		change(n)
	}
	return n
}

func byHand(n *corev1.Node) { n.Labels[submarinerv1.GatewayNodeLabel] = "true" }
func marked(n *corev1.Node) {
	n.Annotations[submarinerv1.LabelledByAnnotation] = submarinerv1.ManagedBy
}
func ours(n *corev1.Node)         { byHand(n); marked(n) }
func excluded(n *corev1.Node)     { n.Labels[submarinerv1.GatewayNodeLabel] = "false" }
func cordoned(n *corev1.Node)     { n.Spec.Unschedulable = true }
func control(n *corev1.Node)      { n.Labels[controlLabel] = "" }
func windows(n *corev1.Node)      { n.Labels[corev1.LabelOSStable] = "windows" }
func fargate(n *corev1.Node)      { n.Labels["eks.amazonaws.com/compute-type"] = "fargate" }
func addressed(n *corev1.Node)    { n.Annotations[submarinerv1.PublicIPAnnotation] = "ipv4:192.0.2.7" }
func down(n *corev1.Node)         { absent(Absence)(n) }
func scaledDown(n *corev1.Node)   { tainted("ToBeDeletedByClusterAutoscaler")(n) }
func consolidated(n *corev1.Node) { tainted("karpenter.sh/disrupted")(n) }

func tainted(key string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key}) }
}

func in(zone string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = zone }
}

// absent makes a node not Ready for some time.
func absent(d time.Duration) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-d))},
		}
	}
}

// The number of gateway nodes is kept: by other nodes where gateway nodes are gone, and by nobody
// where a person takes care.
func TestKeep(t *testing.T) {
	type nodes = []*corev1.Node
	const labelA = " (to replace it, kubectl label node a submariner.io/gateway-)"
	for _, test := range []struct {
		name           string
		asked          int
		nodes          nodes
		change         func(*Cluster)
		label, unlabel []string
		shortage       string
	}{
		{name: "enough", asked: 1, nodes: nodes{node("a", ours), node("b")}},
		{name: "nobody asked", asked: 0, nodes: nodes{node("b")}},
		{name: "nodes labelled by hand are enough", asked: 2, nodes: nodes{
			node("a", byHand), node("b", byHand), node("c"),
		}},
		{name: "more than asked for stay", asked: 1, nodes: nodes{node("a", ours), node("b", ours), node("c", byHand)}},
		{
			name: "the Node is deleted", asked: 1, nodes: nodes{node("b"), node("c")}, label: []string{"b"},
			shortage: "0 of 1 gateway node works; becoming a gateway: b",
		},
		{
			name: "one of two Nodes is deleted", asked: 2, nodes: nodes{node("a", ours), node("b")},
			label: []string{"b"}, shortage: "1 of 2 gateway nodes work; becoming a gateway: b",
		},
		{
			name: "one that was labelled by hand is deleted", asked: 1, nodes: nodes{node("b"), node("c")},
			label: []string{"b"}, shortage: "0 of 1 gateway node works; becoming a gateway: b",
		},
		{
			name: "the label is lost", asked: 1, nodes: nodes{node("a"), node("b", marked)}, label: []string{"b"},
			shortage: "0 of 1 gateway node works; becoming a gateway: b",
		},
		{
			name: "the label is lost, and the node excluded", asked: 1,
			nodes: nodes{node("a"), node("b", marked, excluded)}, label: []string{"a"},
			shortage: "0 of 1 gateway node works; becoming a gateway: a",
		},
		{
			name: "named nodes first", asked: 2, nodes: nodes{node("a"), node("b", marked), node("c")},
			change: func(c *Cluster) { c.Named = []string{"c"} },
			label:  []string{"c", "b"}, shortage: "0 of 2 gateway nodes work; becoming a gateway: c, b",
		},
		{
			name: "another zone", asked: 3,
			nodes:    nodes{node("a", ours, in("x")), node("b", in("x")), node("c", in("y")), node("d", in("z"))},
			label:    []string{"c", "d"},
			shortage: "1 of 3 gateway nodes work; becoming a gateway: c, d",
		},
		{
			name: "the control plane last", asked: 1, nodes: nodes{node("a", control), node("b")},
			label: []string{"b"}, shortage: "0 of 1 gateway node works; becoming a gateway: b",
		},
		{
			name: "the control plane, if there is nothing else", asked: 1,
			nodes: nodes{node("a", control), node("b", cordoned)}, label: []string{"a"},
			shortage: "0 of 1 gateway node works; becoming a gateway: a",
		},

		{name: "a node is not Ready for a moment", asked: 1, nodes: nodes{
			node("a", ours, absent(Absence-time.Second)), node("b"),
		}},
		{
			name: "a node has failed", asked: 1, nodes: nodes{node("a", ours, down), node("b")}, label: []string{"b"},
			shortage: "0 of 1 gateway node works; gateway node a is not Ready; becoming a gateway: b",
		},
		{
			name: "its replacement is not connected", asked: 1, nodes: nodes{node("a", ours, down), node("b", ours)},
			change: func(c *Cluster) { c.Connected = nil },
		},
		{
			name: "its replacement is connected", asked: 1, nodes: nodes{node("a", ours, down), node("b", ours)},
			unlabel: []string{"a"},
		},
		{name: "a standby that was labelled by hand works", asked: 1, nodes: nodes{
			node("a", ours, down), node("b", byHand),
		}},
		{
			name: "two of three replaced nodes", asked: 1,
			nodes: nodes{node("a", ours, down), node("b", ours, down), node("c", ours)}, unlabel: []string{"a", "b"},
		},
		{
			name: "nodes fail one after another", asked: 1,
			nodes: nodes{node("a", ours, down), node("b", ours, down), node("c", ours, down), node("d")},
			shortage: "0 of 1 gateway node works; gateway node a is not Ready; gateway node b is not Ready; gateway " +
				"node c is not Ready; no other node becomes one while 3 have the label: repair these nodes, or " +
				"remove their label (kubectl label node NAME submariner.io/gateway-)",
		},
		{
			name: "a person chose the node that has failed", asked: 1, nodes: nodes{node("a", byHand, down), node("b")},
			shortage: "0 of 1 gateway node works; gateway node a is not Ready, and is not replaced while it exists, " +
				"because a person chose it" + labelA,
		},
		{
			name: "a person named the node that has failed", asked: 1, nodes: nodes{node("a", ours, down), node("b")},
			change: func(c *Cluster) { c.Named = []string{"a"} },
			shortage: "0 of 1 gateway node works; gateway node a is not Ready, and is not replaced while it exists, " +
				"because a person chose it" + labelA,
		},
		{
			name: "routers forward to the node that has failed", asked: 1,
			nodes: nodes{node("a", ours, down, addressed), node("b")},
			shortage: "0 of 1 gateway node works; gateway node a is not Ready, and is not replaced while it exists, " +
				"because a person chose it" + labelA,
		},

		{
			name:     "a node is cordoned",
			asked:    1,
			nodes:    nodes{node("a", ours, cordoned), node("b")},
			label:    []string{"b"},
			shortage: "0 of 1 gateway node works; gateway node a is cordoned; becoming a gateway: b",
		},
		{
			name: "its replacement is connected, too", asked: 1,
			nodes: nodes{node("a", ours, cordoned), node("b", ours)}, unlabel: []string{"a"},
		},
		{name: "a node that was labelled by hand is cordoned", asked: 1, nodes: nodes{
			node("a", byHand, cordoned), node("b"),
		}},
		{
			name: "an autoscaler is about to remove a node", asked: 1,
			nodes: nodes{node("a", ours, scaledDown), node("b")}, label: []string{"b"},
			shortage: "0 of 1 gateway node works; gateway node a is about to be removed (taint " +
				"ToBeDeletedByClusterAutoscaler); becoming a gateway: b",
		},
		{
			name: "… one that was labelled by hand", asked: 1,
			nodes: nodes{node("a", byHand, consolidated), node("b")}, label: []string{"b"},
			shortage: "0 of 1 gateway node works; gateway node a is about to be removed (taint " +
				"karpenter.sh/disrupted); becoming a gateway: b",
		},
		{name: "… and another node has taken over", asked: 1, nodes: nodes{
			node("a", byHand, consolidated), node("b", ours),
		}},

		{
			name: "no node is suitable", asked: 2, nodes: nodes{
				node("a", ours), node("b", windows), node("c", fargate), node("d", cordoned), node("e", scaledDown),
				node("f", down), node("g", excluded),
			},
			shortage: "1 of 2 gateway nodes work; no other node can become one: b: it runs windows, c: it is " +
				"virtual: eks.amazonaws.com/compute-type=fargate, d: it is cordoned, e: it is about to be removed " +
				"(taint ToBeDeletedByClusterAutoscaler), f: it is not Ready, g: its label " +
				"submariner.io/gateway=false excludes it",
		},
		{
			name: "there is no node", asked: 1, nodes: nodes{},
			shortage: "0 of 1 gateway node works; there is no other node: add one",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := Cluster{Asked: test.asked, Nodes: test.nodes, Connected: map[string]bool{}, Now: now}
			for _, n := range test.nodes {
				c.Connected[n.Name] = true
			}
			if test.change != nil {
				test.change(&c)
			}
			p := Keep(c)
			require.Equal(t, test.label, names(p.Label))
			require.Equal(t, test.unlabel, names(p.Unlabel))
			require.Equal(t, test.shortage, p.Shortage)
		})
	}
}

// A plan that changes by itself says when.
func TestKeepAgain(t *testing.T) {
	c := Cluster{Asked: 2, Now: now, Nodes: []*corev1.Node{
		node("a", ours, absent(5*time.Second)), node("b", ours, absent(10*time.Second)), node("c", down),
	}}
	require.Equal(t, Absence-10*time.Second, Keep(c).Again)
	require.Zero(t, Keep(Cluster{Asked: 1, Now: now, Nodes: []*corev1.Node{node("a", ours)}}).Again)
}

// Whatever nodes fail, and for how long, the plan never labels more than twice the number of nodes
// that was asked for, and one; and when all are well again, labels move no more.
func TestKeepIsBounded(t *testing.T) {
	const asked, all = 2, 12
	var nodes []*corev1.Node
	for i := range all {
		nodes = append(nodes, node(string(rune('a'+i))))
	}
	follow := func() (changed bool) {
		c := Cluster{Asked: asked, Nodes: nodes, Connected: map[string]bool{}, Now: now}
		for _, n := range nodes {
			c.Connected[n.Name] = IsGateway(n) && IsReady(n)
		}
		p := Keep(c)
		for _, n := range p.Label {
			ours(n)
		}
		for _, n := range p.Unlabel {
			delete(n.Labels, submarinerv1.GatewayNodeLabel)
			delete(n.Annotations, submarinerv1.LabelledByAnnotation)
		}
		return len(p.Label)+len(p.Unlabel) > 0
	}
	labels := func() (n int) {
		for _, node := range nodes {
			if IsGateway(node) {
				n++
			}
		}
		return n
	}
	for i := range 5 * all {
		follow()
		require.LessOrEqual(t, labels(), 2*asked+1)
		down(nodes[i*5%all])
		if i%3 == 0 {
			nodes[i*7%all].Status.Conditions[0].Status = corev1.ConditionTrue
		}
	}
	for _, n := range nodes {
		n.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	for follow() {
		require.LessOrEqual(t, labels(), 2*asked+1)
	}
	require.GreaterOrEqual(t, labels(), asked)
}
