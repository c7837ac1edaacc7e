package globalnet_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/globalnet"
)

var (
	small = netip.MustParsePrefix("242.0.0.0/28") // 14 addresses: .1 to .14
	start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// requestList implements globalnet.Requests.
type requestList []globalnet.Request

func (l requestList) Len() int                   { return len(l) }
func (l requestList) At(i int) globalnet.Request { return l[i] }

// ask returns a request; words are the last octets of what it holds. Requests are in the order of
// age.
func ask(name string, age, count int, held ...string) globalnet.Request {
	r := globalnet.Request{Name: name, UID: name, Since: start.Add(-time.Duration(age) * time.Hour), Count: count}
	for _, h := range held {
		if !strings.ContainsAny(h, ".:") {
			h = "242.0.0." + h
		}
		r.Held = append(r.Held, netip.MustParseAddr(h))
	}
	return r
}

// text returns a grant as text, such as "1 2 3 missing 5 lost 242.0.0.4 of GlobalIngressIP a/b".
func text(g globalnet.Grant) string {
	var words []string
	for _, a := range g.Addrs {
		words = append(words, strings.TrimPrefix(a.String(), "242.0.0."))
	}
	if g.Missing > 0 {
		words = append(words, fmt.Sprint("missing ", g.Missing))
	}
	for _, l := range g.Lost {
		words = append(words, strings.TrimSpace("lost "+l.Addr.String()+" "+l.Holder))
	}
	return strings.Join(words, " ")
}

func TestAllocate(t *testing.T) {
	for name, test := range map[string]struct {
		network  netip.Prefix
		requests requestList
		want     []string
	}{
		"one: the highest; several: the lowest": {
			requests: requestList{ask("a", 3, 1), ask("b", 2, 4), ask("c", 1, 1), ask("d", 0, 2)},
			want:     []string{"14", "1 2 3 4", "13", "5 6"},
		},
		"nothing requested": {requests: requestList{ask("a", 0, 0), ask("b", 0, 0, "3")}, want: []string{"", ""}},
		"what stands, stands": {
			requests: requestList{ask("a", 0, 1, "5"), ask("b", 9, 1), ask("c", 9, 3, "9", "10", "11")},
			want:     []string{"5", "14", "9 10 11"},
		},
		"the older of two keeps it": {
			requests: requestList{ask("young", 1, 1, "5"), ask("old", 2, 1, "5")},
			want:     []string{"14 lost 242.0.0.5 old", "5"},
		},
		"of two equally old, the name decides": {
			requests: requestList{ask("b", 1, 1, "5"), ask("a", 1, 1, "5")},
			want:     []string{"14 lost 242.0.0.5 a", "5"},
		},
		"not of the pool": {
			requests: requestList{
				ask("a", 3, 1, "0"),
				ask("b", 2, 1, "15"),
				ask("c", 1, 1, "10.1.2.3"),
				ask("d", 0, 1, "fd00::1"),
			},
			want: []string{"14 lost 242.0.0.0", "13 lost 242.0.0.15", "12 lost 10.1.2.3", "11 lost fd00::1"},
		},
		"twice in one status": {requests: requestList{ask("a", 0, 2, "5", "5")}, want: []string{"5 6"}},
		"shrinks at the end":  {requests: requestList{ask("a", 0, 2, "3", "4", "5", "6")}, want: []string{"3 4"}},
		"grows at the end": {
			requests: requestList{ask("a", 0, 4, "3", "4"), ask("b", 0, 1, "2")}, want: []string{"3 4 5 6", "2"},
		},
		"grows on both sides": {
			requests: requestList{ask("a", 0, 4, "3", "4"), ask("b", 0, 1, "6")}, want: []string{"2 3 4 5", "6"},
		},
		"moves if it cannot grow": {
			requests: requestList{ask("a", 0, 3, "3", "4"), ask("b", 0, 1, "2"), ask("c", 0, 1, "5")},
			want:     []string{"6 7 8", "2", "5"},
		},
		"keeps what it has if it cannot move": {
			requests: requestList{ask("a", 0, 9, "3", "4"), ask("b", 0, 1, "2"), ask("c", 0, 1, "8")},
			want:     []string{"3 4 missing 7", "2", "8"},
		},
		"a status with gaps": {
			requests: requestList{ask("a", 0, 3, "3", "5", "6"), ask("b", 0, 1, "4")}, want: []string{"5 6 7", "4"},
		},
		"the oldest first": {
			requests: requestList{ask("c", 1, 6), ask("b", 2, 6), ask("a", 3, 6)},
			want:     []string{"missing 6", "7 8 9 10 11 12", "1 2 3 4 5 6"},
		},
		"a smaller request is not kept waiting by a larger one": {
			requests: requestList{ask("a", 3, 12), ask("b", 2, 6), ask("c", 1, 2)},
			want:     []string{"1 2 3 4 5 6 7 8 9 10 11 12", "missing 6", "13 14"},
		},
		"a pool of two": {
			network:  netip.MustParsePrefix("242.0.0.0/30"),
			requests: requestList{ask("a", 3, 1), ask("b", 2, 1), ask("c", 1, 1)},
			want:     []string{"2", "1", "missing 1"},
		},
		"no pool": {
			network:  netip.MustParsePrefix("242.0.0.0/31"),
			requests: requestList{ask("a", 3, 1, "1")},
			want:     []string{"missing 1 lost 242.0.0.1"},
		},
		"IPv6": {
			network:  netip.MustParsePrefix("fd00::/64"),
			requests: requestList{ask("a", 3, 1)},
			want:     []string{"missing 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if !test.network.IsValid() {
				test.network = small
			}
			grants, _ := globalnet.Allocate(test.network, test.requests, start, nil)
			var got []string
			for _, g := range grants {
				got = append(got, text(g))
			}
			require.Equal(t, test.want, got)
		})
	}
}

// An address that was freed is not allocated before it has rested, unless nothing else is left.
// What has rested longest is used first.
func TestRest(t *testing.T) {
	var m *globalnet.Memory
	give := func(after time.Duration, requests ...globalnet.Request) string {
		t.Helper()
		grants, next := globalnet.Allocate(small, requestList(requests), start.Add(after), m)
		m = next
		var all []string
		for _, g := range grants {
			all = append(all, text(g))
		}
		return strings.Join(all, ", ")
	}
	require.Equal(t, "14", give(0, ask("a", 9, 1)))
	require.Equal(t, "13", give(1, ask("b", 9, 1)), "a is deleted, 14 rests")
	require.Equal(t, globalnet.Usage{Size: 14, Held: 1, Resting: 1}, m.Usage())
	require.Equal(t, "13, 12", give(time.Minute, ask("b", 9, 1, "13"), ask("c", 8, 1)))
	require.Equal(t, "13, 11", give(2*time.Minute, ask("b", 9, 1, "13"), ask("d", 7, 1)),
		"c is deleted, 12 rests as well")
	require.Equal(t, "13, 11, 1 2 3 4 5 6 7 8 9 10, 14, 12", give(3*time.Minute, ask("b", 9, 1, "13"),
		ask("d", 7, 1, "11"), ask("e", 6, 10), ask("f", 5, 1), ask("g", 4, 1)), "nothing else is left")
	require.Equal(t, "11, 14", give(4*time.Minute, ask("d", 7, 1, "11"), ask("h", 3, 1)),
		"all others have just been freed, and rest")
}

// After it has rested, a freed address is used like any other.
func TestRestEnds(t *testing.T) {
	_, m := globalnet.Allocate(small, requestList{ask("a", 9, 1)}, start, nil)
	_, m = globalnet.Allocate(small, requestList(nil), start, m)
	grants, _ := globalnet.Allocate(small, requestList{ask("b", 9, 1)}, start.Add(globalnet.Rest-1), m)
	require.Equal(t, "13", text(grants[0]))
	grants, _ = globalnet.Allocate(small, requestList{ask("b", 9, 1)}, start.Add(globalnet.Rest), m)
	require.Equal(t, "14", text(grants[0]))
}

// What has been allocated is not given to others before the cache shows it, and not changed
// when the cache is behind.
func TestCacheIsBehind(t *testing.T) {
	_, m := globalnet.Allocate(small, requestList{ask("young", 1, 1)}, start, nil)
	grants, m := globalnet.Allocate(small, requestList{ask("young", 1, 1), ask("old", 2, 1)}, start, m)
	require.Equal(t, []string{"14", "13"}, []string{text(grants[0]), text(grants[1])})
	edited := ask("young", 1, 1, "3")
	edited.Version = "2"
	grants, _ = globalnet.Allocate(small, requestList{edited, ask("old", 2, 1, "13")}, start, m)
	require.Equal(t, "3", text(grants[0]), "a status that somebody has edited stands")
}

// A new agent knows from the record which addresses may have been used a moment ago.
func TestRecord(t *testing.T) {
	_, m := globalnet.Allocate(small, requestList{ask("a", 9, 1), ask("b", 9, 3), ask("c", 9, 1)}, start, nil)
	require.Equal(t, "242.0.0.1-242.0.0.3 242.0.0.13-242.0.0.14", m.Record())
	all, others := m.Recorded(m.Record())
	require.Equal(t, []bool{true, false}, []bool{all, others})
	all, others = m.Recorded("242.0.0.1-242.0.0.5")
	require.Equal(t, []bool{false, true}, []bool{all, others})

	m, err := globalnet.Recall(small, m.Record())
	require.NoError(t, err)
	grants, m := globalnet.Allocate(small, requestList{ask("c", 9, 1, "13"), ask("d", 9, 1)}, start, m)
	require.Equal(t, []string{"13", "12"}, []string{text(grants[0]), text(grants[1])},
		"14 rests: its object was deleted meanwhile")
	require.Equal(t, 4, m.Usage().Resting)

	_, err = globalnet.Recall(small, "242.0.0.1-242.0.0.3 soon")
	require.ErrorContains(t, err, `"soon"`)
	m, err = globalnet.Recall(small, "10.0.0.1-10.0.0.9 242.0.0.2")
	require.NoError(t, err, "the cluster had another network")
	require.Equal(t, "242.0.0.2", m.Record())
	m, err = globalnet.Recall(small, "241.255.255.9-242.0.0.2 242.0.0.13-242.0.0.99")
	require.NoError(t, err, "the cluster had a larger network")
	require.Equal(t, "242.0.0.1-242.0.0.2 242.0.0.13-242.0.0.14", m.Record())
}

// A record fits into a ConfigMap, however the addresses are scattered.
func TestRecordIsBounded(t *testing.T) {
	large := netip.MustParsePrefix("242.0.0.0/12")
	var scattered requestList
	addr := large.Addr().Next()
	for i := range 300_000 {
		scattered = append(scattered,
			globalnet.Request{Name: fmt.Sprint(i), UID: fmt.Sprint(i), Count: 1, Held: []netip.Addr{addr}})
		addr = addr.Next().Next()
	}
	_, m := globalnet.Allocate(large, scattered, start, nil)
	record := m.Record()
	require.Less(t, len(record), 600<<10)
	all, others := m.Recorded(record)
	require.True(t, all)
	require.True(t, others)
}

// many returns 50,000 objects that hold an address each.
func many() (netip.Prefix, requestList) {
	network := netip.MustParsePrefix("242.0.0.0/16")
	out := make(requestList, 50_000)
	for i := range out {
		name := fmt.Sprintf("GlobalIngressIP shop/web-%05d", i)
		out[i] = globalnet.Request{
			Name:  name,
			UID:   name,
			Since: start.Add(time.Duration(i) * time.Millisecond),
			Count: 1,
		}
	}
	grants, _ := globalnet.Allocate(network, out, start, nil)
	for i, g := range grants {
		out[i].Held = g.Addrs
	}
	return network, out
}

// BenchmarkAllocate allocates 50,000 addresses, one more, and nothing.
func BenchmarkAllocate(b *testing.B) {
	network, held := many()
	_, m := globalnet.Allocate(network, held, start, nil)
	one := append(held[:len(held):len(held)],
		globalnet.Request{Name: "new", UID: "new", Since: start.Add(time.Hour), Count: 1})
	none := make(requestList, len(held))
	for i, r := range held {
		r.Held = nil
		none[i] = r
	}
	for name, requests := range map[string]requestList{"all": none, "one": one, "nothing": held} {
		b.Run(name, func(b *testing.B) {
			before := m
			if name == "all" {
				before = nil
			}
			for b.Loop() {
				globalnet.Allocate(network, requests, start, before)
			}
		})
	}
}
