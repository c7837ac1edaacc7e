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

// A cluster that still runs, and is shown its own statement that it has left, reports that with the
// remedy instead of being silent, and remembers it, as the other clusters do, until it has joined
// again.
func TestLeavingStatementOfALiveCluster(t *testing.T) {
	grant := func(serial int64) string {
		token, err := keyOf("admin").SignGrant(
			trust.Grant{
				Cluster:  "east",
				Key:      keyOf("east").Public(),
				Gateways: 16,
				Sets:     []string{"default"},
				Serial:   serial,
			},
		)
		require.NoError(t, err)
		return token
	}
	leaving, err := keyOf("east").SignLeaving(grant(1000), 5000)
	require.NoError(t, err)
	own := &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "east", Namespace: "here"},
		Spec:       submarinerv1.ClusterSpec{ClusterID: "east"},
	}
	s := Snapshot{
		ClusterID: "east", Namespace: "here", Now: time.UnixMilli(9000), Local: []client.Object{own},
		Sets: []SetSnapshot{
			{
				Set:     Set{Name: "default", Namespace: "hub"},
				Known:   true,
				Objects: []client.Object{Left("hub", "east", leaving)},
			},
		},
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
		require.Equal(
			t,
			"Cluster here/east in this cluster: the broker has a statement, signed with the key of this cluster at 1970-01-01T00:00:05Z, that this cluster has left with the grant that it has, "+
				"so the other clusters disconnect it, and it publishes nothing: join again with subctl join, which renews the grant, or finish subctl uninstall",
			refused[0].String(),
		)
		s.Memory = memory
		require.Equal(
			t,
			[]Removal{
				{
					Cluster: "east",
					Left:    true,
					Time:    5000,
					Grant:   trust.Grant{Serial: 1000, Key: keyOf("east").Public()},
				},
			},
			remembered(),
		)
	}
	s.Identity.Grant = grant(1001)
	writes, refused, memory := Plan(Kinds(), s)
	require.Empty(t, refused)
	require.Len(t, writes, 1)
	s.Memory = memory
	require.Empty(t, remembered())
}

// A cluster has left, and joined again in another clusterset. What it has left behind in the first
// one is no mistake, and is reported only while there is a copy from there: it may then hide the
// cluster.
func TestLeftBehindInAnotherClusterSet(t *testing.T) {
	grant := func(serial int64) trust.Grant {
		return trust.Grant{
			Cluster:  "east",
			Key:      keyOf("east").Public(),
			Gateways: 16,
			Sets:     []string{"default"},
			Serial:   serial,
		}
	}
	token, err := keyOf("admin").SignGrant(grant(1000))
	require.NoError(t, err)
	again, err := keyOf("admin").SignGrant(grant(2000))
	require.NoError(t, err)
	leaving, err := keyOf("east").SignLeaving(token, 1500)
	require.NoError(t, err)
	revoked, err := keyOf("admin").SignRevocation(trust.Revocation{Cluster: "east", Serial: 1500})
	require.NoError(t, err)
	west, err := keyOf("admin").SignGrant(
		trust.Grant{
			Cluster:  "west",
			Key:      keyOf("west").Public(),
			Gateways: 16,
			Sets:     []string{"default"},
			Serial:   1000,
		},
	)
	require.NoError(t, err)
	for name, left := range map[string]client.Object{
		"left":    Left("hub", "east", leaving),
		"revoked": Revoked("hub", "east", revoked),
	} {
		t.Run(name, func(t *testing.T) {
			s := Snapshot{
				ClusterID: "west", Namespace: "here", Now: time.UnixMilli(9000),
				Sets: []SetSnapshot{
					{Set: Set{Name: "default", Namespace: "hub"}, Known: true, Objects: []client.Object{left}},
				},
				Identity: Identity{Key: keyOf("west"), Grant: west, Administrator: keyOf("admin").Public()},
				Memory:   Memory{Administrator: keyOf("admin").Public()},
			}
			s.Memory.change("east", func(r *Record) { r.atLeast(grant(2000)) })
			_, refused, _ := Plan(Kinds(), s)
			require.Empty(t, refused)
			for set, want := range map[string]int{"pair": 0, "default": 1} {
				s.Local = []client.Object{&submarinerv1.Cluster{
					ObjectMeta: metav1.ObjectMeta{
						Name: "east", Namespace: "here", Labels: map[string]string{submarinerv1.ClusterIDLabel: "east"},
						Annotations: map[string]string{
							submarinerv1.ClusterSetsAnnotation: set,
							submarinerv1.GrantAnnotation:       again,
						},
					},
					Spec: submarinerv1.ClusterSpec{ClusterID: "east"},
				}}
				_, refused, _ = Plan(Kinds(), s)
				require.Len(t, refused, want, "with a copy from %s: %v", set, refused)
			}
		})
	}
}
