package services

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
)

// merged is what the exporters of a Service make of it together, by the rules of KEP-1645.
type merged struct {
	key types.NamespacedName
	// exporters are those of the import's type, in order. The first one decides all properties of
	// the Service, except further ports.
	exporters []claim
	// losers export the Service with the other type. Nothing of them is imported.
	losers   []claim
	ports    []mcsv1alpha1.ServicePort
	conflict Conflict
}

// decides returns the record that decides the properties of the Service.
func (m *merged) decides() *v1alpha1.ExportedService { return m.exporters[0].record }

func (m *merged) headless() bool { return m.decides().Headless }

// mergeClaims merges the records of the exporters of a Service. have is its ServiceImport, or nil.
//
// While the import is young, exports that other clusters have made at the same time, or long ago,
// are still on their way here. So it does not count yet who came first.
func mergeClaims(
	key types.NamespacedName, claims []claim, have *mcsv1alpha1.ServiceImport, now time.Time,
) *merged {
	m := &merged{key: key}
	incumbents := have
	if have != nil && isYoung(have, now) && !slices.ContainsFunc(claims, isKept) {
		incumbents = nil
	}
	sorted, headless := order(claims, incumbents)
	for _, c := range sorted {
		if c.record.Headless == headless {
			m.exporters = append(m.exporters, c)
		} else {
			m.losers = append(m.losers, c)
		}
	}
	m.ports = mergePorts(m.exporters)
	m.conflict = m.conflicts()
	return m
}

// settling is the time for which the oldest export decides about a new import, whichever has
// arrived first. It is longer than clusters take that read their clusterset by polling, every 20 s,
// and short for a cluster that would wait for exports of others in order to claim an older one.
const settling = 30 * time.Second

// isYoung reports whether an import is new.
func isYoung(have *mcsv1alpha1.ServiceImport, now time.Time) bool {
	return now.Sub(have.CreationTimestamp.Time) < settling
}

func isKept(c claim) bool { return c.kept }

// order sorts the exporters, and returns the type that counts. have is the ServiceImport, or nil if
// nobody has come first.
//
// The oldest export decides, but its age is what a cluster claims. So clusters that the import
// lists go before new ones, in the order of the list, and a type that they agree on stays: no claim
// removes endpoints that are in use.
func order(claims []claim, have *mcsv1alpha1.ServiceImport) (sorted []claim, headless bool) {
	places := map[string]int{}
	if have != nil {
		for n, c := range have.Status.Clusters {
			places[c.Cluster] = n + 1
		}
	}
	place := func(c claim) int { // 0 for new ones
		switch n := places[c.cluster]; {
		case n == 0 && c.kept:
			return len(places) + 1
		default:
			return n
		}
	}
	sorted = slices.Clone(claims)
	slices.SortFunc(sorted, func(a, b claim) int {
		pa := place(a)
		pb := place(b)
		switch {
		case pa > 0 && pb > 0 && pa != pb:
			return cmp.Compare(pa, pb)
		case pa > 0 != (pb > 0):
			return cmp.Compare(pb, pa)
		}
		return cmp.Or(cmp.Compare(a.record.ExportedAt, b.record.ExportedAt), cmp.Compare(a.cluster, b.cluster))
	})
	if have != nil {
		stands := have.Spec.Type == mcsv1alpha1.Headless
		if slices.ContainsFunc(sorted, func(c claim) bool { return place(c) > 0 && c.record.Headless == stands }) {
			return sorted, stands
		}
	}
	return sorted, sorted[0].record.Headless
}

// mergePorts returns the union of the ports of all exporters. A port whose name, or protocol and
// number, is there already does not count: the older definition stands.
func mergePorts(exporters []claim) []mcsv1alpha1.ServicePort {
	ports := make([]mcsv1alpha1.ServicePort, 0, len(exporters[0].record.Ports))
	for _, c := range exporters {
		for _, p := range c.record.Ports {
			if fits(ports, p) {
				ports = append(ports, mcsv1alpha1.ServicePort{
					Name: p.Name, Protocol: protocolOf(p), Port: p.Port, AppProtocol: optional(p.AppProtocol),
				})
			}
		}
	}
	return ports
}

// fits reports whether a port can be added to others. A Service with several ports cannot have one
// without a name.
func fits(ports []mcsv1alpha1.ServicePort, p v1alpha1.ExportedPort) bool {
	if len(ports) >= v1alpha1.MaxExportedPorts || len(ports) > 0 && (p.Name == "" || ports[0].Name == "") {
		return false
	}
	return !slices.ContainsFunc(ports, func(o mcsv1alpha1.ServicePort) bool {
		return o.Name == p.Name || isPort(o, p)
	})
}

// isPort reports whether a port of an import is, by protocol and number, that of an exporter.
func isPort(o mcsv1alpha1.ServicePort, p v1alpha1.ExportedPort) bool {
	return o.Port == p.Port && o.Protocol == protocolOf(p)
}

// trafficPolicy returns the internalTrafficPolicy of a record. Cluster is the default.
func trafficPolicy(r *v1alpha1.ExportedService) string {
	return cmp.Or(r.InternalTrafficPolicy, string(corev1.ServiceInternalTrafficPolicyCluster))
}

// optional returns a pointer to a value, or nil for the zero value.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
