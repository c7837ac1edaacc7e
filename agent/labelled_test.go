package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
)

// The label of copies on an object of the cluster itself, which other tools would take for a
// copy, is removed; all other labels stay, and so does the label of a copy.
func TestMislabelledObjectsAreRestored(t *testing.T) {
	for _, id := range []string{"west", "east", "nobody"} {
		w := newWorld(t, roles.Gateway(), "two-clusters")
		w.run(t)
		w.run(t) // the Cluster and the Endpoint are published
		objects := []client.Object{
			get(t, w, &submarinerv1.Cluster{}, "east"),
			get(t, w, &submarinerv1.Endpoint{}, "east-submariner-cable-east-10-89-1-11"),
		}
		for _, o := range objects {
			o.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: id, "site": "edge"})
			require.NoError(t, w.Client.Update(t.Context(), o))
		}
		holds := w.holds(t, w.Role.Owner)
		w.standing.Speaker = false
		w.run(t)
		require.Contains(t, get(t, w, &submarinerv1.Cluster{}, "east").Labels, submarinerv1.ClusterIDLabel,
			"the speaker restores it")
		w.standing.Speaker = true
		w.run(t)
		w.run(t)
		for _, o := range objects {
			require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
			require.Equal(t, map[string]string{"site": "edge"}, o.GetLabels(), "%T", o)
		}
		require.Equal(t, holds, w.holds(t, w.Role.Owner))
		require.Equal(t, "west", get(t, w, &submarinerv1.Cluster{}, "west").Labels[submarinerv1.ClusterIDLabel])
	}
}
