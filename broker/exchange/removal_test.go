package exchange_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
)

// removedFrom returns the Cluster of a cluster after it was removed from a clusterset.
func removedFrom(by trust.Key, id, set string, serial int64) client.Object {
	token, err := by.SignRevocation(trust.Revocation{Cluster: id, Set: set, Serial: serial})
	if err != nil {
		panic(err)
	}
	return exchange.Revoked("x", "west", token)
}

// What the administrator has removed from a clusterset does not come back, whatever a broker shows.
// It has no effect in another clusterset, or for another cluster.
func TestHostileRemovals(t *testing.T) {
	admin := brokertest.Administrator()
	removed := func() client.Object { return removedFrom(admin, "west", "default", 2000) }
	published := func(set string, serial int64) *submarinerv1.Cluster {
		c := granted(at(serial, cluster("x", "west"), func(*submarinerv1.Cluster) {}),
			func(g *trust.Grant) { g.Serial = serial })
		tokens, err := trust.Published(c.Annotations[submarinerv1.GrantAnnotation])
		require.NoError(t, err)
		brokertest.Annotate(c, submarinerv1.GrantAnnotation, tokens[set])
		return c
	}
	sets := func(v *victim) []string {
		c, ok := v.local["*v1.Cluster/west"].(*submarinerv1.Cluster)
		if !ok {
			return nil
		}
		return c.Spec.ClusterSets
	}
	for name, attack := range map[string]func(t *testing.T, v *victim){
		"a former member": func(t *testing.T, v *victim) {
			c, e, p := v.west()
			require.Empty(t, v.sync(unsigned("default", c, e, p)))
			require.Len(t, v.local, 3)
			require.Empty(t, v.sync(unsigned("default", removed())))
			require.Empty(t, v.local)
			require.Contains(t, strings.Join(v.sync(unsigned("default", c, e, p)), "\n"),
				"cluster west was removed from clusterset default")
			require.Empty(t, v.local, "it is back")
			v.sync(unsigned("default", e, p))
			require.Empty(t, v.local, "without its Cluster")
			v.sync(unsigned("default", removed(), e, p))
			require.Empty(t, v.local, "beside its removal")
			again := published("default", 4000)
			require.Empty(t, v.sync(unsigned("default", again)))
			require.True(t, v.has(again), "the administrator adds it again")
			v.sync(unsigned("default", removed()))
			require.Empty(t, v.sync(unsigned("default", again)))
			require.True(t, v.has(again), "an earlier removal is as if the Cluster were not there")
		},
		"a former member, after a restart": func(t *testing.T, v *victim) {
			c, e, _ := v.west()
			v.sync(unsigned("default", removed()))
			text, err := json.Marshal(v.memory)
			require.NoError(t, err)
			v.memory = exchange.Memory{}
			require.NoError(t, json.Unmarshal(text, &v.memory))
			v.sync(unsigned("default", c, e))
			require.Empty(t, v.local)
		},
		"a damaged version of a former member": func(t *testing.T, v *victim) {
			c, e, p := v.west()
			v.sync(unsigned("default", c, e, p))
			for _, o := range []client.Object{c, e, p} {
				brokertest.Annotate(o, submarinerv1.SignatureAnnotation, "x")
			}
			v.sync(unsigned("default", removed(), e, p))
			require.Empty(t, v.local)
			v.sync(unsigned("default", c, e, p))
			require.Empty(t, v.local)
		},
		"a former member in another clusterset": func(t *testing.T, v *victim) {
			in := func(set string, serial int64) exchange.SetSnapshot { return unsigned(set, published(set, serial)) }
			first := in("default", 1000)
			lab := published("default", 1000) // the same grant
			brokertest.Annotate(lab, submarinerv1.GrantAnnotation, brokertest.Identity("west").Grant)
			v.sync(first, unsigned("lab", lab))
			require.Equal(t, []string{"default", "lab"}, sets(v))
			v.sync(unsigned("default", removed()), unsigned("lab", lab))
			require.Equal(t, []string{"lab"}, sets(v))
			v.sync(first, unsigned("lab", lab))
			require.Equal(t, []string{"lab"}, sets(v))
			v.sync(first, in("lab", 3000))
			require.Equal(t, []string{"lab"}, sets(v))
		},
		"a removal that is seen after a later grant": func(t *testing.T, v *victim) {
			c, _, _ := v.west()
			v.sync(unsigned("default", c), unsigned("lab", c.DeepCopy()))
			v.memory = exchange.Memory{
				Administrator: admin.Public(),
				Clusters:      map[string]exchange.Record{"west": {Serial: 2500, Key: brokertest.Key("west").Public()}},
			}
			require.Empty(t, v.sync(unsigned("default", removed()), unsigned("lab", published("lab", 3000))))
			require.Equal(t, []string{"lab"}, sets(v))
			v.sync(unsigned("default", c), unsigned("lab", published("lab", 3000)))
			require.Equal(t, []string{"lab"}, sets(v))
		},
		"while its newer grant is not there yet": func(t *testing.T, v *victim) {
			c, _, _ := v.west()
			v.sync(unsigned("default", c), unsigned("lab", c.DeepCopy()))
			v.sync(unsigned("default", c), unsigned("lab", published("lab", 3000)))
			require.Equal(t, []string{"default", "lab"}, sets(v), "the cluster is publishing its new grant")
			require.Empty(t,
				v.sync(unsigned("default", published("default", 3000)), unsigned("lab", published("lab", 3000))))
		},
		"the grant of another clusterset": func(t *testing.T, v *victim) {
			require.Contains(t, strings.Join(v.sync(unsigned("default", published("lab", 1000))), "\n"),
				"does not show that it is in clusterset default")
			require.Empty(t, v.local)
			bare := published("lab", 1000)
			brokertest.Annotate(bare, submarinerv1.GrantAnnotation,
				trust.Bare(bare.Annotations[submarinerv1.GrantAnnotation]))
			require.NotEmpty(t, v.sync(unsigned("default", bare)))
			require.Empty(t, v.local)
		},
		"a removal from another clusterset": func(t *testing.T, v *victim) {
			v.remains(removedFrom(admin, "west", "lab", 9000))
		},
		"a removal of another cluster": func(t *testing.T, v *victim) {
			v.remains(removedFrom(admin, "north", "default", 9000))
		},
		"a removal by the broker": func(t *testing.T, v *victim) {
			v.remains(removedFrom(brokertest.Key("broker"), "west", "default", 9000))
		},
		"a removal by a member": func(t *testing.T, v *victim) {
			v.remains(removedFrom(brokertest.Key("north"), "west", "default", 9000))
		},
		"a removal by the cluster itself": func(t *testing.T, v *victim) {
			v.remains(removedFrom(brokertest.Key("west"), "west", "default", 9000))
		},
		"a removal from the clusterset that has no name": func(t *testing.T, v *victim) {
			v.remains(removedFrom(admin, "west", "default ", 9000))
		},
	} {
		t.Run(name, func(t *testing.T) { attack(t, newVictim(t)) })
	}
}

// remains checks that a Cluster in place of the Cluster of west changes nothing.
func (v *victim) remains(forged client.Object) {
	v.t.Helper()
	c, e, p := v.west()
	v.sync(unsigned("default", c, e, p))
	require.NotEmpty(v.t, v.sync(unsigned("default", forged, e, p)))
	require.True(v.t, v.has(c) && v.has(e) && v.has(p))
	require.Empty(v.t, v.sync(unsigned("default", c, e, p)))
	require.Empty(v.t, v.memory.Clusters["west"].Removed)
}

// A cluster that was removed from a clusterset has not left: it publishes its Cluster when it is
// added again.
func TestRemovedClusterReturns(t *testing.T) {
	own := cluster("x", "east")
	own.Namespace = here
	own.Labels = nil
	own.Annotations = nil
	token, err := brokertest.Administrator().SignRevocation(
		trust.Revocation{Cluster: "east", Set: "default", Serial: 9000})
	require.NoError(t, err)
	writes, refused, memory := exchange.Plan(exchange.Kinds(), exchange.Snapshot{
		ClusterID: "east", Namespace: here, Identity: brokertest.Identity("east"), Now: now,
		Local: []client.Object{
			own,
		}, Sets: []exchange.SetSnapshot{unsigned("default", exchange.Revoked("x", "east", token))},
	})
	require.Empty(t, texts(refused))
	require.Len(t, writes, 1)
	require.Equal(t, "default", writes[0].Set)
	require.NotContains(t, writes[0].Object.GetAnnotations(), submarinerv1.RevocationAnnotation)
	require.Empty(t, memory.Clusters)
}
