package exchange

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"

	submarinerv1 "subctl/api/submariner/v1"
)

// pacePerSecond is the number of changes of a cluster that are copied here in a second, after
// a burst. Every copy makes all agents of this cluster plan anew, and a policy may change the
// cables of others.
const pacePerSecond = 1

// ownPacePerSecond is the same for a kind with Named.OwnPace. A cluster that replaces the pods of
// all its Services at once writes each page every two seconds, and pods that end must be known in
// time. 50 clusters that read the pages of one another's pods cost the broker about 12 MB/s then.
const ownPacePerSecond = 8

// paces delays the copies of what a cluster changes too often. Deletions are never
// delayed, nor is what the broker's administrator makes: it must be here before pairs of clusters
// are connected.
type paces struct {
	burst    int                    // of a cluster that joins, leaves or renames all it has, in one clusterset
	limiters map[pace]*rate.Limiter // that are not full
}

// pace is what one limiter is for: the objects of a cluster, of all kinds but those with
// Named.OwnPace, or of one of these, which kind names.
type pace struct{ id, kind string }

func newPaces(kinds Table) *paces {
	p := &paces{limiters: map[pace]*rate.Limiter{}}
	for _, k := range kinds {
		if !k.hasOwnPace() {
			p.burst += 2 * k.PerCluster
		}
	}
	return p
}

// hasOwnPace reports whether copies of the kind and of others do not wait for each other. k may be
// nil.
func (k *Kind) hasOwnPace() bool { return k != nil && k.Named != nil && k.Named.OwnPace }

// limiterOf returns which limiter a write has to pass, how much it admits in a second, and its
// burst. sets is the number of clustersets that the cluster shares with this one. An object of a
// Named kind has one copy, however many they are.
func (p *paces) limiterOf(w Write, sets int) (of pace, perSecond rate.Limit, burst int) {
	id, _ := submarinerv1.OwnerID(w.Object)
	if w.kind.hasOwnPace() {
		return pace{id, w.kind.Name}, ownPacePerSecond, 2 * w.kind.PerCluster
	}
	return pace{id: id}, pacePerSecond, p.burstOf(sets)
}

// mostBursts is the number of clustersets in which a cluster may change everything at once. What it
// changes in that time is in the cluster's etcd until that is compacted: 400 MB, if all objects
// have the largest size.
const mostBursts = 100

// burstOf returns how many changes of a cluster are copied at once. sets is the number of
// clustersets that have it.
func (p *paces) burstOf(sets int) int { return p.burst * min(max(1, sets), mostBursts) }

// admit returns the writes that may be written now, and reports the clusters whose other writes
// have to wait. sets is the number of clustersets that this cluster shares with each of the others:
// a cluster may change everything at once in each of them.
func (p *paces) admit(writes []Write, sets map[string]int, now time.Time) (admitted []Write, held []Refusal) {
	late := map[string]int{}
	namespace := ""
	for _, w := range writes {
		id, _ := submarinerv1.OwnerID(w.Object)
		if w.Set != "" || w.Op != Create && w.Op != Update || id == "" || id == submarinerv1.BrokerID {
			admitted = append(admitted, w)
			continue
		}
		of, perSecond, burst := p.limiterOf(w, sets[id])
		if p.limiters[of] == nil {
			p.limiters[of] = rate.NewLimiter(perSecond, burst)
		}
		p.limiters[of].SetBurstAt(now, burst)
		if !p.limiters[of].AllowN(now, 1) {
			late[id]++
			namespace = w.Object.GetNamespace()
			continue
		}
		admitted = append(admitted, w)
	}
	for of, limiter := range p.limiters {
		burst := limiter.Burst()
		if of.kind == "" {
			burst = p.burstOf(sets[of.id])
		}
		if limiter.TokensAt(now) >= float64(burst) { // the same as a new limiter
			delete(p.limiters, of)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(late)) {
		held = append(held, Refusal{
			maker: id, Kind: "Cluster", Namespace: namespace, Name: id, Local: true,
			Reason: fmt.Sprintf("it changes its objects too often: %d changes are copied later", late[id]),
		})
	}
	return admitted, held
}

// How many writes to the broker one pass makes. A cluster with a new grant publishes its Cluster
// anew in all its clustersets: with 1,000 of them that takes some seconds, in which other changes
// must not wait.
const (
	mostUrgent = 100 // to clustersets in which something appears or disappears, as a new grant is about them
	mostOthers = 50  // to the others
	fewOthers  = 10  // the same, while there is something urgent
)

// atATime returns the writes of one pass: all to this cluster, and some of those to the broker.
// waits reports whether there are clustersets that were not read yet: what is to be written there
// is urgent, too. It reports whether there are more writes.
func atATime(writes []Write, waits bool) (now []Write, more bool) {
	urgent := map[string]bool{}
	for _, w := range writes {
		if w.Set != "" && w.Op != Update {
			urgent[w.Set] = true
		}
	}
	first := mostUrgent
	others := mostOthers
	if waits || len(urgent) > 0 {
		others = fewOthers
	}
	for _, w := range writes {
		left := &others
		if urgent[w.Set] {
			left = &first
		}
		if w.Set != "" {
			if *left == 0 {
				more = true
				continue
			}
			*left--
		}
		now = append(now, w)
	}
	return now, more
}
