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
)

// A gateway whose address is in a network that another cluster had first carries nothing while
// there is another one: the nodes of its cluster have no path to it.
func TestGatewayOutOfReach(t *testing.T) {
	before, err := Of(eastAndWest(t, "gw"))
	require.NoError(t, err)
	for ip, want := range map[string]string{"10.112.3.3": submarinerv1.Drained, "10.89.1.66": ""} {
		s := eastAndWest(t, "gw")
		s.Memory.Incumbents = before.Accepted.Incumbents
		for _, o := range (claims{addresses: []string{ip}, labelled: true}).node("new") {
			s = with(s, o)
		}
		s.Node = "new"
		s.Facts.PrivateIP = ip
		s.Facts.Network = ""
		s.Facts.PodIP = ""
		m, err := Of(s)
		require.NoError(t, err)
		require.Equal(t, want, report.Endpoint(m.Offer).Spec.BackendConfig[submarinerv1.BackendDrain])
		if s.Standing.Drain = cable.Standby; want == "" {
			want = submarinerv1.Standby
		}
		m, err = Of(s)
		require.NoError(t, err)
		require.Equal(t, want, report.Endpoint(m.Offer).Spec.BackendConfig[submarinerv1.BackendDrain])
	}
}

// A cluster does not keep a node out by what it does not announce any more, as it has other
// networks now. If none of its Endpoints is valid, even for a moment, it keeps what it had: agents
// that see that moment, and others, decide alike.
func TestFormerIncumbent(t *testing.T) {
	changed := func(change func(*submarinerv1.EndpointSpec)) func(role.Snapshot) role.Snapshot {
		return func(s role.Snapshot) role.Snapshot {
			for _, e := range role.List[*submarinerv1.Endpoint](s) {
				if e.Spec.ClusterID == "west" {
					change(&e.Spec)
				}
			}
			return s
		}
	}
	for name, test := range map[string]struct {
		after func(role.Snapshot) role.Snapshot
		keeps bool // west keeps what it had
	}{
		"gone":       {func(s role.Snapshot) role.Snapshot { return withoutEndpoint(s, "west-gw") }, true},
		"unreadable": {changed(func(e *submarinerv1.EndpointSpec) { e.PrivateIP = "?" }), true},
		"ours": {
			changed(func(e *submarinerv1.EndpointSpec) { e.Subnets = append(e.Subnets, "10.111.7.0/24") }),
			true,
		},
		"renumbered": {changed(func(e *submarinerv1.EndpointSpec) {
			e.Subnets = []string{"10.113.0.0/16"}
			e.HealthCheckIP = ""
		}), false},
	} {
		for _, agent := range agents {
			t.Run(name+" for the agent of the "+agent.name, func(t *testing.T) {
				s := eastAndWest(t, "gw")
				before, err := Of(s)
				require.NoError(t, err)
				s.Memory.Incumbents = before.Accepted.Incumbents
				for _, o := range (claims{addresses: []string{"10.112.3.3"}}).node("new") {
					s = with(s, o)
				}
				counts := func(s role.Snapshot) (Plan, bool) {
					p, err := agent.plan(s)
					require.NoError(t, err)
					return p, slices.ContainsFunc(p.Mesh.Membership.Nodes,
						func(n cable.Node) bool { return n.Name == "new" })
				}
				p, is := counts(s)
				require.False(t, is)
				require.Zero(t, p.Again)
				p, is = counts(test.after(s))
				require.Equal(t, test.keeps, !is)
				require.Equal(t, test.keeps, len(p.Mesh.Membership.Collisions) > 0)
				require.NotEmpty(t, p.Mesh.Accepted.Incumbents)
				s = with(eastAndWest(t, "gw"), role.Find[*corev1.Node](s, "new")) // west announces as before
				s.Memory.Incumbents = p.Mesh.Accepted.Incumbents
				_, is = counts(s)
				require.Equal(t, test.keeps, !is)
			})
		}
	}
}

// agents are the agents that plan what nodes hold.
var agents = []struct {
	name string
	plan func(role.Snapshot) (Plan, error)
}{{"gateway", PlanGateway}, {"route", PlanRoute}}

// What held a network away from a node is planned with again soon if it has changed.
func TestPlansAgainForIncumbents(t *testing.T) {
	for _, agent := range agents {
		s := eastAndWest(t, "gw")
		before, err := Of(s)
		require.NoError(t, err)
		for _, o := range (claims{addresses: []string{"10.112.3.3"}}).node("new") {
			s = with(s, o)
		}
		old := before.Accepted.Incumbents[0]
		old.Name = "submariner-cable-west-10-89-2-99"
		old.PrivateIP = netip.MustParseAddr("10.89.2.99")
		s.Memory.Incumbents = []cable.Gateway{old}
		p, err := agent.plan(s)
		require.NoError(t, err)
		require.Equal(t, IncumbentsAgain, p.Again)
		held := p.Mesh.Membership.Held
		s.Memory = Remember(s.Memory, p, role.Outcome{})
		s.Memory.Incumbents = []cable.Gateway{old}
		require.Same(t, held, s.Memory.PriorClaims())
		s.Memory.Incumbents = p.Mesh.Accepted.Incumbents
		require.NotSame(t, held, s.Memory.PriorClaims())
		p, err = agent.plan(s)
		require.NoError(t, err)
		require.Zero(t, p.Again)
	}
}
