package mesh_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/internal/kubetest"
)

// What the nodes gw and worker of the tests need, on top of what every cluster refuses.
var testNeeds = map[string][]submarinerv1.NeverRouted{
	"gw": {
		{Network: "192.168.50.0/24", Reason: "the network of device eth1"},
		{Network: "198.51.100.53/32", Reason: "a DNS server"},
		{Network: "198.51.100.1/32", Reason: "the router of a default route"},
		{Network: "203.0.113.10/32", Reason: "an API server of this cluster"},
		{Network: "203.0.113.20/32", Reason: "the API server of the broker"},
	},
	"worker": {
		{Network: "172.17.0.0/16", Reason: "the network of device docker0"},
		{Network: "198.51.100.53/32", Reason: "a DNS server"},
		{Network: "198.51.100.1/32", Reason: "the router of a default route"},
		{Network: "203.0.113.10/32", Reason: "an API server of this cluster"},
		{Network: "203.0.113.20/32", Reason: "the API server of the broker"},
	},
}

// needed are addresses of which no other cluster may decide where packets to them go.
var needed = addresses("10.111.2.7", "10.101.0.1", "10.89.1.12", "10.112.7.7", "10.89.2.11", "198.51.100.53",
	"198.51.100.1", "203.0.113.10", "203.0.113.20", "169.254.169.254")

func addresses(texts ...string) (out []netip.Addr) {
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// announce returns the Cluster and the Endpoint of a member "thief", the youngest, which is
// accepted unless change makes it invalid.
func announce(change func(*submarinerv1.EndpointSpec)) []client.Object {
	labels := map[string]string{submarinerv1.ClusterIDLabel: "thief"}
	e := &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "thief-submariner-cable-thief-10-89-3-16",
			Namespace: submarinerv1.OperatorNamespace,
			Labels:    labels,
		},
		Spec: submarinerv1.EndpointSpec{
			ClusterID:     "thief",
			CableName:     "submariner-cable-thief-10-89-3-16",
			Hostname:      "h",
			Subnets:       []string{"10.150.0.0/16"},
			PrivateIP:     "10.89.3.16",
			Backend:       "vxlan",
			BackendConfig: map[string]string{},
		},
	}
	change(&e.Spec)
	c := &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:              "thief",
			Namespace:         submarinerv1.OperatorNamespace,
			Labels:            labels,
			Annotations:       map[string]string{submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet},
			CreationTimestamp: metav1.NewTime(time.Unix(1<<32, 0)),
		},
		Spec: submarinerv1.ClusterSpec{ClusterID: "thief", ClusterCIDR: e.Spec.Subnets},
	}
	return []client.Object{c, e}
}

// besides returns the snapshot of a node of two connected clusters to which a member adds
// objects. Every cable answers.
func besides(t *testing.T, node string, more ...client.Object) role.Snapshot {
	t.Helper()
	file, err := txtar.ParseFile("../../testdata/scenarios/two-clusters.txtar")
	require.NoError(t, err)
	s, err := FromReports(node, append(kubetest.Decode(t, file), more...)...)
	require.NoError(t, err)
	s.Facts.NeverRouted = testNeeds[node]
	s.Health = answering(s)
	return s
}

// connected returns the clusters to which a plan has a cable, and the State of the node.
func connectedTo(t *testing.T, s role.Snapshot) ([]string, dataplane.State) {
	t.Helper()
	m, err := Of(s)
	require.NoError(t, err)
	var ids []string
	for _, c := range m.Cables.Wanted {
		ids = append(ids, c.Cluster)
	}
	state, err := roles.PlanNode(s)
	require.NoError(t, err)
	return ids, state
}

// A member announces what is not its own, or what would break others. Its endpoint is refused,
// on every node that it would harm; the other member stays connected.
func TestHostileAnnouncements(t *testing.T) {
	for name, change := range map[string]func(*submarinerv1.EndpointSpec){
		"all addresses":                      nets("0.0.0.0/0"),
		"half of all addresses":              nets("128.0.0.0/1"),
		"more than a /8":                     nets("64.0.0.0/3"),
		"a pod network of ours":              nets("10.111.0.0/16"),
		"a part of our pod network":          nets("10.111.2.0/24"),
		"a Service of ours":                  nets("10.101.0.1/32"),
		"a network around ours":              nets("10.96.0.0/11"),
		"our network after its own":          nets("10.150.0.0/16", "10.111.0.0/16"),
		"the network of our nodes":           nets("10.89.1.0/24"),
		"a node of ours":                     nets("10.89.1.12/32"),
		"another member's pods":              nets("10.112.0.0/16"),
		"a part of another member's network": nets("10.112.7.0/24"),
		"a network around another member's":  nets("10.112.0.0/12"),
		"another member's gateway":           nets("10.89.2.11/32"),
		"its own gateway":                    nets("10.89.3.0/24"),
		"a DNS server of ours":               nets("198.51.100.53/32"),
		"the network of a DNS server":        nets("198.51.100.0/24"),
		"our router":                         nets("198.51.100.1/32"),
		"an API server of ours":              nets("203.0.113.10/32"),
		"the broker":                         nets("203.0.113.16/28"),
		"loopback":                           nets("127.0.0.0/8"),
		"link-local addresses":               nets("169.254.169.254/32"),
		"multicast":                          nets("224.0.0.0/8"),
		"addresses of our cable devices":     nets("241.89.2.0/24"),
		"IPv6":                               nets("2001:db8::/32"),
		"IPv4 as IPv6":                       nets("::ffff:10.111.0.0/112"),
		"host bits":                          nets("10.150.0.1/16"),
		"no network":                         nets(),
		"more networks than are read":        nets(slices.Repeat([]string{"10.150.0.0/16"}, 1000)...),
		"a network of control characters":    nets("10.150.0.0/16\x1b[2J"),
		"our cluster ID":                     func(e *submarinerv1.EndpointSpec) { e.ClusterID = "east" },
		"another member's ID":                func(e *submarinerv1.EndpointSpec) { e.ClusterID = "west" },
		"another member's cable": func(e *submarinerv1.EndpointSpec) {
			e.CableName = "submariner-cable-west-10-89-2-11"
		},
		"another member's private address": func(e *submarinerv1.EndpointSpec) { e.PrivateIP = "10.89.2.11" },
		"another member's tunnel address":  func(e *submarinerv1.EndpointSpec) { e.PrivateIP = "11.89.2.11" },
		"our gateway's address":            func(e *submarinerv1.EndpointSpec) { e.PrivateIP = "10.89.1.11" },
		"our gateway's address as public":  func(e *submarinerv1.EndpointSpec) { e.PublicIP = "10.89.1.11" },
		"a pod of ours as gateway":         func(e *submarinerv1.EndpointSpec) { e.PrivateIP = "10.111.2.5" },
		"a Service of ours as gateway":     func(e *submarinerv1.EndpointSpec) { e.PublicIP = "10.101.0.5" },
		"another member's pod as gateway":  func(e *submarinerv1.EndpointSpec) { e.PrivateIP = "10.112.0.5" },
		"our pod for health checks":        func(e *submarinerv1.EndpointSpec) { e.HealthCheckIP = "10.111.1.1" },
		"its gateway inside its network":   func(e *submarinerv1.EndpointSpec) { e.PrivateIP = "10.150.0.1" },
		"a driver that nobody knows":       func(e *submarinerv1.EndpointSpec) { e.Backend = "gre" },
		"no driver": func(e *submarinerv1.EndpointSpec) {
			e.BackendConfig["cable-drivers"] = " , "
		},
		"port 0": func(e *submarinerv1.EndpointSpec) {
			e.BackendConfig["vxlan-port"] = "0"
		},
	} {
		t.Run(name, func(t *testing.T) {
			objs := announce(change)
			for _, node := range []string{"gw", "worker"} {
				s := besides(t, node, objs...)
				ids, state := connectedTo(t, s)
				require.Equal(t, []string{"west"}, ids, "node %s", node)
				without, plain := connectedTo(t, besides(t, node))
				require.Equal(t, []string{"west"}, without)
				for _, ip := range needed {
					require.Equal(t, fate(plain, "", ip), fate(state, "", ip), "node %s, packets to %s", node, ip)
				}
			}
		})
	}
	ids, _ := connectedTo(t, besides(t, "gw", announce(func(*submarinerv1.EndpointSpec) {})...))
	require.Equal(t, []string{"thief", "west"}, ids, "a member that announces nothing wrong is connected")
}

func nets(subnets ...string) func(*submarinerv1.EndpointSpec) {
	return func(e *submarinerv1.EndpointSpec) { e.Subnets = append([]string{}, subnets...) }
}

// What one node needs decides on that node alone: the endpoint has a route on the other nodes.
// Nothing that the node needs is dropped, and no packet to the rest of the announced network takes
// the default route.
func TestNeedsAreOfOneNode(t *testing.T) {
	objs := announce(nets("172.16.0.0/12"))
	ids, _ := connectedTo(t, besides(t, "gw", objs...))
	require.Equal(t, []string{"thief", "west"}, ids)
	s := besides(t, "worker", objs...)
	ids, state := connectedTo(t, s)
	require.Equal(t, []string{"west"}, ids)
	require.Equal(t, "main", fate(state, "", netip.MustParseAddr("172.17.0.5")), "docker0 has it")
	require.Equal(t, "drop", fate(state, "", netip.MustParseAddr("172.16.0.5")))
	require.Equal(t, "drop", fate(state, "", netip.MustParseAddr("172.18.0.5")))

	m, err := Of(s)
	require.NoError(t, err)
	require.Len(t, m.Cables.Refused, 1)
	require.EqualError(t, m.Cables.Refused[0].Err,
		"subnet 172.16.0.0/12 overlaps 172.17.0.0/16, the network of device docker0, which node worker itself needs to reach")

	s.Facts.NeverRouted = nil // the device is gone
	ids, _ = connectedTo(t, s)
	require.Equal(t, []string{"thief", "west"}, ids)
}

func TestWithout(t *testing.T) {
	p := netip.MustParsePrefix
	for _, test := range []struct{ from, need, want string }{
		{"10.0.0.0/8", "192.0.2.0/24", "10.0.0.0/8"},
		{"10.0.0.0/8", "10.0.0.0/8", ""},
		{"10.1.0.0/16", "10.0.0.0/8", ""},
		{"10.0.0.0/30", "10.0.0.2/32", "10.0.0.0/31 10.0.0.3/32"},
		{"10.0.0.0/14", "10.2.0.0/16", "10.0.0.0/15 10.3.0.0/16"},
		{"0.0.0.0/1", "64.0.0.0/2", "0.0.0.0/2"},
	} {
		var got []string
		for _, n := range (members.Needs{{Network: p(test.need)}}).Spare([]netip.Prefix{p(test.from)}) {
			got = append(got, n.String())
		}
		require.Equal(t, test.want, strings.Join(got, " "), "%s without %s", test.from, test.need)
	}
}

// The kernel's view becomes facts: without our own networks, loopback and default routes.
func TestNeverRoute(t *testing.T) {
	s := besides(t, "gw")
	s.Facts.NeverRouted = nil
	prefix := netip.MustParsePrefix
	ip := netip.MustParseAddr
	k := dataplane.Facts{
		Networks: []dataplane.HostNetwork{
			{Dev: "eth0", Prefix: prefix("10.89.1.0/24")},
			{Dev: "cni0", Prefix: prefix("10.111.1.0/24")},
			{Dev: "veth1", Prefix: prefix("10.111.1.5/32")},
			{Dev: "kube-ipvs0", Prefix: prefix("10.101.0.1/32")},
			{Dev: "wide", Prefix: prefix("10.0.0.0/8")},
		},
		Routers: []netip.Addr{ip("10.89.1.1")}, Resolvers: []netip.Addr{ip("192.0.2.53")},
	}
	members.SetFacts(&s, k)
	members.NeverRoute(&s, prefix("127.0.0.1/32"), "loopback")
	members.NeverRoute(&s, prefix("::1/128"), "IPv6")
	members.NeverRoute(&s, prefix("192.0.2.53/32"), "a DNS server") // again
	require.Equal(t, []submarinerv1.NeverRouted{
		{Network: "10.0.0.0/8", Reason: "the network of device wide"},
		{Network: "10.89.1.0/24", Reason: "the network of device eth0"},
		{Network: "10.89.1.1/32", Reason: "the router of a default route"},
		{Network: "192.0.2.53/32", Reason: "a DNS server"},
	}, s.Facts.NeverRouted)
}

// The first cable of a pair carries nothing until it answers, whatever its driver; neither a
// restart nor another gateway of ours makes it wait again.
func TestFirstCableAnswersFirst(t *testing.T) {
	for _, encryption := range []submarinerv1.Encryption{"", submarinerv1.EncryptionRequired} {
		w := newChangingPair(t, encryption)
		w.snapshot.Memory.Using = nil
		c := w.pass(t, 0)
		require.True(t, c.Idle, "encryption %q", string(encryption))
		dst := netip.MustParseAddr("10.112.7.7")
		require.Equal(t, "drop", fate(w.plan.State, "", dst))
		require.Empty(t, w.plan.Using)
		c = w.pass(t, time.Second, role.ProbeName(westCable, c.Device))
		require.False(t, c.Idle)
		require.NotContains(t, []string{"drop", "main"}, fate(w.plan.State, "", dst))

		w.snapshot.Memory = Recall(nil, []*submarinerv1.Gateway{w.report}, w.snapshot.Now)
		require.False(t, w.pass(t, time.Second).Idle, "a restart")
		other := w.report.DeepCopy()
		other.Name = "gw-2"
		w.snapshot = as(role.NewSnapshot(w.snapshot.Node, append(all(w.snapshot), other)...), w.snapshot)
		w.snapshot.Memory.Using = nil
		require.False(t, w.pass(t, time.Second).Idle, "a failover")
	}
}

// all returns the objects of a snapshot.
func all(s role.Snapshot) (out []role.Object) {
	for _, objs := range s.Objects {
		out = append(out, objs...)
	}
	return out
}

// as returns the snapshot with everything but the objects from another.
func as(s role.Snapshot, other role.Snapshot) role.Snapshot {
	objects := s.Objects
	s = other
	s.Objects = objects
	return s
}
