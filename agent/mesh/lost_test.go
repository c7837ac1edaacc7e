package mesh_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/kubetest"
)

// A gateway none of whose cables to a cluster answers hands packets over to another one, also if
// that one has not reported yet that its own cables answer: its agent may have started just before
// the API server failed. While one of its own answers, and if the other one has reported that its
// cables do not answer either, it does not.
func TestHandsOverToASiblingThatHasNotReported(t *testing.T) {
	const first, second = "submariner-cable-west-10-89-2-11", "submariner-cable-west-10-89-2-12"
	for name, test := range map[string]struct {
		down     []string // cables of this gateway
		reported submarinerv1.ConnectionStatus
		over     bool
	}{
		"all are down":                           {[]string{first, second}, submarinerv1.Connecting, true},
		"all are down, and the sibling's are up": {[]string{first, second}, submarinerv1.Connected, true},
		"all are down, and the sibling's, too":   {[]string{first, second}, submarinerv1.ConnectionError, false},
		"one is down":                            {[]string{first}, submarinerv1.Connecting, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshotOf(kubetest.Scenario(t, "../../testdata/scenarios/two-active-gateways.txtar")...)
			s.Standing = role.Standing{Active: true, Speaker: true, Gateways: []string{"gw", "gw2"}}
			s.Health = answering(s)
			p, err := PlanGateway(s)
			require.NoError(t, err)
			s.Memory.Using = p.Using // the cables have answered before
			for _, name := range test.down {
				s.Health[role.ProbeName(name, "vxlan-tunnel")] = role.Health{Status: submarinerv1.ConnectionError}
			}
			sibling := &submarinerv1.Gateway{
				ObjectMeta: metav1.ObjectMeta{Name: "gw2", Namespace: submarinerv1.OperatorNamespace},
			}
			for _, name := range []string{first, second} {
				sibling.Status.Connections = append(sibling.Status.Connections, submarinerv1.Connection{
					Status: test.reported, Endpoint: submarinerv1.EndpointSpec{CableName: name, ClusterID: "west"},
				})
			}
			p, err = PlanGateway(with(s, sibling))
			require.NoError(t, err)
			hop := cable.NexthopID(dataplane.SiblingNexthopID,
				cable.VTEPOf(dataplane.IntraVTEPNet, netip.MustParseAddr("10.89.1.13")))
			_, over := p.State[dataplane.Nexthop{ID: hop}.Key()]
			require.Equal(t, test.over, over)
		})
	}
}
