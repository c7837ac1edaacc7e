package mesh_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// Networks that overlap are a mistake of this cluster: nothing is planned with them.
func TestOverlappingNetworks(t *testing.T) {
	sub := &v1alpha1.Submariner{ObjectMeta: metav1.ObjectMeta{Name: "submariner"}}
	sub.Spec.ClusterID = "east"
	sub.Spec.ClusterCIDR = "10.111.0.0/16,10.112.0.0/16"
	sub.Spec.ServiceCIDR = "10.111.7.0/24,10.0.0.0/8"
	_, err := members.Read(role.NewSnapshot("n1", sub))
	const remedy = ": run subctl join with the right --clustercidr and --servicecidr"
	require.EqualError(t, err, "Submariner.spec.serviceCIDR 10.0.0.0/8 overlaps clusterCIDR 10.111.0.0/16"+remedy+"\n"+
		"Submariner.spec.serviceCIDR 10.0.0.0/8 overlaps clusterCIDR 10.112.0.0/16"+remedy+"\n"+
		"Submariner.spec.serviceCIDR 10.111.7.0/24 overlaps clusterCIDR 10.111.0.0/16"+remedy)
	sub.Spec.ServiceCIDR = "10.101.0.0/16"
	sub.Spec.GlobalCIDR = "10.112.0.0/24,10.101.7.0/24"
	_, err = members.Read(role.NewSnapshot("n1", sub))
	const another = ": run subctl join with another --globalnet-cidr"
	require.EqualError(
		t,
		err,
		"Submariner.spec.globalCIDR 10.112.0.0/24 overlaps clusterCIDR 10.112.0.0/16"+another+"\n"+
			"Submariner.spec.globalCIDR 10.101.7.0/24 overlaps serviceCIDR 10.101.0.0/16"+another,
	)
}

// What a taken-over agent reports of its node changes nothing of what other nodes plan with:
// addresses come from Node.status, and only a small network around them counts.
func TestHostileNodeReport(t *testing.T) {
	sub := &v1alpha1.Submariner{ObjectMeta: metav1.ObjectMeta{Name: "submariner"}}
	sub.Spec.ClusterID = "east"
	sub.Spec.ClusterCIDR = "10.111.0.0/16"
	sub.Spec.ServiceCIDR = "10.101.0.0/16"
	node := func(name string, ips ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, ip := range ips {
			n.Status.Addresses = append(n.Status.Addresses,
				corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
		}
		return n
	}
	for name, tc := range map[string]struct {
		reported submarinerv1.NodeFacts
		ip       string
		needed   []string // besides the network of the node itself
	}{
		"the truth": {
			submarinerv1.NodeFacts{PrivateIP: "10.89.2.12", Network: "10.89.2.0/24"},
			"10.89.2.12",
			[]string{"10.89.2.0/24"},
		},
		"one of its other addresses": {
			submarinerv1.NodeFacts{PrivateIP: "10.77.0.12", Network: "10.77.0.0/16"},
			"10.77.0.12",
			[]string{"10.77.0.0/16"},
		},
		"nothing": {submarinerv1.NodeFacts{}, "10.89.2.12", nil},
		"the address of another node": {
			submarinerv1.NodeFacts{PrivateIP: "10.89.1.11", Network: "10.89.1.0/24"},
			"10.89.2.12",
			nil,
		},
		"the address of an attacker": {
			submarinerv1.NodeFacts{PrivateIP: "203.0.113.66", Network: "203.0.113.0/24"},
			"10.89.2.12",
			nil,
		},
		"no address": {
			submarinerv1.NodeFacts{PrivateIP: "fd00::1", Network: "fd00::/64"},
			"10.89.2.12",
			nil,
		},
		"everything": {
			submarinerv1.NodeFacts{PrivateIP: "10.89.2.12", Network: "0.0.0.0/0"},
			"10.89.2.12",
			nil,
		},
		"the networks of other cluster": {
			submarinerv1.NodeFacts{PrivateIP: "10.89.2.12", Network: "10.0.0.0/8"},
			"10.89.2.12",
			nil,
		},
		"a network elsewhere": {
			submarinerv1.NodeFacts{PrivateIP: "10.89.2.12", Network: "10.112.0.0/16"},
			"10.89.2.12",
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ra := &submarinerv1.RouteAgent{
				ObjectMeta: metav1.ObjectMeta{Name: "worker"},
				Status:     submarinerv1.RouteAgentStatus{Node: &tc.reported},
			}
			s := role.NewSnapshot[role.Object]("gw", sub, node("gw", "10.89.1.11"),
				node("worker", "10.89.2.12", "10.77.0.12"), ra)
			// a flat network, which the node itself has seen
			s.Facts = submarinerv1.NodeFacts{PrivateIP: "10.89.1.11", MTU: 1500, Network: "10.0.0.0/8"}
			m, err := members.Read(s)
			require.NoError(t, err)
			require.Len(t, m.Nodes, 2)
			require.Equal(t, tc.ip, m.Nodes[1].IP.String())
			var needed []string
			for _, p := range m.Own.Needed {
				needed = append(needed, p.String())
			}
			require.Equal(t, append([]string{"10.0.0.0/8"}, tc.needed...), needed)
			require.ElementsMatch(t, []string{"10.89.1.11", "10.89.2.12", "10.77.0.12"}, texts(m.Own.Nodes))
		})
	}
}

// A taken-over node cannot prevent plans by writing the address of another node, or one that
// differs from it in the first octet, into its Node.status, nor take the place of a gateway or of a
// node that exists for longer.
func TestHostileNodeAddress(t *testing.T) {
	sub := &v1alpha1.Submariner{ObjectMeta: metav1.ObjectMeta{Name: "submariner"}}
	sub.Spec.ClusterID = "east"
	sub.Spec.ClusterCIDR = "10.111.0.0/16"
	sub.Spec.ServiceCIDR = "10.101.0.0/16"
	sub.Spec.MultiActiveGatewayEnabled = true
	node := func(name, ip string, age int) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(int64(1000-age), 0)}}
		n.Spec.PodCIDR = fmt.Sprintf("10.111.%d.0/24", age)
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
		return n
	}
	for _, test := range []struct {
		address string
		age     int
		left    []string // nodes
		doubled string
	}{
		{"10.89.1.14", 9, []string{"gw", "gw2", "taken-over", "worker"}, ""},
		{"99.89.1.11", 9, []string{"gw", "gw2", "worker"}, "of its address 99.89.1.11 are those of node gw"},
		{"99.89.1.12", 9, []string{"gw", "gw2", "worker"}, "of its address 99.89.1.12 are those of node gw2"},
		{"10.89.1.12", 9, []string{"gw", "gw2", "worker"}, "of its address 10.89.1.12 are those of node gw2"},
		{
			"99.89.1.13",
			1,
			[]string{"gw", "gw2", "worker"},
			"node taken-over gets no packets of other clusters: the last three octets of its address 99.89.1.13 are those of node worker",
		},
		{
			"99.89.1.13",
			9,
			[]string{"gw", "gw2", "taken-over"},
			"of its address 10.89.1.13 are those of node taken-over",
		},
	} {
		t.Run(fmt.Sprint(test.address, " ", test.age), func(t *testing.T) {
			objs := []role.Object{
				sub,
				node("gw", "10.89.1.11", 2),
				node("gw2", "10.89.1.12", 3),
				node("worker", "10.89.1.13", 4),
				node("taken-over", test.address, test.age),
			}
			for i, o := range objs[1:] {
				ra := &submarinerv1.RouteAgent{ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}}
				ra.Status.Node = &submarinerv1.NodeFacts{
					PodIP: strings.Replace(o.(*corev1.Node).Spec.PodCIDR, "0/24", "1", 1),
				}
				if objs = append(objs, ra); i < 2 {
					e := &submarinerv1.Endpoint{ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}}
					e.Spec.ClusterID = "east"
					e.Spec.Hostname = o.GetName()
					objs = append(objs, e)
				}
			}
			s := role.NewSnapshot("gw", objs...)
			s.Facts = submarinerv1.NodeFacts{PrivateIP: "10.89.1.11", MTU: 1500, PodIP: "10.111.2.1"}
			p, err := PlanRoute(s)
			require.NoError(t, err)
			var left []string
			for _, n := range p.Mesh.Membership.Nodes {
				left = append(left, n.Name)
			}
			slices.Sort(left)
			require.Equal(t, test.left, left)
			require.Contains(t, strings.Join(p.Mesh.Membership.Collisions, "\n"), test.doubled)
			found := slices.IndexFunc(report.Conditions(nil, p, role.Outcome{}),
				func(c metav1.Condition) bool { return c.Type == role.ConditionNodesDistinct })
			require.Equal(t, test.doubled != "", found >= 0)
		})
	}
}

func texts(ips []netip.Addr) (out []string) {
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return out
}

// The kernel of a node and its Node object must agree about its address.
func TestNodeWithoutItsInternalIP(t *testing.T) {
	sub := &v1alpha1.Submariner{ObjectMeta: metav1.ObjectMeta{Name: "submariner"}}
	sub.Spec.ClusterID = "east"
	sub.Spec.ClusterCIDR = "10.111.0.0/16"
	sub.Spec.ServiceCIDR = "10.101.0.0/16"
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	s := role.NewSnapshot[role.Object]("n1", sub, n)
	s.Facts = submarinerv1.NodeFacts{PrivateIP: "192.0.2.7", MTU: 1500}
	_, err := members.Read(s)
	require.EqualError(t, err,
		"Node n1 has no IPv4 address of type InternalIP in its status: start its kubelet with --node-ip, or its cloud controller")
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "203.0.113.1"}}
	_, err = members.Read(s)
	require.EqualError(t, err,
		"no device of node n1 has the address 203.0.113.1, which is its InternalIP in Node.status: start its kubelet with a --node-ip that a device has")
}
