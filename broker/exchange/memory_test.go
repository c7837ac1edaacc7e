package exchange

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// keyFor returns a public key; the same for the same number.
func keyFor(t *testing.T, n int) trust.PublicKey {
	t.Helper()
	seed := make([]byte, 32)
	seed[0] = byte(n)
	seed[1] = byte(n >> 8)
	key, err := trust.ParseKey(seed)
	require.NoError(t, err)
	return key.Public()
}

// clone returns a memory that shares nothing with m.
func clone(m Memory) Memory {
	m.changed = false
	m.own()
	return m
}

// A Memory that is stored and read again is the same: what is lost in the file is lost when the
// gateway restarts.
func TestMemoryIsStored(t *testing.T) {
	m := Memory{Administrator: keyFor(t, 1), Last: 7}
	m.forget("west", "Endpoint/e", 100)
	m.change("west", func(r *Record) {
		*r = Record{Serial: 1, Invited: 2, Revoked: 3, Left: 6, Key: keyFor(t, 2), Gone: r.Gone, Floor: 4}
	})
	m.change("east", func(r *Record) { r.Revoked = 5 })
	text, err := json.Marshal(m)
	require.NoError(t, err)
	var stored Memory
	require.NoError(t, json.Unmarshal(text, &stored))
	m.changed = false
	require.Equal(t, m, stored)
}

// A version of an object that is gone is refused, and so are earlier ones, however often it goes.
func TestMemoryOfWhatIsGone(t *testing.T) {
	var m Memory
	require.Zero(t, m.least("west", "Endpoint/e"))
	m.forget("west", "Endpoint/e", 100)
	m.forget("west", "Endpoint/e", 60)
	require.EqualValues(t, 100, m.least("west", "Endpoint/e"))
	require.Zero(t, m.least("west", "Endpoint/other"))
	require.Zero(t, m.least("east", "Endpoint/e"))
}

// A change does not reach the memory that a plan was made from: it may not be stored yet.
func TestMemoryIsCopiedOnWrite(t *testing.T) {
	before := Memory{Clusters: map[string]Record{"west": {Gone: map[string]int64{"p": 1}}}}
	for name, change := range map[string]func(*Memory){
		"forget": func(m *Memory) { m.forget("west", "p", 9) },
		"change": func(m *Memory) { m.change("west", func(r *Record) { r.Gone["p"] = 9 }) },
		"merge": func(m *Memory) {
			m.merge(Memory{Clusters: map[string]Record{"west": {Gone: map[string]int64{"p": 9}}}})
		},
		"trim": func(m *Memory) {
			for i := range maxGoneOfOne + 1 {
				m.forget("west", fmt.Sprint(i), 9)
			}
			m.trim()
		},
	} {
		after := before
		change(&after)
		require.Equal(t, map[string]Record{"west": {Gone: map[string]int64{"p": 1}}}, before.Clusters, name)
		require.NotEqual(t, before.Clusters, after.Clusters, name)
		require.True(t, after.changed, name)
	}
}

// Older grants are not acceptable any more. With another key, what is known of the earlier key's
// signatures is forgotten: their numbers say nothing about the new key.
func TestRecordOfGrants(t *testing.T) {
	first := keyFor(t, 1)
	second := keyFor(t, 2)
	r := Record{Serial: 10, Key: first, Gone: map[string]int64{"p": 100}, Floor: 50, Revoked: 5}
	for _, older := range []trust.Grant{{Serial: 9, Key: second}, {Serial: 999, Invited: 9, Key: second}} {
		was := r
		r.atLeast(older)
		require.Equal(t, was, r)
	}
	r.atLeast(trust.Grant{Serial: 20, Key: first})
	require.Equal(t, Record{Serial: 20, Key: first, Gone: map[string]int64{"p": 100}, Floor: 50, Revoked: 5}, r)
	r.atLeast(trust.Grant{Serial: 25, Invited: 21, Key: second})
	require.Equal(t, Record{Serial: 25, Invited: 21, Key: second, Revoked: 5}, r)

	unknown := Record{Gone: map[string]int64{"p": 100}}
	unknown.atLeast(trust.Grant{Serial: 1, Key: first})
	require.Equal(t, Record{Serial: 1, Key: first, Gone: map[string]int64{"p": 100}}, unknown,
		"the first key that is known")
}

// What either of two gateways remembers, both remember once they have merged.
func TestMemoryMerges(t *testing.T) {
	first := keyFor(t, 1)
	second := keyFor(t, 2)
	here := Memory{Last: 5, Clusters: map[string]Record{
		"both":      {Serial: 10, Key: first, Floor: 7, Gone: map[string]int64{"a": 100, "b": 20}},
		"here":      {Revoked: 30},
		"new key":   {Serial: 10, Key: first, Floor: 900, Gone: map[string]int64{"a": 999}},
		"old key":   {Serial: 20, Key: second, Floor: 3, Gone: map[string]int64{"a": 4}},
		"revoked":   {Serial: 10, Key: first, Revoked: 11},
		"dropped":   {Serial: 10, Key: first, Floor: 100},
		"remembers": {Serial: 10, Key: first, Gone: map[string]int64{"a": 50}},
		"left":      {Serial: 10, Key: first, Left: 12},
		"back":      {Serial: 10, Key: first, Left: 12},
		"removed":   {Removed: map[string]int64{"a": 5, "b": 9}},
	}}
	there := Memory{Last: 4, Clusters: map[string]Record{
		"both":      {Serial: 9, Key: first, Floor: 8, Gone: map[string]int64{"a": 90, "c": 30}},
		"there":     {Revoked: 40},
		"new key":   {Serial: 20, Key: second, Floor: 1, Gone: map[string]int64{"b": 2}},
		"old key":   {Serial: 10, Key: first, Floor: 900, Gone: map[string]int64{"a": 999}},
		"revoked":   {Serial: 10, Key: first, Revoked: 9},
		"dropped":   {Serial: 10, Key: first, Gone: map[string]int64{"a": 50}},
		"remembers": {Serial: 10, Key: first, Floor: 100},
		"left":      {Serial: 10, Key: first},
		"back":      {Serial: 11, Key: second},
		"removed":   {Removed: map[string]int64{"a": 7, "c": 1}},
	}}
	want := Memory{Last: 5, changed: true, Clusters: map[string]Record{
		"both":    {Serial: 10, Key: first, Floor: 8, Gone: map[string]int64{"a": 100, "b": 20, "c": 30}},
		"here":    {Revoked: 30},
		"there":   {Revoked: 40},
		"new key": {Serial: 20, Key: second, Floor: 1, Gone: map[string]int64{"b": 2}},
		"old key": {Serial: 20, Key: second, Floor: 3, Gone: map[string]int64{"a": 4}},
		"revoked": {Serial: 10, Key: first, Revoked: 11},
		"left":    {Serial: 10, Key: first, Left: 12},
		"back":    {Serial: 11, Key: second},
		"removed": {Removed: map[string]int64{"a": 7, "b": 9, "c": 1}},
	}}
	for i, pair := range [][2]Memory{{here, there}, {there, here}} {
		got := clone(pair[0])
		got.merge(clone(pair[1]))
		again := clone(got)
		again.merge(pair[1])
		require.Equal(t, got.Clusters, again.Clusters, "a second time")
		for _, id := range []string{"dropped", "remembers"} {
			require.EqualValues(t, 100, got.least(id, "a"),
				"%s: one has dropped what the other remembers of an earlier time", id)
			delete(got.Clusters, id)
		}
		require.Equal(t, want, got, i)
	}
	other := Memory{Administrator: first, Last: 9, Clusters: map[string]Record{"x": {Revoked: 1}}}
	got := clone(here)
	got.merge(other)
	require.Equal(t, clone(here), got, "of another administrator")
}

// Merging and trimming never make an earlier version acceptable, and the order of two gateways
// makes no difference.
func TestMemoryNeverForgetsByMerging(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	keys := []trust.PublicKey{{}, keyFor(t, 1), keyFor(t, 2)}
	some := func() (m Memory) {
		for range random.IntN(8) {
			id := fmt.Sprint("c", random.IntN(3))
			serial := random.Int64N(3)
			m.change(id, func(r *Record) {
				r.atLeast(trust.Grant{Serial: serial, Key: keys[serial]}) // a cluster has one key at a time
				r.Revoked = max(r.Revoked, random.Int64N(3))
				if random.IntN(2) == 0 {
					r.leave(trust.Leaving{Grant: r.grant(), Time: 1 + random.Int64N(3)})
				}
			})
			for range random.IntN(4) {
				m.forget(id, fmt.Sprint("p", random.IntN(3)), 1+random.Int64N(9))
			}
			m.drop(id, min(random.IntN(2), len(m.Clusters[id].Gone)))
		}
		return m
	}
	for range 5000 {
		a := some()
		b := some()
		ab := clone(a)
		ba := clone(b)
		ab.merge(clone(b))
		ba.merge(clone(a))
		for _, of := range []Memory{a, b} {
			for id, r := range of.Clusters {
				require.GreaterOrEqual(t, ab.Clusters[id].Revoked, r.Revoked)
				require.GreaterOrEqual(t, ab.Clusters[id].grant().Compare(r.grant()), 0)
				require.Equal(t, ab.Clusters[id].Left, ba.Clusters[id].Left, "%+v and %+v", a, b)
				for serial := range int64(4) {
					g := trust.Grant{Serial: serial}
					acceptable := func(r Record) bool { return r.whyVoid(id, g) == "" && g.Compare(r.grant()) >= 0 }
					require.False(t, !acceptable(r) && acceptable(ab.Clusters[id]),
						"%+v and %+v: grant %d of %s is back", a, b, serial, id)
				}
				for p := range 4 {
					place := fmt.Sprint("p", p)
					require.Equal(t, ab.least(id, place), ba.least(id, place), "%+v and %+v", a, b)
					if ab.Clusters[id].Key == r.Key {
						require.GreaterOrEqual(t, ab.least(id, place), of.least(id, place), "%+v and %+v: %s of %s", a,
							b, place, id)
					}
				}
			}
		}
	}
}

// A cluster that makes and deletes many objects uses up its own share. What is dropped of it
// becomes a floor, so that no version that was deleted is accepted again.
func TestMemoryIsTrimmed(t *testing.T) {
	var m Memory
	for i := range 10 * maxGoneOfOne {
		m.forget("greedy", fmt.Sprintf("p%d", i), int64(i+1))
	}
	m.forget("modest", "p", 1)
	m.trim()
	require.Len(t, m.Clusters["greedy"].Gone, maxGoneOfOne)
	for i := range 10 * maxGoneOfOne {
		require.GreaterOrEqual(t, m.least("greedy", fmt.Sprintf("p%d", i)), int64(i+1))
	}
	require.EqualValues(t, 9*maxGoneOfOne, m.least("greedy", "of a new name"),
		"the newest entries have no effect on new names")
	require.Equal(t, Record{Gone: map[string]int64{"p": 1}}, m.Clusters["modest"])
}

// Many clusters that use up their shares take nothing from clusters that use less.
func TestMemoryIsSharedFairly(t *testing.T) {
	var m Memory
	for c := range 2 * maxGone / maxGoneOfOne {
		for i := range maxGoneOfOne {
			m.forget(fmt.Sprintf("greedy-%d", c), fmt.Sprint(i), int64(i+1))
		}
	}
	for c := range 100 {
		m.forget(fmt.Sprintf("modest-%d", c), "p", 5)
	}
	before := clone(m)
	m.trim()
	total := 0
	for id, r := range m.Clusters {
		total += len(r.Gone)
		if strings.HasPrefix(id, "modest") {
			require.Equal(t, before.Clusters[id], r)
		}
		for place, least := range before.Clusters[id].Gone {
			require.GreaterOrEqual(t, m.least(id, place), least)
		}
	}
	require.LessOrEqual(t, total, maxGone)
	require.GreaterOrEqual(t, total, maxGone-maxGoneOfOne, "more was dropped than necessary")
}

// Of too many records, the oldest words of the administrator are dropped. The date that an invited
// cluster has chosen for its grant does not count, and what the administrator has deleted stays.
func TestMemoryOfTooManyClusters(t *testing.T) {
	var m Memory
	m.forget(submarinerv1.BrokerID, "CablePolicies/default/plain", 100)
	for i := range maxRecords {
		m.change(fmt.Sprintf("c%d", i), func(r *Record) { r.Serial = int64(1000 + i) })
	}
	m.change("c1", func(r *Record) { r.Revoked = 1_000_000 })
	m.change("c2", func(r *Record) {
		r.Serial = math.MaxInt64
		r.Invited = 1
	})
	m.change("last", func(r *Record) { r.Serial = 500_000 })
	m.trim()
	require.Len(t, m.Clusters, maxRecords)
	var dropped []string
	for i := range maxRecords {
		if _, ok := m.Clusters[fmt.Sprintf("c%d", i)]; !ok {
			dropped = append(dropped, fmt.Sprintf("c%d", i))
		}
	}
	require.Equal(t, []string{"c0", "c2"}, dropped)
	require.EqualValues(t, 100, m.least(submarinerv1.BrokerID, "CablePolicies/default/plain"))
}

// Of too many removals from clustersets, the oldest are dropped, and those that make no difference.
func TestMemoryOfTooManyRemovals(t *testing.T) {
	var m Memory
	for i := range maxRemoved {
		m.change(fmt.Sprint("c", i), func(r *Record) { r.remove("a", int64(100+i)) })
	}
	m.change("again", func(r *Record) { r.remove("a", 5); r.atLeast(trust.Grant{Serial: 6}) })
	m.trim()
	require.Empty(t, m.Clusters["again"].Removed, "no grant until then is acceptable")
	require.EqualValues(t, 100, m.Clusters["c0"].Removed["a"])
	m.change("late", func(r *Record) { r.remove("a", 5000) })
	m.trim()
	require.Empty(t, m.Clusters["c0"].Removed)
	require.EqualValues(t, 101, m.Clusters["c1"].Removed["a"])
	require.EqualValues(t, 5000, m.Clusters["late"].Removed["a"])
}

// The largest Memory fits into a ConfigMap, which holds 1 MiB. Otherwise it could not be stored,
// and a restart of the gateway would lose it.
func TestMemoryFits(t *testing.T) {
	// see trust.MaxSets
	m := Memory{Administrator: keyFor(t, 0), Last: math.MaxInt64, Grant: strings.Repeat("x", 100<<10)}
	kind := Kind{Name: "CablePolicies"}
	for c := range maxRecords {
		id := fmt.Sprintf("%063d", c)
		m.change(id, func(r *Record) {
			if *r = (Record{}); c < maxRemoved {
				r.remove(fmt.Sprintf("%041d", c), math.MaxInt64)
			}
			*r = Record{
				Removed: r.Removed,
				Serial:  math.MaxInt64,
				Invited: math.MaxInt64,
				Revoked: math.MaxInt64,
				Left:    math.MaxInt64,
				Key:     keyFor(t, c),
				Floor:   math.MaxInt64,
			}
		})
		for i := range maxGoneOfOne {
			if c*maxGoneOfOne < maxGone {
				m.forget(id, kind.placeOf(fmt.Sprintf("%063d", i), fmt.Sprintf("%0253d", c)), math.MaxInt64)
			}
		}
	}
	before := clone(m)
	m.trim()
	require.Equal(t, before.Clusters, m.Clusters, "it is as large as it can be")
	text, err := json.Marshal(m)
	require.NoError(t, err)
	require.Less(t, len(text), 1<<20)
	t.Logf("%d bytes", len(text))
}

// Each object has a place of its own, however long the names are.
func TestPlaces(t *testing.T) {
	endpoints := Kind{Name: "Endpoint"}
	policies := Kind{Name: "CablePolicies"}
	places := map[string]bool{}
	for _, place := range []string{
		endpoints.placeOf("", "a"),
		policies.placeOf("", "a"),
		policies.placeOf("default", "a"),
		policies.placeOf("prod", "a"),
		policies.placeOf("prod", "b"),
		policies.placeOf("prod", strings.Repeat("a", 63)),
		policies.placeOf("prod", strings.Repeat("a", 62)+"b"),
		endpoints.placeOf("", strings.Repeat("a", 253)),
	} {
		require.LessOrEqual(t, len(place), maxPlace)
		require.False(t, places[place], place)
		places[place] = true
	}
}
