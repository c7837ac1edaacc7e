package mesh_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/kubetest"
)

// standbys returns a node's snapshot of scenario standby-gateways, in which all cables answer: gw
// and west-gw are active, gw2 and west-gw2 are standbys.
func standbys(t *testing.T, node string) role.Snapshot {
	t.Helper()
	s, err := FromReports(node, kubetest.Scenario(t, "../../testdata/scenarios/standby-gateways.txtar")...)
	require.NoError(t, err)
	s.Health = answering(s)
	return s
}

// ways returns where a node sends the packets to cluster west, by the addresses of its next hops,
// sorted.
func ways(t *testing.T, s role.Snapshot) (out []string) {
	t.Helper()
	state, err := roles.PlanNode(s)
	require.NoError(t, err)
	hops := map[uint32]string{}
	for _, o := range state {
		if h, ok := o.(dataplane.Nexthop); ok {
			hops[h.ID] = h.Via.String()
		}
	}
	for _, o := range state {
		g, ok := o.(dataplane.Group)
		if !ok ||
			!slices.Contains(
				[]uint32{dataplane.CableGroupID, dataplane.ResilientCableGroupID, dataplane.ResilientIntraGroupID},
				g.ID>>24) {
			continue
		}
		for _, m := range g.Members {
			if via := hops[m.ID]; !slices.Contains(out, via) {
				out = append(out, via)
			}
		}
	}
	slices.Sort(out)
	return out
}

// While the active gateways answer, they carry the traffic. A node for which one does not answer
// uses the standby at once, without news from the API server, and returns when it answers again.
// After the election, the gateway that returns is the standby: nothing moves.
func TestStandbyTakesOver(t *testing.T) {
	const (
		own, ownStandby = "240.89.1.11", "240.89.1.13"
		west, inWest    = "241.89.2.11", "241.89.2.12"
	)
	down := role.Health{Status: submarinerv1.ConnectionError}
	for node, probe := range map[string]string{
		"gw":     role.ProbeName("submariner-cable-west-10-89-2-11", "vxlan-tunnel"),
		"gw2":    role.ProbeName("submariner-cable-west-10-89-2-11", "vxlan-tunnel"),
		"worker": role.GatewayProbe(cable.Node{Name: "gw"}),
	} {
		t.Run(node, func(t *testing.T) {
			active := west
			standby := inWest
			if node == "worker" {
				active = own
				standby = ownStandby
			}
			s := standbys(t, node)
			require.Equal(t, []string{active}, ways(t, s))
			s.Health[probe] = down
			require.Equal(t, []string{standby}, ways(t, s), "the active gateway does not answer")
			s.Health[probe] = role.Health{Status: submarinerv1.Connected}
			require.Equal(t, []string{active}, ways(t, s), "it answers again, and is still the active one")

			for _, e := range role.List[*submarinerv1.Endpoint](s) { // the election is over
				was := members.DrainOf(e)
				if e.Spec.BackendConfig = nil; was == cable.InService {
					e.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrain: submarinerv1.Standby}
				}
			}
			require.Equal(t, []string{standby}, ways(t, s), "it has returned as the standby")
		})
	}
}

// A standby is probed, and probes, as an active gateway of several does; a cluster with one gateway
// is not.
func TestStandbysAreProbed(t *testing.T) {
	for node, want := range map[string]int{"gw": 2, "gw2": 2} {
		p, err := PlanGateway(standbys(t, node))
		require.NoError(t, err)
		fast := 0
		for _, target := range p.Probes.Targets {
			if target.Fast {
				fast++
			}
		}
		require.Equal(t, want, fast, node)
	}
	p, err := PlanRoute(standbys(t, "worker"))
	require.NoError(t, err)
	for _, g := range []string{"gw", "gw2"} {
		require.True(t, p.Probes.Targets[role.GatewayProbe(cable.Node{Name: g})].Fast, g)
	}
}

// A standby that is to be drained is the last one to be used, at once: it carries nothing.
func TestDrainOfAStandby(t *testing.T) {
	s := standbys(t, "gw2")
	s.Now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	role.Find[*corev1.Node](s, "gw2").Annotations = map[string]string{submarinerv1.DrainAnnotation: "5m"}
	gw, ep := reported(t, s)
	require.Equal(t, submarinerv1.Drained, ep.Spec.BackendConfig[submarinerv1.BackendDrain])
	require.Equal(t, submarinerv1.Drained, gw.Status.Drain)
	require.Equal(t, submarinerv1.HAStatusPassive, gw.Status.HAStatus)
	m, err := members.Read(s)
	require.NoError(t, err)
	require.Equal(t, cable.Drained, m.Self.Drain, "the nodes of the cluster follow before the gateway has announced it")
}

// A driver that connects to one gateway of a cluster connects to the active one, whatever their
// names: also after a takeover, in which the former gateway held the claim. The standby gets no
// cable, which is no fault, and sends the packets of its own pods to the active gateway.
func TestDriversForOneGateway(t *testing.T) {
	byIPsec := func(s *role.Snapshot) {
		s.Facts.IPsec = submarinerv1.EngineFact{Name: "charon"}
		s.Submariner().Spec.CableDriver = cable.IPsec
		role.Find[*submarinerv1.Cluster](*s, "west").Spec.PublicKey = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
		for _, e := range role.List[*submarinerv1.Endpoint](*s) {
			e.Spec.Backend = cable.IPsec
		}
	}
	made := func(s role.Snapshot) (names []string, c Cables) {
		m, err := Of(s)
		require.NoError(t, err)
		for _, w := range m.Cables.Wanted {
			names = append(names, w.Host)
		}
		require.Empty(t, m.Cables.Refused, "%v", m.Cables.Refused)
		require.Empty(t, m.Cables.Pending)
		return names, m.Cables
	}
	s := standbys(t, "gw")
	byIPsec(&s)
	names, c := made(s)
	require.Equal(t, []string{"west-gw"}, names)
	require.Len(t, c.NotNeeded, 1)

	for _, state := range []string{submarinerv1.Draining, submarinerv1.Standby} { // the other one has been elected
		for _, e := range role.List[*submarinerv1.Endpoint](s) {
			switch e.Spec.Hostname {
			case "west-gw":
				e.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrain: state}
			case "west-gw2":
				e.Spec.BackendConfig = nil
			}
		}
		names, _ = made(s)
		require.Equal(t, []string{"west-gw2"}, names)
	}

	s = standbys(t, "gw2")
	byIPsec(&s)
	names, c = made(s)
	require.Empty(t, names)
	require.Len(t, c.NotNeeded, 2)
	require.Equal(t, []string{"240.89.1.11"}, ways(t, s))

	s.Standing = role.Standing{
		Active:   true,
		Speaker:  true,
		Gateways: []string{"gw2"},
	} // the active gateway has been lost
	report := &submarinerv1.Gateway{}
	report.Name = "gw"
	report.Status.Connections = []submarinerv1.Connection{
		{Status: submarinerv1.Connected, Endpoint: submarinerv1.EndpointSpec{ClusterID: "west"}},
	}
	m, err := Of(with(s, report))
	require.NoError(t, err)
	require.Empty(t, Direct(m).Siblings, "what it has reported does not count")
}

// A standby takes nothing away from an active gateway of another cluster, although its own cluster
// was there first.
func TestStandbysClaimLast(t *testing.T) {
	s := standbys(t, "gw")
	for _, e := range role.List[*submarinerv1.Endpoint](s) {
		if e.Spec.Hostname != "west-gw2" {
			continue
		}
		north := e.DeepCopy()
		north.Name = "north-submariner-cable-north-10-90-2-12"
		north.Labels = map[string]string{submarinerv1.ClusterIDLabel: "north"}
		north.Spec.ClusterID = "north"
		north.Spec.CableName = "submariner-cable-north-10-90-2-12"
		north.Spec.PrivateIP = "11.89.2.12"
		north.Spec.Subnets = []string{"10.113.0.0/16"}
		north.Spec.HealthCheckIP = ""
		north.Spec.BackendConfig = nil
		s = with(s, north)
	}
	m, err := Of(s)
	require.NoError(t, err)
	var accepted []string
	for _, p := range m.Accepted.Peers {
		accepted = append(accepted, p.Cluster+" "+p.Host)
	}
	require.Equal(t, []string{"west west-gw", "north west-gw2"}, accepted, "both would have the address 241.89.2.12")
}
