package mesh_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/kubetest"
)

// unequal returns a node's snapshot of scenario unequal-gateways, with the implementations of IPsec
// on gateways gw and gw2.
func unequal(t *testing.T, node, ofGw, ofGw2 string) role.Snapshot {
	t.Helper()
	objs := kubetest.Scenario(t, "../../testdata/scenarios/unequal-gateways.txtar")
	for _, o := range objs {
		if ra, ok := o.(*submarinerv1.RouteAgent); ok {
			ra.Status.Node.IPsec = submarinerv1.EngineFact{
				Name:    map[string]string{"gw": ofGw, "gw2": ofGw2}[ra.Name],
				Missing: "IPsec",
			}
		}
	}
	s, err := FromReports(node, objs...)
	require.NoError(t, err)
	return s
}

var westPods = netip.MustParsePrefix("10.112.0.0/16")

// routed reports whether a table has a route to the pods of west, and its MTU.
func routed(state dataplane.State, table int) (mtu int, ok bool) {
	for _, o := range state {
		if r, is := o.(dataplane.Route); is && r.Table == table && r.Dst == westPods {
			return r.MTU, true
		}
	}
	return 0, false
}

// A gateway that cannot make the cable that policy decides on hands packets to the one that reports
// it: but not those that no gateway may send, and not to a cable that does not encrypt where it
// would have had to encrypt.
func TestGatewayWithoutTheEngine(t *testing.T) {
	report := func(s role.Snapshot) *submarinerv1.Connection {
		return &role.Find[*submarinerv1.Gateway](s, "gw2").Status.Connections[0]
	}
	endpoint := func(s role.Snapshot) *submarinerv1.Endpoint {
		all := role.List[*submarinerv1.Endpoint](s)
		return all[slices.IndexFunc(all, func(e *submarinerv1.Endpoint) bool { return e.Spec.ClusterID == "west" })]
	}
	for name, test := range map[string]struct {
		change func(*role.Snapshot)
		want   bool
	}{
		"the sibling has the cable": {func(*role.Snapshot) {}, true},
		"the sibling has another that encrypts, as it changes its cable": {func(s *role.Snapshot) {
			c := report(*s)
			yes := true
			c.Status = submarinerv1.Connecting
			c.Driver = cable.VXLANWireGuard
			c.Member = &yes
		}, true},
		"the sibling has one that does not encrypt, which it changes": {func(s *role.Snapshot) {
			c := report(*s)
			yes := true
			c.Status = submarinerv1.Connecting
			c.Driver = cable.VXLAN
			c.Member = &yes
		}, false},
		"the sibling has one that does not encrypt": {
			func(s *role.Snapshot) { report(*s).Driver = cable.VXLAN },
			false,
		},
		"the sibling's driver is not known here": {func(s *role.Snapshot) { report(*s).Driver = "gre" }, false},
		"the sibling's cable does not work": {
			func(s *role.Snapshot) { report(*s).Status = submarinerv1.ConnectionError },
			false,
		},
		"the sibling has not reported an answer": {
			func(s *role.Snapshot) { report(*s).Status = submarinerv1.Connecting },
			false,
		},
		"the sibling refuses, too": {
			func(s *role.Snapshot) { report(*s).Status = submarinerv1.ConnectionError; report(*s).Driver = "" },
			false,
		},
		"the sibling is a standby": {func(s *role.Snapshot) {
			for _, e := range role.List[*submarinerv1.Endpoint](*s) {
				if e.Spec.Hostname == "gw2" {
					e.Spec.BackendConfig[submarinerv1.BackendDrain] = submarinerv1.Standby
				}
			}
		}, true},
		"this gateway is a standby": {func(s *role.Snapshot) { s.Standing.Drain = cable.Standby }, true},
		"no clusterset in common": {func(s *role.Snapshot) {
			role.Find[*submarinerv1.Cluster](*s, "west").Annotations[submarinerv1.ClusterSetsAnnotation] = "lab"
		}, false},
		"policy has no cable for the pair, as the defaults differ": {
			func(s *role.Snapshot) { endpoint(*s).Spec.Backend = cable.VXLAN },
			false,
		},
		"encryption is required, and policy decides on vxlan": {func(s *role.Snapshot) {
			s.Submariner().Spec.CableDriver = cable.VXLAN
			endpoint(*s).Spec.Backend = cable.VXLAN
			role.Find[*submarinerv1.Cluster](*s, "west").Spec.Encryption = submarinerv1.EncryptionRequired
		}, false},
		"the policies are not complete": {func(s *role.Snapshot) {
			delete(role.Find[*submarinerv1.Cluster](*s, "east").Annotations, submarinerv1.PoliciesAnnotation)
		}, true}, // it waits, as for a cable of its own
		"its node itself needs to reach the network": {func(s *role.Snapshot) {
			s.Facts.NeverRouted = []submarinerv1.NeverRouted{
				{Network: "10.112.7.0/24", Reason: "the network of device eth1"},
			}
		}, false},
		"the endpoint is not accepted": {
			func(s *role.Snapshot) { endpoint(*s).Spec.Subnets = []string{"10.111.7.0/24", westPods.String()} },
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := unequal(t, "gw", "", "kernel")
			test.change(&s)
			p, err := PlanGateway(s)
			require.NoError(t, err)
			require.Empty(t, p.Installed)
			_, ok := routed(p.State, dataplane.CableTable)
			require.Equal(t, test.want, ok)
			for _, o := range p.State {
				if g, is := o.(dataplane.Group); is {
					require.Equal(t, []dataplane.Member{{ID: dataplane.SiblingNexthopID<<24 | 0x59010d, Weight: 1}},
						g.Members, "the sibling alone")
				}
			}
			if name == "its node itself needs to reach the network" {
				return // nothing drops its packets
			}
			require.Contains(t, p.State, dataplane.Blackhole{Table: dataplane.CableTable, Dst: westPods}.Key(),
				"packets leave by no other way")
		})
	}
}

// A gateway that has a cable to a cluster refuses another gateway of it: that is no reason for a
// detour.
func TestNoDetourBesideACable(t *testing.T) {
	s := crowd{policy: "wireguard", siblings: 1, west: two(allDrivers)}.snapshot(t)
	for _, e := range role.List[*submarinerv1.Endpoint](s) {
		if e.Spec.CableName == west2Cable {
			e.Spec.BackendConfig[submarinerv1.BackendDrivers] = cable.VXLAN
		}
	}
	m, err := Of(s)
	require.NoError(t, err)
	require.Len(t, m.Cables.Wanted, 1)
	require.Len(t, m.Cables.Refused, 1)
	require.Empty(t, m.Cables.ViaSibling)
}

// All nodes send packets to a cluster if any gateway of their own cluster can connect to it, with
// the smallest MTU of its cables. So does a gateway that cannot itself: its route agent knows the
// cluster.
func TestRoutesOfUnequalGateways(t *testing.T) {
	const kernel, userspace = "kernel", "kernel-libipsec"
	for name, test := range map[string]struct {
		gw, gw2, driver string
		mtu             int // 0: dropped
	}{
		"both can":                    {kernel, kernel, cable.VXLANIPsec, 1416},
		"the first cannot":            {"", kernel, cable.VXLANIPsec, 1416},
		"the second cannot":           {kernel, "", cable.VXLANIPsec, 1416},
		"the first only in userspace": {userspace, kernel, cable.VXLANIPsec, 1416},
		"neither can":                 {"", userspace, cable.VXLANIPsec, 0},
		// the other cluster's version does not know that another driver may stand in
		"one has a smaller MTU":           {kernel, userspace, cable.IPsec, 1400},
		"the first one has a smaller MTU": {userspace, kernel, cable.IPsec, 1400},
	} {
		t.Run(name, func(t *testing.T) {
			for _, node := range []string{"worker", "gw", "gw2"} {
				s := unequal(t, node, test.gw, test.gw2)
				s.Submariner().Spec.CableDriver = test.driver
				for _, e := range role.List[*submarinerv1.Endpoint](s) {
					e.Spec.Backend = test.driver
				}
				p, err := PlanRoute(s)
				require.NoError(t, err)
				mtu, ok := routed(p.State, dataplane.IntraTable)
				require.Equal(t, node == "worker" && test.mtu != 0, ok)
				if ok {
					require.Equal(t, test.mtu, mtu)
				}
				sources, known := p.State[dataplane.RulesetKey(dataplane.SourcesTable.Family,
					dataplane.SourcesTable.Name)].(dataplane.Ruleset)
				require.Equal(t, test.mtu != 0,
					known && slices.Contains(sources.Set("remote").Elements, westPods.String()),
					"node %s keeps the sources of packets", node)
				require.Equal(t, test.mtu == 0, slices.Contains(p.Mesh.Cables.Blackholed, westPods), "node %s", node)
				endpoints, _ := report.RemoteEndpoints(p, role.Outcome{})
				require.Len(t, endpoints, 1)
				require.Equal(t, test.mtu == 0, endpoints[0].Status == submarinerv1.ConnectionError, "%s: %v", node,
					endpoints)
			}
		})
	}
}

// An active gateway that has lost the label of gateway nodes still makes the cables that its own
// node can make.
func TestEnginesOfAGatewayThatLeaves(t *testing.T) {
	s := unequal(t, "gw2", "", "kernel")
	role.Find[*corev1.Node](s, "gw2").Labels = nil
	p, err := PlanGateway(s)
	require.NoError(t, err)
	require.Len(t, p.Installed, 1)
}

// After a mistake in the list of drivers, each gateway offers what it has offered before, although
// another one offers less.
func TestMistakeOfUnequalGateways(t *testing.T) {
	for _, last := range []string{"gw", "gw2"} {
		for node, want := range map[string]int{"gw": 0, "gw2": 1, "worker": 1} {
			s := unequal(t, node, "", "kernel")
			for _, e := range role.List[*submarinerv1.Endpoint](s) {
				if e.Spec.Hostname == last {
					e.Spec.BackendConfig[submarinerv1.BackendDrain] = submarinerv1.Standby
				}
			}
			s.Submariner().Spec.CableDriver = "gre"
			m, err := Of(s)
			require.NoError(t, err)
			require.Error(t, m.Offer.ListedErr)
			require.Equal(t, cable.VXLANIPsec, m.Offer.Default.Name())
			require.Len(t, m.Cables.Wanted, want, "node %s, standby %s: %v", node, last, m.Cables.Refused)
		}
	}
}

// Endpoints that not all gateways can connect to are in one of the lists of Cables.
func TestCablesOfEither(t *testing.T) {
	refusal := func(names ...string) (out []Refusal) {
		for _, n := range names {
			out = append(out, Refusal{Spec: submarinerv1.EndpointSpec{ClusterID: "west", CableName: n}})
		}
		return out
	}
	cables := func(names ...string) (out []cable.Cable) {
		for _, n := range names {
			out = append(out, cable.Cable{Peer: cable.Peer{Gateway: cable.Gateway{Name: n, Cluster: "west"}}})
		}
		return out
	}
	got := Cables{Wanted: cables("b", "d"), Refused: refusal("a", "e", "f", "h"), Pending: refusal("c", "g")}.
		Or(
			Cables{
				Wanted:    cables("a", "c", "d"),
				Refused:   refusal("b", "e"),
				Pending:   refusal("f", "g"),
				NotNeeded: refusal("h"),
			},
		)
	require.Equal(t, cables("a", "b", "c", "d"), got.Wanted)
	require.Equal(t, refusal("e"), got.Refused)
	require.Equal(t, refusal("g", "f"), got.Pending)
	require.Equal(t, refusal("h"), got.NotNeeded)
}
