package exchange

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// This file bounds what is kept of all clustersets together. A quota bounds what a clusterset has,
// and a member of many clustersets may have different objects, of the largest size, in each of
// them. Of each kind as much is kept as the quota of one clusterset admits. If there is more, the
// clusters with the most get less, all of them the same: they have what is in their first
// clustersets by name. Clusters are always kept, as they carry grants and revocations.

// excessAnnotation is on stubs of objects that are too much: the size of the object, in bytes.
const excessAnnotation = "submariner.io/excess"

// overhead is about how much memory an object needs besides its texts, in bytes.
const overhead = 2 << 10

// mostBytes is the maximum size, in bytes, of the objects of the kind that are kept, in all
// clustersets together.
func (k *Kind) mostBytes() int { return k.Quota * (k.MaxSize + MaxProof) }

// excess returns the size of the object that a stub stands for, because its cluster has too much,
// or 0.
func excess(o client.Object) int {
	n, _ := strconv.Atoi(o.GetAnnotations()[excessAnnotation])
	return n
}

// weigh returns the size of an object on the broker, in bytes.
func (k *Kind) weigh(o client.Object) int {
	if n := excess(o); n > 0 {
		return n
	}
	n := overhead
	if k.stubSize(o) > 0 {
		return n
	}
	for _, a := range proofs {
		n += len(o.GetAnnotations()[a])
	}
	return n + k.boundedSize(o)
}

// tooMuch returns the reason why an object is refused.
func tooMuch(maker string) string {
	if maker == submarinerv1.BrokerID {
		return "the broker has more of its own in all clustersets together than is copied"
	}
	return fmt.Sprintf("cluster %s has more in all its clustersets together than is copied of it", maker)
}

// fairShare returns the most that each may have so that all together have at most as much as given.
func fairShare(sizes []int, most int) int {
	slices.Sort(sizes)
	for i, n := range sizes {
		share := most / (len(sizes) - i)
		if n > share {
			return share
		}
		most -= n
	}
	return math.MaxInt
}

// fitting keeps the sizes of objects from one pass to the next.
type fitting struct {
	sizes memo[client.Object, int]
}

// fit replaces what is too much, in the clustersets of a snapshot and in their mirrors, by stubs.
func (f *fitting) fit(sets []*followed, snap *Snapshot, kinds Table) {
	f.sizes.turn(1)
	type heap struct {
		kind  int
		maker string
	}
	of := map[heap]int{}
	bySet := make([]map[heap]int, len(snap.Sets))
	heapOf := func(o client.Object) (h heap, ok bool) {
		h = heap{kinds.index(o), makerOf(o)}
		return h, h.kind >= 0 && h.maker != snap.ClusterID && !kinds[h.kind].hasGrant()
	}
	for i, set := range snap.Sets {
		bySet[i] = map[heap]int{}
		for _, o := range set.Objects {
			if h, ok := heapOf(o); ok {
				bySet[i][h] += f.sizes.of(o, func() int { return kinds[h.kind].weigh(o) })
			}
		}
		for h, n := range bySet[i] {
			of[h] += n
		}
	}
	shares := make([]int, len(kinds))
	for i := range kinds {
		var sizes []int
		for h, n := range of {
			if h.kind == i {
				sizes = append(sizes, n)
			}
		}
		shares[i] = fairShare(sizes, kinds[i].mostBytes())
	}
	clear(of)
	for i, set := range snap.Sets {
		for h, n := range bySet[i] {
			of[h] += n
		}
		for at, o := range set.Objects {
			h, ok := heapOf(o)
			if !ok {
				continue
			}
			switch over := of[h] > shares[h.kind]; {
			case over && excess(o) == 0:
				set.Objects[at] = sets[i].shrink(o, f.sizes.of(o, nil))
			case !over && excess(o) > 0:
				sets[i].readAgain(h.kind)
			}
		}
	}
}

// shrink replaces an object by a stub, which it returns.
func (s side) shrink(o client.Object, size int) client.Object {
	for _, m := range s.mirrors {
		if m.kind.is(o) {
			return m.shrink(o, size)
		}
	}
	return o
}

// readAgain reads the objects of a kind again of which there were too many.
func (s side) readAgain(kind int) { s.mirrors[kind].readAgain() }

// shrink replaces an object by a stub, which it returns.
func (m *mirror) shrink(o client.Object, size int) client.Object {
	stub := m.kind.stub(o, 0)
	annotations := map[string]string{excessAnnotation: strconv.Itoa(size)}
	if slot := o.GetAnnotations()[slotAnnotation]; slot != "" {
		annotations[slotAnnotation] = slot
	}
	stub.SetAnnotations(annotations)
	m.mu.Lock()
	defer m.mu.Unlock()
	if name := slotOf(o); m.objects[name] == o {
		m.objects[name] = stub
	}
	return stub
}

// readAgain has the next list replace stubs.
func (m *mirror) readAgain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.again {
		return
	}
	m.again = true
	m.digest = 0
	if m.stop != nil {
		m.stop()
	}
}
