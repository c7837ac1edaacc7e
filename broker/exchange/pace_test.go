package exchange

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

func TestPaces(t *testing.T) {
	of := func(id string, op Op, set string, n int) []Write {
		var out []Write
		for range n {
			out = append(out, Write{Op: op, Set: set, Object: &submarinerv1.Endpoint{ObjectMeta: metav1.ObjectMeta{
				Namespace: "here", Labels: map[string]string{submarinerv1.ClusterIDLabel: id},
			}}})
		}
		return out
	}
	p := newPaces(Kinds())
	now := time.Unix(0, 0)
	all := of("west", Update, "", p.burst)
	admitted, held := p.admit(all, nil, now)
	require.Equal(t, all, admitted, "all that a cluster may have, at once")
	require.Empty(t, held)

	mixed := append(of("west", Update, "", 2), of("east", Create, "", 1)...)
	mixed = append(mixed, of("west", Delete, "", 1)...)
	mixed = append(mixed, of("west", Update, "default", 1)...)
	admitted, held = p.admit(mixed, nil, now)
	require.Equal(t, mixed[2:], admitted, "another cluster, deleting, and what goes to the broker do not wait")
	require.Equal(t,
		"[Cluster here/west in this cluster: it changes its objects too often: 2 changes are copied later]",
		fmt.Sprint(held))

	brokers := of(submarinerv1.BrokerID, Create, "", p.burst+1)
	admitted, _ = p.admit(brokers, nil, now)
	require.Equal(t, brokers, admitted, "what the broker's administrator makes")
	inThree := of("north", Create, "", 3*p.burst)
	admitted, _ = p.admit(inThree, map[string]int{"north": 3}, now)
	require.Equal(t, inThree, admitted, "a cluster may have copies in every clusterset")

	now = now.Add(time.Second)
	admitted, held = p.admit(mixed[:2], nil, now)
	require.Len(t, admitted, 1)
	require.Len(t, held, 1)

	p.admit(nil, nil, now.Add(time.Hour))
	require.Empty(t, p.limiters, "what is as new is forgotten")
}

// Pages of exported Services change with pods: a member that changes them all the time delays
// neither its Endpoints nor its policies, nor do those delay pages.
func TestHostilePaceOfPages(t *testing.T) {
	kinds := Kinds()
	of := func(o client.Object, n int) []Write {
		k, err := kinds.Of(o)
		require.NoError(t, err)
		o.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: "west"})
		return slices.Repeat([]Write{{Op: Update, Object: o, kind: k}}, n)
	}
	p := newPaces(kinds)
	now := time.Unix(0, 0)
	pages := of(&v1alpha1.ExportedServices{}, 1000)
	endpoints := of(&submarinerv1.Endpoint{}, 1000)
	admitted, _ := p.admit(pages, map[string]int{"west": 50}, now)
	require.Len(t, admitted, 2*v1alpha1.MaxExportPages, "an object has one copy, however many clustersets it is in")
	admitted, _ = p.admit(endpoints[:p.burst], nil, now)
	require.Len(t, admitted, p.burst)
	admitted, held := p.admit(append(pages, endpoints...), nil, now.Add(time.Second))
	require.Len(t, admitted, ownPacePerSecond+pacePerSecond, "in a second")
	require.Len(t, held, 1)
	p.admit(nil, nil, now.Add(time.Hour))
	require.Empty(t, p.limiters)
}

// A member that shares one clusterset with a hub of 1,000 changes no more there than in any other
// cluster: what is written is in the etcd of the hub until it is compacted.
func TestHostilePaceInAHub(t *testing.T) {
	kinds := Kinds()
	s := Snapshot{ClusterID: "hub"}
	for i := range 1000 {
		set := SetSnapshot{Set: Set{Name: fmt.Sprint("set-", i)}, Known: true, Objects: []client.Object{
			&submarinerv1.Cluster{
				ObjectMeta: metav1.ObjectMeta{Name: "hub"},
			}, &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "other-hub"}},
		}}
		if i == 0 {
			set.Objects = append(set.Objects, &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "spoke"}},
				&submarinerv1.Endpoint{ObjectMeta: metav1.ObjectMeta{Name: "spoke"}})
		}
		s.Sets = append(s.Sets, set)
	}
	p := newPaces(kinds)
	now := time.Unix(0, 0)
	for id, most := range map[string]int{"spoke": p.burst, "other-hub": 100 * p.burst} {
		object := &submarinerv1.Endpoint{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{submarinerv1.ClusterIDLabel: id}},
		}
		admitted, _ := p.admit(slices.Repeat([]Write{{Op: Update, Object: object}}, 1000*p.burst), s.shared(kinds), now)
		require.Len(t, admitted, most, id)
	}
}

// A pass makes some writes to the broker, first those to clustersets in which something appears or
// disappears, and all to this cluster.
func TestAtATime(t *testing.T) {
	of := func(op Op, set string, n int) []Write {
		return slices.Repeat([]Write{{Op: op, Set: set, Object: &submarinerv1.Cluster{}}}, n)
	}
	all := append(of(Create, "", 500), of(Update, "a", mostOthers)...)
	now, more := atATime(all, false)
	require.Equal(t, all, now)
	require.False(t, more)

	now, more = atATime(append(all, of(Update, "b", 1)...), false)
	require.Equal(t, all, now)
	require.True(t, more)

	now, more = atATime(append(all, of(Delete, "b", 1)...), false)
	require.Equal(t, slices.Concat(all[:500+fewOthers], of(Delete, "b", 1)), now)
	require.True(t, more)

	now, _ = atATime(slices.Concat(of(Create, "b", 2), of(Update, "b", mostUrgent)), false)
	require.Len(t, now, mostUrgent, "all of a clusterset belongs together")
	now, _ = atATime(all, true)
	require.Len(t, now, 500+fewOthers, "more may be urgent soon")
}
