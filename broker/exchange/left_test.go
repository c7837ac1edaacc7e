package exchange

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// A cluster that still runs, and is shown its own statement that it has left, reports that with the remedy instead of
// being silent, and remembers it, as the other clusters do, until it has joined again.
func TestLeavingStatementOfALiveCluster(t *testing.T) {
	grant := func(serial int64) string {
		token, err := keyOf("admin").SignGrant(trust.Grant{Cluster: "east", Key: keyOf("east").Public(), Gateways: 16, Sets: []string{"default"}, Serial: serial})
		require.NoError(t, err)
		return token
	}
	leaving, err := keyOf("east").SignLeaving(grant(1000), 5000)
	require.NoError(t, err)
	own := &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east", Namespace: "here"}, Spec: submarinerv1.ClusterSpec{ClusterID: "east"}}
	s := Snapshot{
		ClusterID: "east", Namespace: "here", Now: time.UnixMilli(9000), Local: []client.Object{own},
		Sets:     []SetSnapshot{{Set: Set{Name: "default", Namespace: "hub"}, Known: true, Objects: []client.Object{Left("hub", "east", leaving)}}},
		Identity: Identity{Key: keyOf("east"), Grant: grant(1000), Administrator: keyOf("admin").Public()},
	}
	remembered := func() []Removal {
		cm := NewMemory("here")
		text, err := json.Marshal(s.Memory)
		require.NoError(t, err)
		cm.Data = map[string]string{memoryKey: string(text)}
		removals, err := Removals(cm)
		require.NoError(t, err)
		return removals
	}
	for range 2 {
		writes, refused, memory := Plan(Kinds(), s)
		require.Empty(t, writes)
		require.Len(t, refused, 1)
		require.Equal(t, "Cluster here/east in this cluster: the broker has a statement, signed with the key of this cluster at 1970-01-01T00:00:05Z, that this cluster has left with the grant that it has, "+
			"so the other clusters disconnect it, and it publishes nothing: join again with subctl join, which renews the grant, or finish subctl uninstall", refused[0].String())
		s.Memory = memory
		require.Equal(t, []Removal{{Cluster: "east", Left: true, Time: 5000, Grant: trust.Grant{Serial: 1000, Key: keyOf("east").Public()}}}, remembered())
	}
	s.Identity.Grant = grant(1001)
	writes, refused, memory := Plan(Kinds(), s)
	require.Empty(t, refused)
	require.Len(t, writes, 1)
	s.Memory = memory
	require.Empty(t, remembered())
}
