package services

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// MaxImports is the maximum number of Services that a cluster imports: the agent has memory for as
// many, and kube-proxy of each node follows them all.
const MaxImports = 10_000

// bound drops claims until no cluster has more than half of the imports that this cluster may have,
// and all together have no more than that. A member could otherwise take all cluster IPs.
//
// What is imported stays. Of the rest, each cluster in turn gets its oldest export imported. What
// this cluster exports itself always is.
func (i *importer) bound() {
	most := cmp.Or(i.MaxImports, MaxImports)
	ofOne := (most + 1) / 2
	others := map[string][]types.NamespacedName{}
	large := len(i.claims) > most
	for key, claims := range i.claims {
		for _, c := range claims {
			if !c.own {
				others[c.cluster] = append(others[c.cluster], key)
				large = large || len(others[c.cluster]) > ofOne
			}
		}
	}
	if !large {
		return
	}
	places := map[types.NamespacedName]int{} // the best one in the order of a cluster
	for cluster, keys := range others {
		i.sortByAge(cluster, keys)
		for place, key := range keys {
			if place >= ofOne {
				i.drop(key, cluster, fmt.Sprintf("this cluster imports no more than %d Services of one cluster, "+
					"older exports first: let the cluster export fewer", ofOne))
			} else if was, has := places[key]; !has || place < was {
				places[key] = place
			}
		}
	}
	i.boundAll(places, most)
}

// boundAll drops Services until no more than most are left, given the order in which to take those
// that are not imported yet.
func (i *importer) boundAll(places map[types.NamespacedName]int, most int) {
	var keys []types.NamespacedName
	for key, claims := range i.claims {
		if slices.ContainsFunc(claims, func(c claim) bool { return c.own }) {
			most--
		} else {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b types.NamespacedName) int {
		return cmp.Or(compareBools(i.isImported(a), i.isImported(b)), cmp.Compare(places[a], places[b]),
			compareNames(a, b))
	})
	for _, key := range keys[min(len(keys), max(0, most)):] {
		for _, c := range slices.Clone(i.claims[key]) {
			i.drop(key, c.cluster, fmt.Sprintf("this cluster imports as many Services as it may: one for every second "+
				"address of its Service networks, and %d at most", MaxImports))
		}
	}
}

// sortByAge sorts Services of a cluster: those of which this cluster has endpoints come first, then
// those that the cluster has exported for longer.
func (i *importer) sortByAge(cluster string, keys []types.NamespacedName) {
	here := i.held.sources()[cluster]
	ages := make(map[types.NamespacedName]int64, len(keys))
	for _, key := range keys {
		n := slices.IndexFunc(i.claims[key], func(c claim) bool { return c.cluster == cluster })
		ages[key] = i.claims[key][n].record.ExportedAt
	}
	slices.SortFunc(keys, func(a, b types.NamespacedName) int {
		return cmp.Or(compareBools(here[a], here[b]), cmp.Compare(ages[a], ages[b]), compareNames(a, b))
	})
}

// compareBools puts true first.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (i *importer) isImported(key types.NamespacedName) bool {
	have := i.held.imports[key]
	return have != nil && isOurs(have)
}

// drop drops what a cluster claims to export.
func (i *importer) drop(key types.NamespacedName, cluster, reason string) {
	i.refuse(cluster, key, reason)
	left := slices.DeleteFunc(i.claims[key], func(c claim) bool { return c.cluster == cluster })
	if len(left) == 0 {
		delete(i.claims, key)
	} else {
		i.claims[key] = left
	}
}
