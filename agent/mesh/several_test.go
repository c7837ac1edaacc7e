package mesh_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
)

// A gateway that has not reported for a while, although others have, gets packets only if no other
// gateway has a working cable.
func TestDetourOverADeadGateway(t *testing.T) {
	for name, test := range map[string]struct {
		ages       map[string]time.Duration // of the reports
		want       []string
		unanswered string // a gateway whose cable to west has had no answer yet
	}{
		"all report": {
			ages: map[string]time.Duration{"gw": 5 * time.Second, "gw2": 0, "worker": 0},
			want: []string{"gw2", "worker"},
		},
		"one is late": {
			ages: map[string]time.Duration{"gw": 0, "gw2": 14 * time.Second, "worker": 0},
			want: []string{"gw2", "worker"},
		},
		"one is dead": {
			ages: map[string]time.Duration{"gw": 0, "gw2": 15 * time.Second, "worker": 0},
			want: []string{"worker"},
		},
		"two are dead": {
			ages: map[string]time.Duration{"gw": 0, "gw2": 15 * time.Second, "worker": 50 * time.Second},
			want: []string{"gw2", "worker"},
		},
		"the API server cannot be reached": {
			ages: map[string]time.Duration{"gw": time.Hour, "gw2": time.Hour, "worker": time.Hour},
			want: []string{"gw2", "worker"},
		},
		"the other one has not reported it": {
			ages: map[string]time.Duration{"gw": 0, "gw2": 15 * time.Second},
			want: []string{"gw2"},
		},
		"one is dead, and the other one's cable is not up": {
			ages:       map[string]time.Duration{"gw": 0, "gw2": 15 * time.Second, "worker": 0},
			unanswered: "worker",
			want:       []string{"worker", "gw2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := with(crowd{
				policy:   cable.VXLAN,
				siblings: 1,
				west:     two(allDrivers),
			}.snapshot(t), ownEndpoint("worker", "10-89-1-12"))
			s.ReportTimes = role.ReportTimes{}
			role.Find[*corev1.Node](s, "worker").Labels = map[string]string{submarinerv1.GatewayNodeLabel: "true"}
			for node, age := range test.ages {
				g := &submarinerv1.Gateway{
					ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: submarinerv1.OperatorNamespace},
				}
				g.Status.Connections = []submarinerv1.Connection{
					{Status: submarinerv1.Connected, Endpoint: submarinerv1.EndpointSpec{ClusterID: "west"}},
				}
				if node == test.unanswered {
					g.Status.Connections[0].Status = submarinerv1.Connecting
				}
				s = with(s, g)
				s.ReportTimes[node] = role.ReportTime{At: s.Now.Add(-age)}
			}
			m, err := Of(s)
			require.NoError(t, err)
			m.Snapshot.Health = role.Healths{}
			for _, c := range m.Cables.Wanted { // this gateway has no way of its own
				m.Snapshot.Health[role.ProbeName(c.Name,
					c.Device())] = role.Health{Status: submarinerv1.ConnectionError}
			}
			var got []string
			for _, n := range Direct(m).Siblings["west"] {
				got = append(got, n.Name)
			}
			require.Equal(t, test.want, got)
		})
	}
}

// A gateway that does not answer pings gets packets only if no other gateway does, although its
// report is recent, or the API server does not answer. Nothing else follows from these pings. The
// route for the time in which cables have no devices stays the same: there may be thousands.
func TestDetourOverAGatewayThatDoesNotAnswer(t *testing.T) {
	const gw2, worker = "sibling/gw2", "sibling/worker"
	for name, test := range map[string]struct {
		down []string
		want []uint32 // the last octets of the addresses of the gateways that get the packets
	}{
		"both answer":      {nil, []uint32{12, 13}},
		"one is dead":      {[]string{gw2}, []uint32{12}},
		"the other one is": {[]string{worker}, []uint32{13}},
		"both are":         {[]string{gw2, worker}, []uint32{12, 13}},
	} {
		t.Run(name, func(t *testing.T) {
			s := with(crowd{
				policy:   cable.VXLAN,
				siblings: 1,
				west:     two(allDrivers),
			}.snapshot(t), ownEndpoint("worker", "10-89-1-12"))
			role.Find[*corev1.Node](s, "worker").Labels = map[string]string{submarinerv1.GatewayNodeLabel: "true"}
			for _, node := range []string{"gw2", "worker"} {
				g := &submarinerv1.Gateway{
					ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: submarinerv1.OperatorNamespace},
				}
				g.Status.Connections = []submarinerv1.Connection{
					{Status: submarinerv1.Connected, Endpoint: submarinerv1.EndpointSpec{ClusterID: "west"}},
				}
				s = with(s, g)
			}
			p, err := PlanGateway(s)
			require.NoError(t, err)
			s.Health = role.Healths{}
			for name := range p.Probes.Targets { // this gateway has no way of its own
				s.Health[name] = role.Health{Status: submarinerv1.ConnectionError}
			}
			require.Contains(t, s.Health, gw2)
			require.Contains(t, s.Health, worker)
			for _, name := range []string{gw2, worker} {
				if !slices.Contains(test.down, name) {
					s.Health[name] = role.Health{Status: submarinerv1.Connected}
				}
			}
			p, err = PlanGateway(s)
			require.NoError(t, err)
			require.Equal(t, test.want, detouring(p.State))
			for _, o := range p.State {
				if d, ok := o.(dataplane.Detour); ok {
					require.Equal(t, uint32(12), d.Hop&0xff)
				}
			}
			require.Empty(t, s.Health.Unreachable())
		})
	}
}

// detouring returns the last octets of the addresses of the gateways to which the only next hop
// group of a State leads.
func detouring(s dataplane.State) (out []uint32) {
	for _, o := range s {
		g, ok := o.(dataplane.Group)
		if !ok || len(g.Members) == 0 || g.Members[0].ID>>24 != dataplane.SiblingNexthopID {
			continue
		}
		for _, member := range g.Members {
			out = append(out, member.ID&0xff)
		}
	}
	return out
}
