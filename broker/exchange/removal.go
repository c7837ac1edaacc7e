package exchange

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// Removal describes a cluster that is no member any more.
type Removal struct {
	Cluster string
	Left    bool  // it has left; otherwise, it was revoked
	Time    int64 // in milliseconds since 1970, by the clock of who has signed it
}

// Removals returns the clusters that a cluster remembers as removed, sorted. cm is the ConfigMap
// MemoryName.
func Removals(cm *corev1.ConfigMap) ([]Removal, error) {
	m, err := memoryOf(cm)
	if err != nil {
		return nil, err
	}
	var out []Removal
	for _, id := range slices.Sorted(maps.Keys(m.Clusters)) {
		switch r := m.Clusters[id]; {
		case r.Revoked > 0 && r.grant().Authority() <= r.Revoked:
			out = append(out, Removal{Cluster: id, Time: r.Revoked})
		case r.Left > 0:
			out = append(out, Removal{Cluster: id, Left: true, Time: r.Left})
		}
	}
	return out, nil
}

// RemovalOf returns what a Cluster on the broker states for which IsRemoved is true. It reports whether
// the administrator has signed that, or the cluster itself. key is the administrator's public key, as text.
func RemovalOf(c *submarinerv1.Cluster, key string) (Removal, bool) {
	out := Removal{Cluster: c.Name}
	administrator, err := trust.ParsePublic(key)
	if err != nil {
		return out, false
	}
	if r, err := administrator.Revocation(c.Annotations[submarinerv1.RevocationAnnotation]); err == nil && r.Cluster == c.Name {
		out.Time = r.Serial
		return out, true
	}
	l, err := administrator.Leaving(c.Annotations[submarinerv1.LeavingAnnotation])
	out.Left, out.Time = true, l.Time
	return out, err == nil && l.Grant.Cluster == c.Name
}
