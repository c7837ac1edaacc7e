package mesh_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/kubetest"
)

// claims are what a node says of itself.
type claims struct {
	addresses []string // InternalIPs in its Node.status
	reported  submarinerv1.NodeFacts
	labelled  bool
}

// node returns a Node and its RouteAgent.
func (c claims) node(name string) []role.Object {
	// older than everything else
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(1, 0)}}
	for _, ip := range c.addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	if c.labelled {
		n.Labels = map[string]string{submarinerv1.GatewayNodeLabel: "true"}
	}
	return []role.Object{
		n,
		&submarinerv1.RouteAgent{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     submarinerv1.RouteAgentStatus{Node: &c.reported},
		},
	}
}

// hostileClaims are claims by which a node could have its cluster disconnected from cluster west of
// testdata/scenarios/two-clusters.txtar, with a part of what agents say about the node; "" if it
// harms nobody. refused is a part of what they say about west's Endpoint if they did not know it
// before; "" if they accept it.
var hostileClaims = map[string]struct {
	claims
	collision, refused string
}{
	"an address in its pod network": {
		claims{addresses: []string{"10.89.1.66", "10.112.3.3"}},
		"ignoring address 10.112.3.3 of node taken-over: it is inside 10.112.0.0/16, which cluster west announced first",
		"subnet 10.112.0.0/16 contains 10.112.3.3, a node of this cluster",
	},
	"no other address": {
		claims{
			addresses: []string{"10.112.3.3"},
		}, "address 10.112.3.3 of node taken-over: it is inside 10.112.0.0/16", "contains 10.112.3.3, a node of this cluster",
	},
	"the address of its gateway": {
		claims{addresses: []string{"10.89.1.66", "10.89.2.11"}},
		"node taken-over has the address 10.89.2.11 of a gateway of cluster west, which stays connected, as it had the address before",
		"private IP 10.89.2.11 belongs to a node of this cluster",
	},
	"the public address of its gateway": {
		claims{
			addresses: []string{"192.0.2.2"},
		},
		"has the address 192.0.2.2 of a gateway of cluster west",
		"public IP 192.0.2.2 belongs to a node of this cluster",
	},
	"its pod network": {
		claims{
			addresses: []string{"10.89.1.66", "10.112.3.3"},
			reported:  submarinerv1.NodeFacts{PrivateIP: "10.112.3.3", Network: "10.112.0.0/16"},
		},
		"address 10.112.3.3 of node",
		"subnet 10.112.0.0/16 overlaps 10.112.0.0/16, which the nodes of this cluster need to reach",
	},
	"the last three octets of its gateway": {claims{addresses: []string{"99.89.2.11"}}, "", ""},
	"the last three octets of its gateway, with label": {
		claims{addresses: []string{"99.89.2.11"}, labelled: true}, "", "",
	},
	"thousands of addresses": {
		claims{addresses: slices.Collect(func(yield func(string) bool) {
			for i := range 5000 {
				if !yield(fmt.Sprintf("172.30.%d.%d", i/250, 1+i%250)) {
					return
				}
			}
		})},
		"", "",
	},
}

// toWest returns what a node holds of the path to cluster west.
func toWest(t *testing.T, s role.Snapshot) (out []string) {
	t.Helper()
	state, err := roles.PlanNode(s)
	require.NoError(t, err)
	for _, o := range state {
		if r, ok := o.(dataplane.Route); ok && r.Dst == netip.MustParsePrefix("10.112.0.0/16") {
			for _, o := range state {
				if g, ok := o.(dataplane.Group); ok && g.ID == r.Group {
					out = append(out, r.String(), g.String())
				}
			}
		}
	}
	require.NotEmpty(t, out)
	return out
}

// eastAndWest returns the snapshot of a node of two connected clusters.
func eastAndWest(t *testing.T, node string) role.Snapshot {
	t.Helper()
	s := besides(t, node)
	for _, e := range role.List[*submarinerv1.Endpoint](s) {
		if e.Spec.ClusterID == "west" {
			e.Spec.PublicIP = "192.0.2.2"
		}
	}
	return s
}

// restarted returns the snapshot of an agent that has just started: what it knows of other clusters
// is in the reports of gateways.
func restarted(t *testing.T, s role.Snapshot, gateway role.Snapshot) role.Snapshot {
	t.Helper()
	using := s.Memory.Using
	s.Memory = Recall([]*submarinerv1.Gateway{reportOf(t, gateway)}, nil, s.Now)
	s.Memory.Using = using
	return s
}

// reportOf returns the report of the gateway agent with a snapshot.
func reportOf(t *testing.T, s role.Snapshot) *submarinerv1.Gateway {
	t.Helper()
	p, err := PlanGateway(s)
	require.NoError(t, err)
	for _, o := range report.Gateway(s, p, role.Outcome{Now: s.Now, Health: s.Health}).Apply {
		if g, ok := o.(*submarinerv1.Gateway); ok {
			return g
		}
	}
	t.Fatal("no report")
	return nil
}

// A node that was taken over, or a new one, does not disconnect its cluster from another cluster
// that is connected, whatever it writes into its Node.status and reports: neither on workers nor on
// gateways, and not when their agents start again.
func TestHostileNodeAgainstCluster(t *testing.T) {
	for name, c := range hostileClaims {
		for _, node := range []string{"gw", "worker"} {
			t.Run(name+" on "+node, func(t *testing.T) {
				s := eastAndWest(t, node)
				gw := eastAndWest(t, "gw")
				before, err := Of(s)
				require.NoError(t, err)
				s.Memory.Incumbents = before.Accepted.Incumbents
				gw.Memory.Incumbents = before.Accepted.Incumbents
				want := toWest(t, s)
				for _, o := range c.node("taken-over") {
					s = with(s, o)
					gw = with(gw, o)
				}
				for _, s := range []role.Snapshot{s, restarted(t, s, gw)} {
					p, err := PlanRoute(s)
					require.NoError(t, err)
					require.Equal(t, want, toWest(t, s))
					require.Empty(t, p.Mesh.Cables.Refused)
					require.Equal(t, before.Accepted.Incumbents, p.Mesh.Accepted.Incumbents)
					i := slices.IndexFunc(report.Conditions(nil, p, role.Outcome{}),
						func(c metav1.Condition) bool { return c.Type == role.ConditionNodesDistinct })
					require.Equal(t, c.collision != "", i >= 0)
					if i >= 0 {
						require.Contains(t, report.Conditions(nil, p, role.Outcome{})[i].Message, c.collision)
					}
					table := p.State[dataplane.RulesetKey("ip", dataplane.RouteOwner.Antispoof)].(dataplane.Ruleset)
					ends := table.Set("tunnel-endpoints").Elements
					require.Less(t, len(ends), 2*members.MaxAddresses)
					for _, n := range p.Mesh.Membership.Nodes {
						require.Contains(t, ends, netip.PrefixFrom(n.IP, 32).String(), "pods may send no VXLAN packets to it")
					}
				}
			})
		}
	}
}

// A gateway of another cluster that comes later than a node does not get what the node has.
func TestGatewayAfterNode(t *testing.T) {
	for name, c := range hostileClaims {
		t.Run(name, func(t *testing.T) {
			s := eastAndWest(t, "gw")
			s.Memory = role.Memory{}
			for _, o := range c.node("taken-over") {
				s = with(s, o)
			}
			m, err := Of(s)
			require.NoError(t, err)
			require.Empty(t, slices.Concat(m.Membership.Collisions, m.Accepted.Collisions))
			if c.refused == "" {
				require.Empty(t, m.Cables.Refused)
				return
			}
			require.Empty(t, m.Accepted.Peers)
			require.ErrorContains(t, m.Cables.Refused[0].Err, c.refused)
		})
	}
}

// What a node has itself is safe: the node refuses a gateway that announces it, even one that all
// other nodes stay connected to.
func TestHostileIncumbentOfANode(t *testing.T) {
	before, err := Of(eastAndWest(t, "worker"))
	require.NoError(t, err)
	for ip, want := range map[string]string{
		"10.112.3.3": "subnet 10.112.0.0/16 contains 10.112.3.3, a node of this cluster",
		"10.89.2.11": "private IP 10.89.2.11 belongs to a node of this cluster",
	} {
		s := eastAndWest(t, "worker")
		s.Memory.Incumbents = before.Accepted.Incumbents
		for _, o := range (claims{addresses: []string{ip}}).node("new") {
			s = with(s, o)
		}
		s.Node = "new"
		s.Facts.PrivateIP = ip
		s.Facts.Network = ""
		s.Facts.PodIP = ""
		m, err := Of(s)
		require.NoError(t, err)
		require.Empty(t, m.Accepted.Peers)
		require.ErrorContains(t, m.Cables.Refused[0].Err, want)
		require.Equal(t, before.Accepted.Incumbents, m.Accepted.Incumbents,
			"nobody else gets what other nodes send to west")
	}
}

// A node does not disconnect its cluster by a network that it reports around its own address and
// the pods of another cluster.
func TestHostileNodeNetwork(t *testing.T) {
	s := besides(t, "gw")
	for _, e := range role.List[*submarinerv1.Endpoint](s) {
		if e.Spec.ClusterID == "west" {
			e.Spec.Subnets = []string{"10.112.0.0/17"}
			e.Spec.HealthCheckIP = ""
		}
	}
	before, err := Of(s)
	require.NoError(t, err)
	require.Len(t, before.Accepted.Peers, 1)
	for _, o := range (claims{
		addresses: []string{"10.112.200.1"},
		reported:  submarinerv1.NodeFacts{PrivateIP: "10.112.200.1", Network: "10.112.0.0/16"},
	}).node("taken-over") {
		s = with(s, o)
	}
	s.Memory.Incumbents = nil
	m, err := Of(s)
	require.NoError(t, err)
	require.ErrorContains(t, m.Cables.Refused[0].Err,
		"subnet 10.112.0.0/17 overlaps 10.112.0.0/16, which the nodes of this cluster need to reach")
	s.Memory.Incumbents = before.Accepted.Incumbents
	m, err = Of(s)
	require.NoError(t, err)
	require.Equal(t, before.Accepted.Incumbents, m.Accepted.Incumbents)
	require.Equal(
		t,
		[]string{
			"node taken-over does not keep its network 10.112.0.0/16 from cluster west, which had 10.112.0.0/17 before",
		},
		m.Membership.Collisions,
	)
}

// A gateway node that announces the octets of another cluster's gateway, perhaps as it is of an
// older version, does not disconnect the gateways that are connected to it. As long as it has other
// cables, which need its octets, it has no cable to it, and hands over to them the packets for
// which it has no other cable.
func TestGatewayWithOctetsOfAnother(t *testing.T) {
	objs := func(gw2 string) (out []role.Object) {
		for _, o := range kubetest.Scenario(t, "../../testdata/scenarios/two-active-gateways.txtar") {
			switch o := o.(type) {
			case *corev1.Node:
				if o.Name == "gw2" {
					o.Status.Addresses[0].Address = gw2
				}
			case *submarinerv1.RouteAgent:
				if o.Name == "gw2" {
					o.Status.Node.PrivateIP = gw2
				}
			case *submarinerv1.Endpoint:
				if o.Spec.Hostname == "gw2" {
					o.Spec.PrivateIP = gw2
				}
				if o.Spec.Hostname == "west-gw2" {
					continue // west has one gateway
				}
			}
			out = append(out, o)
		}
		return out
	}
	at := func(node, gw2 string, held []cable.Gateway, more ...role.Object) role.Snapshot {
		s, err := FromReports(node, append(objs(gw2), more...)...)
		require.NoError(t, err)
		s.Now = time.Unix(1e9, 0)
		s.Memory.Incumbents = held
		s.Health = answering(s)
		return s
	}
	first, err := Of(at("gw", "10.89.1.13", nil))
	require.NoError(t, err)
	held := first.Accepted.Incumbents
	require.Len(t, held, 1)
	const gw2, own = "99.89.2.11", "address 241.89.2.11 between the gateways is that of node gw2 of this cluster"
	require.Equal(t, toWest(t, at("gw", "10.89.1.13", held)), toWest(t, at("gw", gw2, held)))
	for _, node := range []string{"gw", "worker"} {
		ids, _ := connectedTo(t, at(node, gw2, held))
		require.Equal(t, []string{"west"}, ids)
	}
	report := reportOf(t, at("gw", gw2, held))
	report.Status.Connections[0].Status = submarinerv1.Connected
	m, err := Of(at("gw", gw2, held))
	require.NoError(t, err)
	require.Equal(t, []string{"gateway node gw2: address 241.89.2.11 between the gateways is already used by cluster " +
		"west: " + cable.OneVTEP}, m.Accepted.Collisions)
	for _, incumbents := range [][]cable.Gateway{held, IncumbentsIn([]*submarinerv1.Gateway{report})} {
		s := at("gw2", gw2, incumbents, report)
		m, err := Of(s)
		require.NoError(t, err)
		require.Empty(t, m.Cables.Refused, "without a cable, it chooses others")
		s.Memory.Using = map[string]role.Using{
			"submariner-cable-north": {Cluster: "north", Driver: "vxlan", Device: "vxlan-tunnel"},
		}
		p, err := PlanGateway(s)
		require.NoError(t, err)
		require.Len(t, p.Mesh.Cables.Refused, 1)
		require.ErrorContains(t, p.Mesh.Cables.Refused[0].Err, own)
		require.Equal(t, held, p.Mesh.Accepted.Incumbents, "all agents agree about what west holds")
		require.Equal(t, held[0].Subnets, IncumbentsIn([]*submarinerv1.Gateway{reportOf(t, s)})[0].Subnets,
			"and so they do when they start again")
		require.Equal(t, []string{"240.89.1.11"}, ways(t, s))
	}
	fresh, err := Of(at("gw", gw2, nil))
	require.NoError(t, err)
	require.ErrorContains(t, fresh.Cables.Refused[0].Err, "already used by node gw2 of this cluster")
}
