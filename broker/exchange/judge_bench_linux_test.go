package exchange

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/measure"
)

// thousand returns a clusterset with 1,000 clusters of one gateway each, as a mirror has it.
func thousand(b *testing.B) SetSnapshot {
	b.Helper()
	set := SetSnapshot{Set: Set{Name: "default", Namespace: "hub"}, Known: true}
	for i := range 1000 {
		id := fmt.Sprintf("c%d", i)
		set.Objects = append(set.Objects, memberCluster(b, id), gatewayOf(b, id, 1000))
	}
	return set
}

func gatewayOf(b *testing.B, id string, sequence int64) client.Object {
	b.Helper()
	cable := "submariner-cable-" + id + "-192-0-2-1"
	e := &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{
			Name:      id + "-" + cable,
			Namespace: "hub",
			Labels:    map[string]string{submarinerv1.ClusterIDLabel: id},
		},
		Spec: submarinerv1.EndpointSpec{
			ClusterID: id,
			CableName: cable,
			Hostname:  "gw",
			Subnets:   []string{"10.2.0.0/16"},
			PrivateIP: "192.0.2.1",
			Backend:   "vxlan",
			BackendConfig: map[string]string{
				"udp-port":  "4500",
				"publicKey": "kOIHbJ2ZFVxJPGxwHfuFCBGjcmFDLvgmKbkrVcoOxEg=",
			},
		},
	}
	require.NoError(b, Kinds().Sign(e, keyOf(id), "", sequence))
	return e
}

// judgeAll judges all objects of a clusterset, as a Plan does.
func judgeAll(b *testing.B, s Snapshot, kinds Table, byKind [][]client.Object) {
	b.Helper()
	s.memos.turn()
	j := newJudge(kinds, s, make([][]client.Object, len(kinds)), [][][]client.Object{byKind})
	for i := range kinds {
		for _, o := range byKind[i] {
			if v := j.of(&kinds[i], "default", makerOf(o), o); v.reason != "" {
				b.Fatal(o.GetName(), v.reason)
			}
		}
	}
}

// BenchmarkSignatures measures the verification of all objects of 1,000 clusters, and of one
// that has changed.
func BenchmarkSignatures(b *testing.B) {
	set := thousand(b)
	kinds := Kinds()
	for b.Loop() {
		var cold, change measure.Values
		for range measure.Times(5) {
			s := Snapshot{
				ClusterID: "east", Sets: []SetSnapshot{set}, Now: time.UnixMilli(2000), memos: &memos{},
				Identity: Identity{
					Key:           keyOf("east"),
					Grant:         grantOf(b, "east"),
					Administrator: keyOf("admin").Public(),
				},
			}
			byKind, _ := kinds.split(set.Objects)
			cold = append(cold, measure.CPU(b, func() { judgeAll(b, s, kinds, byKind) }))
			for i := range 5 {
				changed := set
				changed.Objects = append([]client.Object{}, set.Objects...)
				changed.Objects[1] = gatewayOf(b, "c0", int64(2000+i))
				s.Sets = []SetSnapshot{changed}
				byKind, _ := kinds.split(changed.Objects)
				change = append(change, measure.CPU(b, func() { judgeAll(b, s, kinds, byKind) }))
			}
		}
		measure.Record(b,
			measure.AtMost("signatures of 1,000 clusters: cold start, CPU time", cold, 1, "s"),
			measure.AtMost("signatures of 1,000 clusters: one object changes, CPU time", change.Per(1e-3), 5, "ms"))
	}
}
