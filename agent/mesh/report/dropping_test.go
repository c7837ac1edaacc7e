package report

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
)

// The condition about dropped packets explains each reason and names clusters. It is there while
// packets are dropped, nothing is wrong with the node, and its changes count as made by other
// clusters: whoever sends packets decides about them.
func TestPacketsDropped(t *testing.T) {
	reported := func(d role.Dropping) []metav1.Condition {
		return Conditions(nil,
			mesh.Plan{Mesh: &mesh.Mesh{
				Snapshot:   role.Snapshot{Dropping: d},
				Membership: members.Membership{Submariner: &v1alpha1.Submariner{}},
			}},
			role.Outcome{})
	}
	quiet := reported(role.Dropping{})
	busy := reported(role.Dropping{
		Reasons: []string{dataplane.DropBeside}, Clusters: []string{"north", "west"},
	})
	require.Len(t, busy, len(quiet)+1)
	c := busy[len(busy)-1]
	require.Equal(t, role.ConditionPacketsDropped, c.Type)
	require.False(t, role.Wrong(c))
	require.Equal(t, "beside-cable: "+dataplane.DropReasons[dataplane.DropBeside]+"\nfrom or to north, west", c.Message)
	own, others := gatewayChanges(submarinerv1.GatewayStatus{Conditions: quiet}, submarinerv1.GatewayStatus{
		Conditions: busy,
	})
	require.False(t, own)
	require.NotEmpty(t, others)
}
