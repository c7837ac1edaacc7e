package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
)

// Objects of other programs that affect ours are reported while they are there. The node holds its
// plan, and the agent is ready.
func TestConflictsAreReported(t *testing.T) {
	w := gateway(t)
	kernel, err := w.Kernel.Target(dataplane.GatewayOwner)
	require.NoError(t, err)
	fake := kernel.(*dataplanetest.Fake)
	reported := func() *metav1.Condition {
		w.run(t)
		require.NoError(t, w.Ready(nil))
		require.Equal(t, metav1.ConditionTrue, w.synced(t).Status)
		return meta.FindStatusCondition(get(t, w, &submarinerv1.Gateway{}, "gw").Status.Conditions,
			role.ConditionNoConflicts)
	}
	require.Nil(t, reported())
	fake.Found = []string{"a route of another program", "a rule of another program"}
	c := reported()
	require.NotNil(t, c)
	require.True(t, role.Wrong(*c))
	require.Equal(t, "a route of another program\na rule of another program", c.Message)
	fake.Found = nil
	require.Nil(t, reported())
}
