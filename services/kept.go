package services

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
)

// Nothing of a cluster is deleted while one of its pages is missing. A record that may be in the
// missing page is read back from the objects that were made of it.

// sources returns which imports of ours have endpoints of each cluster, or had a moment ago.
func (h *held) sources() map[string]map[types.NamespacedName]bool {
	if h.bySource != nil {
		return h.bySource
	}
	h.bySource = map[string]map[types.NamespacedName]bool{}
	add := func(cluster string, key types.NamespacedName) {
		if h.bySource[cluster] == nil {
			h.bySource[cluster] = map[types.NamespacedName]bool{}
		}
		h.bySource[cluster][key] = true
	}
	for key, have := range h.imports {
		if !isOurs(have) {
			continue
		}
		for _, s := range have.Status.Clusters {
			add(s.Cluster, key)
		}
		for _, s := range h.slices[key] {
			if isOurSlice(s) && hasOwner(s, have.UID) {
				add(s.Labels[mcsv1alpha1.LabelSourceCluster], key)
			}
		}
	}
	return h.bySource
}

// checkKept returns why the endpoints of a cluster that are here cannot stay: it announces other
// networks by now. A member that withholds one of its pages would otherwise keep them for ever.
func (i *importer) checkKept(d *door, cluster string, key types.NamespacedName, n networks) string {
	if n.none() {
		return "" // nothing can be checked
	}
	within := slices.Concat(n.pods, n.services)
	for _, s := range i.held.slices[key] {
		if !isOurSlice(s) || s.Labels[mcsv1alpha1.LabelSourceCluster] != cluster {
			continue
		}
		addresses := []string{}
		if at := s.Annotations[AddressAnnotation]; at != "" {
			addresses = append(addresses, at)
		}
		for _, e := range s.Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
		for _, a := range addresses {
			if reason := d.checkAddress(a, within, n.routed, "pod or Service"); reason != "" {
				return reason
			}
		}
	}
	return ""
}

// keepRecords reads the records back whose pages are missing.
func (i *importer) keepRecords() {
	for key, claims := range i.claims {
		var ports map[string]map[string]bool
		for n := range claims {
			if !claims[n].kept {
				continue
			}
			if ports == nil {
				ports = i.portsBySource(key)
			}
			claims[n].record = i.readBack(key, ports[claims[n].cluster])
		}
	}
}

// keptSlices returns the EndpointSlices of a cluster whose page is missing, as far as they change:
// its endpoints are used, and not used, like those of other clusters. What was not ready is left
// out of a slice that is withheld, so that its endpoints are as ready as they were when it is not
// withheld any more.
func (i *importer) keptSlices(
	m *merged, c claim, meta sliceMeta, l locality, unreachable bool,
) (out []*discoveryv1.EndpointSlice) {
	for _, s := range i.held.slices[m.key] {
		if !isOurSlice(s) || s.Labels[mcsv1alpha1.LabelSourceCluster] != c.cluster || !hasOwner(s, meta.owner.UID) {
			continue
		}
		withheld := withheldBecause(unreachable, l.withholds(s.Ports))
		if was := s.Annotations[WithheldAnnotation]; was == withheld {
			continue
		} else if was == "" {
			s = withoutIdle(s)
		}
		next := meta.slice(c, 0, withheld)
		next.Name = s.Name
		if at := s.Annotations[AddressAnnotation]; at != "" {
			metav1.SetMetaDataAnnotation(&next.ObjectMeta, AddressAnnotation, at)
		}
		next.Ports = s.Ports
		for _, e := range s.Endpoints {
			terminating := value(e.Conditions.Terminating)
			next.Endpoints = append(next.Endpoints, discoveryv1.Endpoint{
				Addresses: e.Addresses,
				Conditions: discoveryv1.EndpointConditions{
					Ready: new(withheld == "" && !terminating), Serving: new(withheld == ""), Terminating: &terminating,
				},
				Hostname: e.Hostname, Zone: e.Zone, Hints: e.Hints,
			})
		}
		out = append(out, next)
	}
	return out
}

// withoutIdle returns a slice without the endpoints that serve no connections.
func withoutIdle(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s = s.DeepCopy()
	s.Endpoints = slices.DeleteFunc(s.Endpoints,
		func(e discoveryv1.Endpoint) bool { return !value(e.Conditions.Serving) })
	return s
}

// portsBySource returns the names of the ports in the EndpointSlices of each cluster that has some.
func (i *importer) portsBySource(key types.NamespacedName) map[string]map[string]bool {
	have := i.held.imports[key]
	out := map[string]map[string]bool{}
	for _, s := range i.held.slices[key] {
		if !isOurSlice(s) || !hasOwner(s, have.UID) {
			continue
		}
		source := s.Labels[mcsv1alpha1.LabelSourceCluster]
		if out[source] == nil {
			out[source] = map[string]bool{}
		}
		for _, p := range s.Ports {
			out[source][value(p.Name)] = true
		}
	}
	return out
}

// readBack returns a record as far as the import shows it, with these of its ports, or all if the
// import has none of them. Where the import does not show what the cluster exports, the record
// agrees with it.
func (i *importer) readBack(key types.NamespacedName, ports map[string]bool) *v1alpha1.ExportedService {
	have := i.held.imports[key]
	r := &v1alpha1.ExportedService{
		Namespace:             key.Namespace,
		Name:                  key.Name,
		Headless:              have.Spec.Type == mcsv1alpha1.Headless,
		Labels:                exportedOf(have, have.Labels),
		Annotations:           exportedOf(have, have.Annotations),
		InternalTrafficPolicy: string(value(have.Spec.InternalTrafficPolicy)),
		TrafficDistribution:   value(have.Spec.TrafficDistribution),
		Direct:                have.Annotations[v1alpha1.DirectAnnotation] == "true",
		Spread:                have.Annotations[v1alpha1.SpreadAnnotation] == "true",
	}
	if c := have.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
		r.AffinitySeconds = value(c.ClientIP.TimeoutSeconds)
	}
	some := slices.ContainsFunc(have.Spec.Ports, func(p mcsv1alpha1.ServicePort) bool { return ports[p.Name] })
	for _, p := range have.Spec.Ports {
		if ports[p.Name] || !some {
			r.Ports = append(r.Ports, v1alpha1.ExportedPort{
				Name: p.Name, Protocol: string(p.Protocol), Port: p.Port, AppProtocol: value(p.AppProtocol),
			})
		}
	}
	return r
}

// value returns the value of an optional field.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
