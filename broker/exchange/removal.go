package exchange

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// Removal describes a cluster that is no member of the broker any more. A cluster that was removed
// from one clusterset only is a member still: see Record.Removed.
type Removal struct {
	Cluster string
	Left    bool  // it has left; otherwise, it was revoked
	Time    int64 // in milliseconds since 1970, by the clock of who has signed it
	// Grant is the newest grant that is void, as far as it is known, without what it grants.
	Grant trust.Grant
}

// Removals returns the clusters that a cluster remembers as removed, sorted. The cluster itself is
// among them if it has left with the grant that it has. cm is the ConfigMap MemoryName.
func Removals(cm *corev1.ConfigMap) ([]Removal, error) {
	m, err := memoryOf(cm)
	if err != nil {
		return nil, err
	}
	var out []Removal
	for _, id := range slices.Sorted(maps.Keys(m.Clusters)) {
		switch r := m.Clusters[id]; {
		case r.Revoked > 0 && r.grant().Authority() <= r.Revoked:
			out = append(out, Removal{Cluster: id, Time: r.Revoked, Grant: r.grant()})
		case r.Left > 0:
			out = append(out, Removal{Cluster: id, Left: true, Time: r.Left, Grant: r.grant()})
		}
	}
	return out, nil
}

// RemovalOf returns what a Cluster on the broker states for which IsRemoved is true. It reports
// whether the cluster is no member any more: the administrator has signed that, or the cluster
// itself. A cluster that was removed from one clusterset is a member. key is the administrator's
// public key, as text.
func RemovalOf(c *submarinerv1.Cluster, key string) (Removal, bool) {
	out := Removal{Cluster: c.Name}
	administrator, err := trust.ParsePublic(key)
	if err != nil {
		return out, false
	}
	if r, err := administrator.Revocation(c.Annotations[submarinerv1.RevocationAnnotation]); err == nil &&
		r.Cluster == c.Name &&
		r.Set == "" {
		out.Time = r.Serial
		return out, true
	}
	l, err := administrator.Leaving(c.Annotations[submarinerv1.LeavingAnnotation])
	out.Left = true
	out.Time = l.Time
	out.Grant = l.Grant
	return out, err == nil && l.Grant.Cluster == c.Name
}

// remove notes that the administrator has removed the cluster from a clusterset.
func (r *Record) remove(set string, serial int64) {
	if r.Removed == nil {
		r.Removed = map[string]int64{}
	}
	r.Removed[set] = max(r.Removed[set], serial)
}

// trimRemoved drops the removals from clustersets that make no difference, because no grant until
// then is acceptable in any clusterset, and the oldest of more than maxRemoved.
func (m *Memory) trimRemoved() {
	type removal struct {
		id, set string
		serial  int64
	}
	var all []removal
	for id, r := range m.Clusters {
		for set, serial := range r.Removed {
			if serial < r.grant().Authority() {
				delete(r.Removed, set)
			} else {
				all = append(all, removal{id, set, serial})
			}
		}
	}
	if len(all) <= maxRemoved {
		return
	}
	slices.SortFunc(all, func(a, b removal) int {
		return cmp.Or(cmp.Compare(b.serial, a.serial), cmp.Compare(a.id, b.id), cmp.Compare(a.set, b.set))
	})
	for _, r := range all[maxRemoved:] {
		delete(m.Clusters[r.id].Removed, r.set)
	}
}
