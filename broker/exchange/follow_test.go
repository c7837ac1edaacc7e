package exchange

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The clustersets with the most members are watched. Until all clustersets were read, the watched
// ones stay the same.
func TestWatchable(t *testing.T) {
	kinds := Kinds()
	set := func(name string, members int, known bool) *followed {
		f := &followed{side: side{set: Set{Name: name}}}
		for i := range kinds {
			m := &mirror{kind: &kinds[i], known: known, objects: map[string]client.Object{}}
			for n := range members {
				m.objects[fmt.Sprint(n)] = kinds[i].New()
			}
			f.mirrors = append(f.mirrors, m)
		}
		return f
	}
	a := set("a", 2, true)
	b := set("b", 2, true)
	c := set("c", 3, true)
	d := set("d", 2, true)
	names := func(most int) (names []string) {
		all := []*followed{a, b, c, d}
		watched := watchable(all, most)
		for _, f := range all {
			if watched[f] {
				names = append(names, f.set.Name)
			}
		}
		return names
	}
	require.Equal(t, []string{"a", "b", "c", "d"}, names(4))
	require.Equal(t, []string{"a", "c"}, names(2))
	require.Equal(t, []string{"c"}, names(1))

	d.mirrors[1].known = false
	require.Equal(t, []string{"a", "b"}, names(2))
	d.stop = func() {}
	require.Equal(t, []string{"a", "d"}, names(2))
}

// A clusterset that is watched no longer is polled like others: it is not new, and it has one turn,
// as two polls at a time could bring back what the later one has shown to be gone.
func TestWatchedClusterSetIsPolled(t *testing.T) {
	e := New(Config{ClusterID: "hub", NamespaceOf: func(set string) string { return set }})
	e.watched, e.broker.lists = 1, make([]rest.Interface, len(e.config.Kinds))
	set := func(name string, members int) *followed {
		f := &followed{side: e.side(Set{Name: name, Namespace: name}, e.broker, name), ended: &sync.WaitGroup{}}
		for _, m := range f.mirrors {
			m.known = true
			for n := range members {
				m.objects[fmt.Sprint(n)] = m.kind.New()
			}
		}
		return f
	}
	a := set("a", 1)
	b := set("b", 2)
	a.stop = func() {}
	b.polled = true
	e.sets = []*followed{a, b}
	e.rounds.add(b.side, false)
	over, stop := context.WithCancel(t.Context())
	stop() // watches end at once
	var watches sync.WaitGroup
	for range 2 {
		e.follow(over, []string{"a", "b"}, &watches)
		require.True(t, a.polled)
		require.Nil(t, a.stop)
		require.False(t, b.polled)
		require.NotNil(t, b.stop)
		require.Equal(t, []string{"a"}, slices.Collect(maps.Keys(e.rounds.turns)))
		require.Zero(t, e.rounds.turns["a"].hurried, "it is not new")
	}
	e.follow(over, []string{"a", "b", "c"}, &watches)
	require.NotZero(t, e.rounds.turns["c"].hurried, "it is new")
	require.Zero(t, e.rounds.turns["a"].hurried)
	watches.Wait()
}

// A clusterset in which a cluster has got its place is polled often until the cluster has published
// its Cluster, for some minutes at most: nobody announces that.
func TestPollsOftenWhileAClusterJoins(t *testing.T) {
	kinds := Table{clusters()}
	m := &mirror{kind: &kinds[0], known: true, objects: map[string]client.Object{}}
	r := newRounds()
	began := time.Unix(1000, 0)
	at := &turn{side: side{mirrors: []*mirror{m}}}
	after := func(since time.Duration) time.Duration {
		r.planNextPoll(at, false, began.Add(since))
		return at.due.Sub(began.Add(since))
	}
	require.Equal(t, period, after(0))
	m.empty = map[string]types.UID{"east": "1"}
	require.Equal(t, hurriedPeriod, after(period))
	require.Equal(t, hurriedPeriod, after(period+joining-1))
	require.Equal(t, hurriedPeriod, after(period+joining+hurry-2))
	require.Equal(t, period, after(period+joining+hurry), "it has not joined")
	require.Equal(t, period, after(time.Hour))
	m.empty = nil
	require.Equal(t, period, after(2*time.Hour))
	m.empty = map[string]types.UID{"never": "2"}
	after(3*time.Hour - time.Hour/2)
	m.empty["west"] = "3"
	require.Equal(t, hurriedPeriod, after(3*time.Hour), "another cluster")
	m.empty = nil
	require.Equal(t, hurriedPeriod, after(3*time.Hour+hurriedPeriod), "its other objects follow")
}
