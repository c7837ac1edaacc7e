package broker

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"

	submarinerv1 "subctl/api/submariner/v1"
)

// How often what a cluster changes is copied here. Every copy has all agents of this
// cluster plan anew, and a policy may change the cables of others. A cluster that comes
// or goes, or renames all its policies, stays far below; deleting is never held up.
const (
	pacePerSecond = 1
	paceBurst     = 2 * (maxPolicies + maxPerCluster)
)

// paces holds up copies of what a cluster changes too often, by its ID.
type paces map[string]*rate.Limiter

// admit returns what of writes may be written now, and says of which clusters something
// has to wait.
func (p paces) admit(writes []Write, now time.Time) (admitted []Write, held []Refusal) {
	late, namespace := map[string]int{}, ""
	for _, w := range writes {
		id := w.Object.GetLabels()[submarinerv1.ClusterIDLabel]
		if w.Set != "" || w.Op != Create && w.Op != Update || id == "" {
			admitted = append(admitted, w)
			continue
		}
		if p[id] == nil {
			p[id] = rate.NewLimiter(pacePerSecond, paceBurst)
		}
		if !p[id].AllowN(now, 1) {
			late[id]++
			namespace = w.Object.GetNamespace()
			continue
		}
		admitted = append(admitted, w)
	}
	for id, limiter := range p {
		if limiter.TokensAt(now) >= paceBurst { // as a new one
			delete(p, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(late)) {
		held = append(held, Refusal{
			Kind: "Cluster", Namespace: namespace, Name: id, Local: true,
			Reason: fmt.Sprintf("it changes its objects too often: %d of them are copied later", late[id]),
		})
	}
	return admitted, held
}
