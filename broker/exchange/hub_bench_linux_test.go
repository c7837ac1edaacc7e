package exchange

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
	"subctl/internal/measure"
)

// hubOf returns what a hub with n spokes, each in a clusterset of its own, holds before its first
// pass.
func hubOf(b *testing.B, n int) Snapshot {
	b.Helper()
	s := Snapshot{ClusterID: "hub", Namespace: "here", Now: time.UnixMilli(2000), memos: &memos{}}
	grant := func(id string, sets ...string) string {
		token, err := keyOf("admin").SignGrant(trust.Grant{
			Cluster:  id,
			Key:      keyOf(id).Public(),
			Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			Gateways: 16,
			Sets:     sets,
			Serial:   1000,
		})
		require.NoError(b, err)
		return token
	}
	var sets []string
	for i := range n {
		id := fmt.Sprintf("spoke-%04d", i)
		set := fmt.Sprintf("set-%04d", i)
		c := memberCluster(b, id)
		e := gatewayOf(b, id, 1000)
		c.Annotations[submarinerv1.GrantAnnotation] = grant(id, set)
		s.Sets = append(s.Sets,
			SetSnapshot{Set: Set{Name: set, Namespace: "hub-" + set}, Known: true, Objects: []client.Object{c, e}})
		sets = append(sets, set)
	}
	s.Identity = Identity{Key: keyOf("hub"), Grant: grant("hub", sets...), Administrator: keyOf("admin").Public()}
	s.Local = []client.Object{
		&submarinerv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: "hub"},
			Spec:       submarinerv1.ClusterSpec{ClusterID: "hub"},
		},
	}
	own := gatewayOf(b, "hub", 1000)
	own.SetLabels(nil)
	own.SetAnnotations(nil)
	s.Local = append(s.Local, own)
	return s
}

// carryOut makes the writes of a plan in a snapshot. They only create.
func (s *Snapshot) carryOut(b *testing.B, writes []Write) {
	b.Helper()
	for _, w := range writes {
		require.Equal(b, Create, w.Op)
		if w.Set == "" {
			s.Local = append(s.Local, w.Object)
			continue
		}
		i := slices.IndexFunc(s.Sets, func(set SetSnapshot) bool { return set.Name == w.Set })
		s.Sets[i].Objects = append(s.Sets[i].Objects, w.Object)
	}
}

// BenchmarkPlanOfHub measures what a pass of a hub in 1,000 clustersets plans, when everything is
// as it should be: one pass follows every event.
func BenchmarkPlanOfHub(b *testing.B) {
	s := hubOf(b, 1000)
	kinds := Kinds()
	writes, refused, memory := Plan(kinds, s)
	require.Empty(b, refused)
	require.Len(b, writes, 4000)
	s.carryOut(b, writes)
	s.Memory = memory
	for b.Loop() {
		var cpu measure.Values
		for range measure.Times(10) {
			s.memos.turn()
			cpu = append(cpu, measure.CPU(b, func() { writes, _, s.Memory = Plan(kinds, s) }))
			require.Empty(b, writes)
		}
		measure.Record(
			b,
			measure.AtMost("hub with 1,000 two-member clustersets: plan of one pass, CPU time", cpu.Per(1e-3), 100,
				"ms"),
		)
	}
}
