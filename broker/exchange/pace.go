package exchange

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"

	submarinerv1 "subctl/api/submariner/v1"
)

// pacePerSecond is how many changes of a cluster are copied here in a second, after a
// burst. Every copy makes all agents of this cluster plan anew, and a policy may change
// the cables of others.
const pacePerSecond = 1

// paces delays the copies of what a cluster changes too often. Deletions are never
// delayed, nor is what the broker's administrator makes: it must be here before pairs of clusters
// are connected.
type paces struct {
	burst    int                      // of a cluster that joins, leaves or renames all it has, in one clusterset
	limiters map[string]*rate.Limiter // by cluster ID
}

func newPaces(kinds Table) *paces {
	p := &paces{limiters: map[string]*rate.Limiter{}}
	for _, k := range kinds {
		p.burst += 2 * k.PerCluster
	}
	return p
}

// admit returns the writes that may be written now, and reports the clusters whose other
// writes have to wait. sets is the number of clustersets, in each of which a cluster may change everything at
// once.
func (p *paces) admit(writes []Write, sets int, now time.Time) (admitted []Write, held []Refusal) {
	late, namespace, burst := map[string]int{}, "", p.burst*max(1, sets)
	for _, w := range writes {
		id, _ := submarinerv1.OwnerID(w.Object)
		if w.Set != "" || w.Op != Create && w.Op != Update || id == "" || id == submarinerv1.BrokerID {
			admitted = append(admitted, w)
			continue
		}
		if p.limiters[id] == nil {
			p.limiters[id] = rate.NewLimiter(pacePerSecond, burst)
		}
		p.limiters[id].SetBurstAt(now, burst)
		if !p.limiters[id].AllowN(now, 1) {
			late[id]++
			namespace = w.Object.GetNamespace()
			continue
		}
		admitted = append(admitted, w)
	}
	for id, limiter := range p.limiters {
		if limiter.TokensAt(now) >= float64(burst) { // the same as a new limiter
			delete(p.limiters, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(late)) {
		held = append(held, Refusal{
			Kind: "Cluster", Namespace: namespace, Name: id, Local: true,
			Reason: fmt.Sprintf("it changes its objects too often: %d changes are copied later", late[id]),
		})
	}
	return admitted, held
}
