package mesh_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
)

// nodeOfPods is a node with a podCIDR, and the address in the pod networks that its agent reports;
// empty for none.
type nodeOfPods struct{ name, podCIDR, podIP string }

// gatewayWith returns the snapshot of gateway gw of a cluster with pod networks and nodes.
func gatewayWith(pods string, nodes ...nodeOfPods) role.Snapshot {
	sub := &v1alpha1.Submariner{ObjectMeta: metav1.ObjectMeta{Name: "submariner"}}
	sub.Spec.ClusterID = "east"
	sub.Spec.ClusterCIDR = pods
	sub.Spec.ServiceCIDR = "10.101.0.0/16"
	e := &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{Name: "gw"},
		Spec:       submarinerv1.EndpointSpec{ClusterID: "east", Hostname: "gw"},
	}
	objs := []role.Object{sub, e}
	for i, is := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: is.name}, Spec: corev1.NodeSpec{PodCIDR: is.podCIDR}}
		n.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "10.89.1." + string(rune('1'+i))},
		}
		if is.name == "gw" {
			n.Labels = map[string]string{submarinerv1.GatewayNodeLabel: "true"}
		}
		ra := &submarinerv1.RouteAgent{ObjectMeta: metav1.ObjectMeta{Name: is.name}}
		ra.Status.Node = &submarinerv1.NodeFacts{PodIP: is.podIP}
		objs = append(objs, n, ra)
	}
	s := role.NewSnapshot("gw", objs...)
	s.Facts = submarinerv1.NodeFacts{PrivateIP: "10.89.1.1", MTU: 1500, PodIP: nodes[0].podIP}
	return s
}

// Whoever has taken over a node whose podCIDR nothing allocates can set it once, to any network,
// and report any address in it. He gets no packet for a pod of another node, and prevents no plan:
// contested networks are left to the network plugin.
func TestHostilePodNetworks(t *testing.T) {
	gw := nodeOfPods{"gw", "", "10.111.1.7"}
	worker := nodeOfPods{"worker", "", "10.111.2.7"} // as with Cilium's cluster-pool
	gwCIDR := nodeOfPods{"gw", "10.111.1.0/24", "10.111.1.1"}
	workerCIDR := nodeOfPods{"worker", "10.111.2.0/24", "10.111.2.1"}
	taken := func(podCIDR, podIP string) nodeOfPods { return nodeOfPods{"taken", podCIDR, podIP} }
	const part = "is not used: it is no part of the cluster's pod networks, and "
	for name, test := range map[string]struct {
		pods   string
		nodes  []nodeOfPods
		routed []string // the networks that the gateway routes to nodes
		says   string
	}{
		"the truth": {
			"10.111.0.0/16",
			[]nodeOfPods{gwCIDR, workerCIDR, taken("10.111.3.0/24", "10.111.3.1")},
			[]string{"10.111.2.0/24", "10.111.3.0/24"},
			"",
		},
		"all pods": {
			"10.111.0.0/16",
			[]nodeOfPods{gw, worker, taken("10.111.0.0/16", "10.111.3.1")},
			nil,
			"the podCIDR 10.111.0.0/16 of node taken is not used: the address 10.111.1.7 of node gw is in the same network",
		},
		"all pods, beside podCIDRs": {
			"10.111.0.0/16",
			[]nodeOfPods{gwCIDR, workerCIDR, taken("10.111.0.0/16", "10.111.3.1")},
			[]string{"10.111.2.0/24"},
			"of node taken is not used: the podCIDR 10.111.1.0/24 of node gw is in the same network",
		},
		"all pods, twice": {
			"10.111.0.0/16",
			[]nodeOfPods{gw, taken("10.111.0.0/16", "10.111.3.1"), {"taken-too", "10.111.0.0/16", "10.111.3.2"}},
			nil,
			"of node taken-too is not used",
		},
		"everything": {
			"10.111.0.0/16",
			[]nodeOfPods{gwCIDR, workerCIDR, taken("0.0.0.0/0", "10.111.3.1")},
			[]string{"10.111.2.0/24"},
			part + "larger than a /16",
		},
		"the network of the nodes": {
			"10.111.0.0/16",
			[]nodeOfPods{gwCIDR, workerCIDR, taken("10.89.1.0/24", "10.89.1.3")},
			[]string{"10.111.2.0/24"},
			part + "contains 10.89.1.1, a node of this cluster",
		},
		"a network of Services": {
			"10.111.0.0/16",
			[]nodeOfPods{gwCIDR, workerCIDR, taken("10.101.7.0/24", "10.101.7.3")},
			[]string{"10.111.2.0/24"},
			part + "overlaps 10.101.0.0/16",
		},
		"a further range": {
			"10.111.0.0/16",
			[]nodeOfPods{gwCIDR, workerCIDR, {"far", "10.120.1.0/24", "10.120.1.1"}},
			[]string{"10.111.2.0/24", "10.120.1.0/24"},
			"",
		},
		"part of a pod network of one node": {
			"10.111.1.0/24,10.111.2.0/24",
			[]nodeOfPods{gwCIDR, workerCIDR, taken("10.111.2.128/25", "10.111.2.129")},
			nil,
			"the podCIDR 10.111.2.128/25 of node taken is not used: the podCIDR 10.111.2.0/24 of node worker is in the same network",
		},
		"part of the only pod network": {
			"10.111.2.0/24",
			[]nodeOfPods{gwCIDR, workerCIDR, taken("10.111.2.128/25", "10.111.2.129")},
			nil,
			"the podCIDR 10.111.2.128/25 of node taken is not used: the podCIDR 10.111.2.0/24 of node worker is in the same network",
		},
		"guessed when there was one node": {
			"10.111.2.0/24",
			[]nodeOfPods{gwCIDR, workerCIDR},
			[]string{"10.111.2.0/24"},
			"",
		},
		"one of two pod networks": {
			"10.111.0.0/17,10.111.128.0/17",
			[]nodeOfPods{gw, worker, taken("10.111.0.0/17", "10.111.3.1")},
			nil,
			"the address 10.111.1.7 of node gw is in the same network",
		},
		"half of the pods": {
			"10.111.0.0/16",
			[]nodeOfPods{gw, worker, taken("10.111.0.0/17", "10.111.3.1")},
			nil,
			"the address 10.111.1.7 of node gw is in the same network",
		},
		"the pods of one node": {
			"10.111.0.0/16",
			[]nodeOfPods{gw, worker, taken("10.111.2.0/24", "10.111.2.9")},
			nil,
			"the address 10.111.2.7 of node worker is in the same network",
		},
		"exactly the address of a node": {
			"10.111.0.0/16",
			[]nodeOfPods{gw, worker, taken("10.111.2.7/32", "10.111.2.7")},
			nil,
			"the address 10.111.2.7 of node worker is in the same network",
		},
		"the same podCIDR": {
			"10.111.0.0/16",
			[]nodeOfPods{gwCIDR, workerCIDR, taken("10.111.2.0/24", "10.111.2.9")},
			nil,
			"the podCIDR 10.111.2.0/24 of node taken is not used: the podCIDR 10.111.2.0/24 of node worker is in the same network",
		},
		"part of a podCIDR": {
			"10.111.0.0/16",
			[]nodeOfPods{gwCIDR, workerCIDR, taken("10.111.2.128/25", "10.111.2.129")},
			nil,
			"the podCIDR 10.111.2.128/25 of node taken is not used: the podCIDR 10.111.2.0/24 of node worker is in the same network",
		},
		"the podCIDR of the gateway": {
			"10.111.0.0/16",
			[]nodeOfPods{gwCIDR, workerCIDR, taken("10.111.1.0/24", "10.111.1.9")},
			[]string{"10.111.2.0/24"},
			"of node taken is not used",
		},
		"two nodes, in the same network": {
			"10.111.0.0/16",
			[]nodeOfPods{
				gw,
				worker,
				taken("10.111.9.0/24", "10.111.9.1"),
				{"taken-too", "10.111.9.0/24", "10.111.9.2"},
			},
			nil,
			"of node taken is not used",
		},
		"nested": {
			"10.111.0.0/16",
			[]nodeOfPods{
				gwCIDR,
				workerCIDR,
				taken("10.111.2.0/23", "10.111.3.1"),
				{"taken-too", "10.111.3.0/25", "10.111.3.2"},
				{"taken-three", "10.111.3.0/24", "10.111.3.3"},
			},
			nil, "the podCIDR 10.111.2.0/24 of node worker is not used",
		},
		"no podCIDR, and a false address": {
			"10.111.0.0/16",
			[]nodeOfPods{gwCIDR, workerCIDR, taken("", "10.111.2.9")},
			nil,
			"the podCIDR 10.111.2.0/24 of node worker is not used: the address 10.111.2.9 of node taken is in the same network",
		},
		"a podCIDR, and a false address": {
			"10.111.0.0/16",
			[]nodeOfPods{gwCIDR, workerCIDR, taken("10.111.3.0/24", "10.111.2.9")},
			[]string{"10.111.2.0/24"},
			"",
		},
		"alone, with all pods": {"10.111.1.0/24", []nodeOfPods{gwCIDR}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := PlanRoute(gatewayWith(test.pods, test.nodes...))
			require.NoError(t, err)
			var routed []string
			for _, o := range p.State.Sorted() {
				if r, ok := o.(dataplane.Route); ok && r.Table == dataplane.IntraTable {
					routed = append(routed, r.Dst.String())
				}
			}
			require.ElementsMatch(t, test.routed, routed)
			var said []string
			for _, c := range report.Conditions(nil, p, role.Outcome{}) {
				if c.Type == role.ConditionNodesDistinct {
					require.Equal(t, "SamePodNetwork", c.Reason)
					said = append(said, c.Message)
				}
			}
			require.Equal(t, test.says == "", len(said) == 0)
			require.Contains(t, strings.Join(said, "\n"), test.says)
		})
	}
}

// Nor does he get the packets for a network of another cluster.
func TestHostilePodNetworkOfAnother(t *testing.T) {
	s := eastAndWest(t, "gw")
	before, err := Of(s)
	require.NoError(t, err)
	s.Memory.Incumbents = before.Accepted.Incumbents
	for _, o := range (claims{
		addresses: []string{"10.89.1.66"},
		reported:  submarinerv1.NodeFacts{PodIP: "10.112.7.1"},
	}).node("taken") {
		if n, ok := o.(*corev1.Node); ok {
			n.Spec.PodCIDR = "10.112.7.0/24"
		}
		s = with(s, o)
	}
	m, err := Of(s)
	require.NoError(t, err)
	require.Equal(
		t,
		[]string{
			"the podCIDR 10.112.7.0/24 of node taken is not used: it is no part of the cluster's pod networks, and overlaps 10.112.0.0/16 of cluster west",
		},
		m.Membership.Contested,
	)
}
