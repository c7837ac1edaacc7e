package exchange

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/trust"
)

func TestFairShare(t *testing.T) {
	require.Equal(t, math.MaxInt, fairShare(nil, 10))
	require.Equal(t, math.MaxInt, fairShare([]int{5, 5}, 10))
	require.Equal(t, 5, fairShare([]int{5, 6}, 10))
	require.Equal(t, 4, fairShare([]int{9, 1, 9, 1}, 10))
	require.Equal(t, 2, fairShare([]int{3, 3, 3, 3, 3}, 10))
	require.Equal(t, 8, fairShare([]int{1, 1, 1000}, 10))
}

// shelf is what a cluster reads of some clustersets.
type shelf struct {
	t     *testing.T
	kinds Table
	fitting
	sets  []*followed
	local []client.Object
	now   int64
}

// policyOf returns a policy of a cluster, as it is on the broker, with about n bytes of fields.
func (s *shelf) policyOf(id string, slot, n int) client.Object {
	s.t.Helper()
	s.now++
	p := &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			Name:            fmt.Sprintf("p%d", slot),
			Namespace:       "hub",
			UID:             "u",
			ResourceVersion: fmt.Sprint(s.now),
			Labels:          map[string]string{submarinerv1.ClusterIDLabel: id},
		},
		ConnectionPolicies: []v1alpha1.CablePolicySpec{
			{
				CableDriver:  "ipsec",
				CableOptions: &v1alpha1.CableOptions{Data: map[string]string{"x": strings.Repeat("x", n)}},
			},
		},
	}
	require.NoError(s.t, s.kinds.Sign(p, keyOf(id), "", s.now))
	setSlot(p, SlotName(id, slot))
	s.kinds.ToBroker(p)
	return p
}

// pass is what a pass plans, and carries out here. It returns the names of the copies.
func (s *shelf) pass() (copies []string, refused []Refusal) {
	s.t.Helper()
	snap := Snapshot{ClusterID: "hub", Namespace: "here", Now: time.UnixMilli(2000), Local: s.local}
	var sets []string
	for _, f := range s.sets {
		there := SetSnapshot{Set: f.set}
		there.Known, _ = f.add(&there.Objects)
		for _, id := range []string{"west", "south"} {
			c := memberCluster(s.t, id)
			c.Annotations[submarinerv1.GrantAnnotation] = grantIn(s.t, id, "a", "b", "c")[f.set.Name]
			there.Objects = append(there.Objects, c)
		}
		snap.Sets = append(snap.Sets, there)
		sets = append(sets, f.set.Name)
	}
	s.fit(s.sets, &snap, s.kinds)
	grant, err := keyOf(
		"admin").SignGrant(trust.Grant{
		Cluster:  "hub",
		Key:      keyOf("hub").Public(),
		Gateways: 16,
		Sets:     sets,
		Serial:   1000,
	})
	require.NoError(s.t, err)
	snap.Identity = Identity{Key: keyOf("hub"), Grant: grant, Administrator: keyOf("admin").Public()}
	writes, refused, _ := Plan(s.kinds, snap)
	for _, w := range writes {
		if w.Set != "" {
			continue
		}
		s.local = slices.DeleteFunc(s.local, func(o client.Object) bool {
			return w.kind.is(o) && o.GetName() == w.Object.GetName()
		})
		if w.Op != Delete {
			s.local = append(s.local, w.Object)
		}
	}
	for _, o := range s.local {
		if _, ok := o.(*v1alpha1.CablePolicies); ok {
			copies = append(copies, o.GetName())
		}
	}
	slices.Sort(copies)
	return copies, refused
}

var published = map[string]map[string]string{}

// grantIn returns what a cluster publishes of its grant, by clusterset.
func grantIn(t testing.TB, id string, sets ...string) map[string]string {
	t.Helper()
	if published[id] == nil {
		token, err := keyOf("admin").SignGrant(trust.Grant{
			Cluster:  id,
			Key:      keyOf(id).Public(),
			Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			Gateways: 16,
			Sets:     sets,
			Serial:   1000,
		})
		require.NoError(t, err)
		published[id], err = trust.Published(token)
		require.NoError(t, err)
	}
	return published[id]
}

// A member of many clustersets stores as much as a member can in each of them. The others keep as
// much of all clustersets as they would of one full clusterset, and nothing of the other members is
// lost.
func TestHostileMemberOfManyClusterSets(t *testing.T) {
	s := &shelf{t: t, kinds: Kinds(), now: 1000}
	i := s.kinds.index(&v1alpha1.CablePolicies{})
	s.kinds[i].Quota = 4 // 160 KiB
	s.kinds[i].Free.Check = nil
	for _, name := range []string{"a", "b", "c"} {
		m := testMirror(t, &v1alpha1.CablePolicies{}, 100)
		m.kind = &s.kinds[i]
		m.known = true
		s.sets = append(s.sets,
			&followed{side: side{set: Set{Name: name, Namespace: "hub-" + name}, mirrors: []*mirror{m}}})
	}
	mirrorOf := func(set int) *mirror { return s.sets[set].mirrors[0] }
	for set := range s.sets {
		require.NoError(t, mirrorOf(set).Add(s.policyOf("west", 0, 1000)))
		require.NoError(t, mirrorOf(set).Add(s.policyOf("south", 0, 10)))
	}
	copies, refused := s.pass()
	require.Len(t, copies, 6)
	require.Empty(t, refused)

	t.Log("west writes two of 40 KiB in each")
	for set := range s.sets {
		require.NoError(t, mirrorOf(set).Update(s.policyOf("west", 0, 14000)))
		require.NoError(t, mirrorOf(set).Add(s.policyOf("west", 1, 14000)))
	}
	copies, refused = s.pass()
	require.Equal(t,
		[]string{"p0.south.a", "p0.south.b", "p0.south.c", "p0.west.a", "p0.west.b", "p1.west.a", "p1.west.b"}, copies)
	require.Len(t, refused, 2)
	require.Equal(t,
		"CablePolicies hub/p0 on the broker: cluster west has more in all its clustersets together than is copied of it",
		refused[0].String())
	for _, name := range []string{"west.0", "west.1"} {
		require.Positive(t, excess(mirrorOf(2).objects[name]), "the mirror has a stub")
		require.Zero(t, s.kinds[i].stubSize(mirrorOf(2).objects[name]))
	}
	bytes := 0
	for set := range s.sets {
		for _, o := range mirrorOf(set).objects {
			bytes += len(fmt.Sprint(o))
		}
	}
	require.Less(t, bytes, 2*s.kinds[i].mostBytes())

	t.Log("it does not come back by itself, nor by a list of the same")
	again, _ := s.pass()
	require.Equal(t, copies, again)

	t.Log("there is room again")
	var same []any
	for _, o := range []client.Object{
		s.policyOf("west", 0, 14000),
		s.policyOf("west", 1, 14000),
		s.policyOf("south", 0, 10),
	} {
		o.SetResourceVersion(mirrorOf(2).objects[o.GetName()].GetResourceVersion())
		same = append(same, o)
	}
	require.NoError(t, mirrorOf(2).Replace(slices.Clone(same), ""))
	require.Positive(t, excess(mirrorOf(2).objects["west.0"]))
	stopped := 0
	mirrorOf(2).stop = func() { stopped++ }
	require.NoError(t, mirrorOf(0).Update(s.policyOf("west", 0, 10)))
	require.NoError(t, mirrorOf(0).Update(s.policyOf("west", 1, 10)))
	s.pass()
	s.pass()
	require.Equal(t, 1, stopped, "it is read again")
	require.Equal(t, passPause, mirrorOf(2).pause())
	require.NoError(t, mirrorOf(2).Replace(same, ""))
	copies, refused = s.pass()
	require.Len(t, copies, 9)
	require.Empty(t, refused)
	require.Equal(t, recount, mirrorOf(2).pause())
}

// The annotation of stubs means nothing on what others write.
func TestHostileExcess(t *testing.T) {
	m := testMirror(t, &submarinerv1.Endpoint{}, 10)
	e := westEndpoint(t, 1, "")
	e.Annotations[excessAnnotation] = "1"
	require.NoError(t, m.Add(e))
	require.Zero(t, excess(m.objects[e.Name]))
	require.Greater(t, m.kind.weigh(m.objects[e.Name]), overhead+500)
}
