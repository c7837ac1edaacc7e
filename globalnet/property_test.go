package globalnet_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/globalnet"
)

// stored is an object of the API server.
type stored struct {
	request globalnet.Request // Held is its status
	seen    globalnet.Request // in the cache of the agent
	offered []netip.Addr      // what this agent has last given it
	granted []netip.Addr      // all that it requests, once its status has had it
}

// world is an API server, and an agent that allocates.
type world struct {
	t       *testing.T
	random  *rand.Rand
	now     time.Time
	network netip.Prefix
	objects []*stored
	next    int
	record  string            // in the ConfigMap
	memory  *globalnet.Memory // of the agent
	freed   map[netip.Addr]time.Time
}

// Objects come, change and go, status writes fail, the cache is behind, agents restart, the pool is
// full: no address is ever in two statuses, an allocation does not change, and who waits gets what
// is freed.
func TestProperties(t *testing.T) {
	for seed := range uint64(200) {
		w := &world{
			// 30 addresses
			t: t, random: rand.New(rand.NewPCG(seed, 1)), now: start, network: netip.MustParsePrefix("242.0.0.0/27"),
			freed: map[netip.Addr]time.Time{},
		}
		for range 120 {
			w.step()
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		w.settle()
	}
}

func (w *world) step() {
	w.now = w.now.Add(time.Duration(w.random.IntN(90)) * time.Second)
	switch w.random.IntN(10) {
	case 0, 1, 2, 3:
		w.next++
		name := fmt.Sprintf("object %03d", w.next)
		count := 1
		if w.random.IntN(3) == 0 {
			count = w.random.IntN(9)
		}
		o := &stored{
			request: globalnet.Request{Name: name, UID: name, Since: w.now.Truncate(time.Minute), Count: count},
		}
		o.seen = o.request
		w.objects = append(w.objects, o)
	case 4, 5, 6:
		if len(w.objects) > 0 {
			i := w.random.IntN(len(w.objects))
			for _, a := range w.objects[i].request.Held {
				w.freed[a] = w.now
			}
			w.objects = slices.Delete(w.objects, i, i+1)
		}
	case 7:
		if len(w.objects) > 0 {
			o := w.objects[w.random.IntN(len(w.objects))]
			o.request.Count = w.random.IntN(9)
			o.granted = nil
			o.request.Version += "s"
			if w.random.IntN(2) == 0 {
				o.seen = o.request
			}
		}
	case 8: // another agent: its cache is as the API server
		w.memory, _ = globalnet.Recall(w.network, w.record)
		for _, o := range w.objects {
			o.seen = o.request
			o.offered = nil
		}
	case 9:
		for _, o := range w.objects {
			o.seen = o.request
		}
	}
	w.allocate(w.random.IntN(4))
}

// allocate allocates once. One in fail writes fails, if fail is not 0.
func (w *world) allocate(fail int) []globalnet.Grant {
	requests := make(requestList, len(w.objects))
	for i, o := range w.objects {
		requests[i] = o.seen
	}
	grants, memory := globalnet.Allocate(w.network, requests, w.now, w.memory)
	w.memory = memory
	if all, _ := memory.Recorded(w.record); !all {
		if fail != 0 && w.random.IntN(fail) == 0 {
			return grants // the record cannot be written, so nothing else is
		}
		w.record = memory.Record()
	}
	for i, o := range w.objects {
		g := grants[i]
		require.Len(w.t, g.Addrs, o.seen.Count-g.Missing)
		require.Empty(w.t, g.Lost)
		for k, a := range g.Addrs {
			require.True(w.t, k == 0 || g.Addrs[k-1].Next() == a, "%v has gaps", g.Addrs)
		}
		if len(o.granted) > 0 && o.seen.Count == o.request.Count {
			require.Equal(w.t, o.granted, g.Addrs, "an allocation has changed")
		}
		if !slices.Equal(o.offered, g.Addrs) {
			before := o.offered
			if o.offered = g.Addrs; len(g.Addrs) != 1 || !slices.Contains(before, g.Addrs[0]) {
				w.rested(o, memory)
			}
		}
		if fail != 0 && w.random.IntN(fail) == 0 || o.seen.Version != o.request.Version ||
			slices.Equal(g.Addrs, o.seen.Held) {
			continue
		}
		if w.write(o, g.Addrs); o.seen.Count == o.request.Count && g.Missing == 0 {
			o.granted = g.Addrs
		}
	}
	w.unique()
	return grants
}

// write writes a status. The cache sees it at once, or later.
func (w *world) write(o *stored, addrs []netip.Addr) {
	for _, a := range o.request.Held {
		if !slices.Contains(addrs, a) {
			w.freed[a] = w.now
		}
	}
	o.request.Held = addrs
	o.request.Version += "w"
	if w.random.IntN(2) == 0 {
		o.seen = o.request
	}
}

// rested fails if an object gets a single address that was freed a moment ago, although there are
// others.
func (w *world) rested(o *stored, m *globalnet.Memory) {
	if len(o.offered) != 1 || slices.Contains(o.request.Held, o.offered[0]) {
		return
	}
	if at, ok := w.freed[o.offered[0]]; ok && w.now.Sub(at) < globalnet.Rest {
		u := m.Usage()
		require.Zero(w.t, u.Size-u.Held-u.Resting, "%s was freed %s ago, and others are free: %s", o.offered[0],
			w.now.Sub(at), m.Record())
	}
}

// unique fails if an address is in two statuses.
func (w *world) unique() {
	holder := map[netip.Addr]string{}
	for _, o := range w.objects {
		for _, a := range o.request.Held {
			require.Empty(w.t, holder[a], "%s is in the status of %s, too", a, o.request.Name)
			require.True(w.t, w.network.Contains(a))
			holder[a] = o.request.Name
		}
	}
}

// settle lets the world rest, and checks that nobody waits whose request the pool could fulfil.
func (w *world) settle() {
	for range 3 {
		for _, o := range w.objects {
			o.seen = o.request
		}
		w.now = w.now.Add(globalnet.Rest)
		w.allocate(0)
	}
	taken := map[netip.Addr]bool{}
	for _, o := range w.objects {
		for _, a := range o.request.Held {
			taken[a] = true
		}
	}
	longest := 0
	run := 0
	for a := w.network.Addr().Next(); w.network.Contains(a.Next()); a = a.Next() {
		if run++; taken[a] {
			run = 0
		}
		longest = max(longest, run)
	}
	for i, g := range w.allocate(0) {
		if g.Missing > 0 {
			require.Less(w.t, longest, w.objects[i].request.Count, "%s waits", w.objects[i].request.Name)
		}
	}
}
