package mesh_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// A node that loses the label of gateway nodes goes on to forward for a while what others still
// send to it. Then it is a worker, and its cables are removed.
func TestLosesItsLabel(t *testing.T) {
	s := standbys(t, "gw2")
	s.Now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	next := func() Plan {
		p, err := PlanRoute(s)
		require.NoError(t, err)
		s.Memory.Label = p.Label
		return p
	}
	asGateway := next().State
	toWorker := routeTo(t, asGateway, "10.111.2.0/24") // a gateway forwards to the pods of workers
	role.Find[*corev1.Node](s, "gw2").Labels = nil
	for range 2 {
		p := next()
		require.Contains(t, p.State, toWorker.Key())
		require.Empty(t, p.Sweep)
		require.Empty(t, p.Probes.Targets, "the others return nothing")
		require.Positive(t, p.Again)
		require.LessOrEqual(t, p.Again, members.Lingers)
		s.Now = s.Now.Add(members.Lingers - time.Millisecond)
	}
	s.Now = s.Now.Add(time.Millisecond)
	p := next()
	require.NotContains(t, p.State, toWorker.Key())
	require.Len(t, p.Sweep, 1)
	require.Zero(t, p.Again)
	require.Zero(t, p.Label)
	require.Len(t, next().Sweep, 1)

	role.Find[*corev1.Node](s, "gw2").Labels = map[string]string{submarinerv1.GatewayNodeLabel: "true"}
	s.NoCableRule = true
	p = next()
	require.Empty(t, p.Sweep)
	require.NotContains(t, p.State, toWorker.Key(),
		"its gateway agent does not run yet, and its old Endpoint is still there")
	s.NoCableRule = false
	require.Equal(t, asGateway, next().State)
}

// routeTo returns the route of a State to a network.
func routeTo(t *testing.T, s dataplane.State, network string) dataplane.Route {
	t.Helper()
	for _, o := range s {
		if r, ok := o.(dataplane.Route); ok && r.Dst == netip.MustParsePrefix(network) {
			return r
		}
	}
	require.Fail(t, "no route", "to %s", network)
	return dataplane.Route{}
}

// A gateway node that has booted sends the packets of its pods to the other gateway, and returns no
// echoes to workers, until its gateway agent has set up routes to other clusters. From then on, the
// kernel keeps them without an agent. Somebody who removes their rule interrupts them, and changes
// nothing else.
func TestBootsWithItsEndpoint(t *testing.T) {
	for _, multi := range []bool{false, true} {
		s := standbys(t, "gw2")
		s.Submariner().Spec.MultiActiveGatewayEnabled = multi
		next := func(noCableRule bool) Plan {
			s.NoCableRule = noCableRule
			p, err := PlanRoute(s)
			require.NoError(t, err)
			s.Memory.Label = p.Label
			return p
		}
		asWorker := next(true)
		require.Empty(t, asWorker.Sweep)
		require.False(t, returnsEchoes(asWorker))
		require.Equal(t, dataplane.IntraTable, routeTo(t, asWorker.State, "10.112.0.0/16").Table)
		for _, o := range asWorker.State {
			switch o := o.(type) {
			case dataplane.Nexthop:
				require.Equal(t, "240.89.1.11", o.Via.String(), "the other gateway")
			case dataplane.Blackhole:
				require.NotEqual(t, dataplane.DropTable, o.Table)
			}
		}

		asGateway := next(false)
		require.True(t, returnsEchoes(asGateway))
		routeTo(t, asGateway.State, "10.111.2.0/24")
		require.Equal(t, asGateway.State, next(true).State)
		s.Memory = role.Memory{} // another agent finds the rule
		require.Equal(t, asGateway.State, next(false).State)
	}
}

// returnsEchoes reports whether a node forwards the probes of workers back.
func returnsEchoes(p Plan) bool {
	return strings.Contains(p.State.String(),
		`iifname "vx-submariner" oifname "vx-submariner" ip daddr 240.0.0.0/8 udp dport 4801 meta mark set`)
}

// A gateway agent that has nothing to route sets the rule nevertheless, so that its node is a
// gateway: where there is no other cluster, and where all networks of the only other one are
// refused.
func TestGatewayWithNothingToRoute(t *testing.T) {
	s := standbys(t, "gw2")
	alone := as(role.NewSnapshot(
		s.Node,
		slices.DeleteFunc(all(s), func(o role.Object) bool { return submarinerv1.IsCopy(o) })...), s)
	for _, o := range role.List[*submarinerv1.Endpoint](s) {
		if submarinerv1.IsCopy(o) {
			o.Spec.Subnets = []string{"10.111.0.0/16"} // this cluster's own
		}
	}
	for _, o := range role.List[*submarinerv1.Cluster](s) {
		if submarinerv1.IsCopy(o) {
			o.Spec.ClusterCIDR = []string{"10.111.0.0/16"}
			o.Spec.ServiceCIDR = nil
		}
	}
	for name, s := range map[string]role.Snapshot{"alone": alone, "refused": s} {
		p, err := PlanGateway(s)
		require.NoError(t, err)
		require.Equal(t, "ip rule add pref 100 lookup 170171100 suppress_prefixlength 0\n", p.State.String(), name)
	}
}

// A gateway node that got its label back while its Endpoint still announces a standby is one for
// the other nodes until its agent announces that it is active.
func TestGetsItsLabelBack(t *testing.T) {
	for node, want := range map[string][]string{"worker": {"240.89.1.11"}, "gw": {"241.89.2.11"}} {
		s := standbys(t, node)
		s.Submariner().Spec.MultiActiveGatewayEnabled = true
		require.Equal(t, want, ways(t, s), node)
	}
	s := standbys(t, "worker")
	s.Submariner().Spec.MultiActiveGatewayEnabled = true
	for _, e := range role.List[*submarinerv1.Endpoint](s) {
		if e.Spec.Hostname == "gw2" {
			delete(e.Spec.BackendConfig, submarinerv1.BackendDrain)
		}
	}
	require.Equal(t, []string{"240.89.1.11", "240.89.1.13"}, ways(t, s))
}

// A node whose Endpoint is gone does not linger.
func TestLosesItsLabelAndEndpoint(t *testing.T) {
	s := standbys(t, "gw2")
	s.Memory.Label = role.Label{Seen: true}
	role.Find[*corev1.Node](s, "gw2").Labels = nil
	p, err := PlanRoute(withoutEndpoint(s, "gw2"))
	require.NoError(t, err)
	require.Zero(t, p.Label)
	require.Len(t, p.Sweep, 1)
}

// withoutEndpoint returns the snapshot without the Endpoint of a node.
func withoutEndpoint(s role.Snapshot, node string) role.Snapshot {
	return as(role.NewSnapshot(s.Node, slices.DeleteFunc(all(s), func(o role.Object) bool {
		e, ok := o.(*submarinerv1.Endpoint)
		return ok && e.Spec.Hostname == node
	})...), s)
}

// A cluster that leaves has no use for a node that lingers.
func TestLosesItsLabelAndLeaves(t *testing.T) {
	s := standbys(t, "gw2")
	s.Memory.Label = role.Label{Seen: true}
	role.Find[*corev1.Node](s, "gw2").Labels = nil
	s.Submariner().DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	p, err := PlanRoute(s)
	require.NoError(t, err)
	require.Len(t, p.Sweep, 1)
}

// A gateway whose node holds nothing any more, as it was no gateway node meanwhile, or has booted,
// sends nothing through the cables that it had until they answer: the other clusters may have
// forgotten it. Another gateway may have cables that work, or there may be none.
func TestRecallOfABareNode(t *testing.T) {
	for _, nodes := range [][]string{{"gw2"}, {"gw", "gw2"}} {
		s := standbys(t, "gw2")
		s.Now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		if len(nodes) == 1 {
			s = withoutEndpoint(s, "gw")
		}
		p, err := PlanGateway(s)
		require.NoError(t, err)
		reports := []*submarinerv1.Gateway{}
		for _, node := range nodes {
			g := &submarinerv1.Gateway{
				ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: submarinerv1.OperatorNamespace},
			}
			g.Status.Connections = report.Connections(p, role.Outcome{Now: s.Now, Health: s.Health})
			for i := range g.Status.Connections {
				g.Status.Connections[i].Status = submarinerv1.Connected
			}
			s = with(s, g)
			reports = append(reports, g)
		}
		s.Health = nil
		for _, bare := range []bool{false, true} {
			s.Memory = RecallGateway("gw2", bare, reports, s.Now)
			p, err := PlanGateway(s)
			require.NoError(t, err)
			require.NotEmpty(t, p.Installed)
			for _, c := range p.Installed {
				require.Equal(t, bare, c.Idle, "%s: gateways %v, bare: %v", c.Name, nodes, bare)
			}
		}
	}
}

// A worker accepts packets from a gateway that has lost its label until its Endpoint is gone.
func TestFormerGatewaySends(t *testing.T) {
	s := standbys(t, "worker")
	accepts := func(s role.Snapshot) bool {
		p, err := PlanRoute(s)
		require.NoError(t, err)
		return strings.Contains(p.State.String(), "udp dport 4800 ip saddr 10.89.1.13 meta mark set")
	}
	require.True(t, accepts(s))
	role.Find[*corev1.Node](s, "gw2").Labels = nil
	require.True(t, accepts(s))
	require.False(t, accepts(withoutEndpoint(s, "gw2")))
}

// A route agent that starts on a node without the label takes it for a worker at once, although its
// Endpoint is still there.
func TestWithoutLabel(t *testing.T) {
	for _, node := range []string{"gw2", "worker"} {
		s := standbys(t, node)
		role.Find[*corev1.Node](s, "gw2").Labels = nil
		p, err := PlanRoute(s)
		require.NoError(t, err)
		require.Len(t, p.Sweep, 1)
		m, err := members.Read(s)
		require.NoError(t, err)
		require.Len(t, m.Gateways, 1)
		require.Contains(t, p.State, dataplane.Group{ID: dataplane.ResilientIntraGroupID << 24}.Key(),
			"the only gateway")
	}
}
