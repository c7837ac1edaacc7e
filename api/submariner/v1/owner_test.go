package v1_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
)

func TestIsCopy(t *testing.T) {
	e := &submarinerv1.Endpoint{}
	require.False(t, submarinerv1.IsCopy(e))
	e.Labels = map[string]string{"a": "b"}
	require.False(t, submarinerv1.IsCopy(e))
	for _, id := range []string{"west", submarinerv1.BrokerID, ""} {
		e.Labels[submarinerv1.ClusterIDLabel] = id
		require.True(t, submarinerv1.IsCopy(e), "a label without a value is a label")
		owner, ok := submarinerv1.OwnerID(e)
		require.True(t, ok)
		require.Equal(t, id, owner)
	}
}
