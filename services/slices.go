package services

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
)

const (
	// otherZone is the zone in the hints of endpoints of other clusters. No node is in it.
	otherZone = "other-cluster.submariner.io"
	// maxZoneHints is the number of hints that the API allows for an endpoint.
	maxZoneHints = 8
	// sliceLimit is the number of endpoints in a slice, as of the controller of Kubernetes.
	sliceLimit = 100
)

// locality is how an import prefers the endpoints of the own cluster.
type locality struct {
	// own and other are the hints of endpoints; nil for none.
	own, other *discoveryv1.EndpointHints
	// withhold has the ports for which the own cluster has a ready endpoint, if endpoints of other
	// clusters are then not to be used.
	withhold map[string]bool
}

// withholds reports whether endpoints of other clusters with some ports are not to be used. Those
// with a port that the own cluster does not serve are: it would not be reachable otherwise.
func (l locality) withholds(ports []discoveryv1.EndpointPort) bool {
	return len(l.withhold) > 0 &&
		!slices.ContainsFunc(ports, func(p discoveryv1.EndpointPort) bool { return !l.withhold[value(p.Name)] })
}

// locality returns how to prefer own endpoints. kube-proxy follows hints only if each ready
// endpoint has one, and uses all endpoints if no hint is for the zone of the node: while an own
// endpoint is ready it uses own ones, otherwise those of others. Nobody has to act for that. It
// does so for each port by itself.
func (i *importer) locality(m *merged) locality {
	if m.own() == nil || m.headless() || m.decides().Spread {
		return locality{}
	}
	if i.Hints && len(i.Zones) > 0 && len(i.Zones) <= maxZoneHints {
		own := &discoveryv1.EndpointHints{}
		for _, zone := range i.Zones {
			own.ForZones = append(own.ForZones, discoveryv1.ForZone{Name: zone})
		}
		return locality{own: own, other: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: otherZone}}}}
	}
	l := locality{withhold: map[string]bool{}}
	for _, g := range m.own().Endpoints {
		if groupReady(g) {
			for _, p := range m.endpointPorts(m.own(), g.Targets) {
				l.withhold[*p.Name] = true
			}
		}
	}
	return l
}

// own returns the record of the own cluster; nil if it exports nothing here.
func (m *merged) own() *v1alpha1.ExportedService {
	n := slices.IndexFunc(m.exporters, func(c claim) bool { return c.own })
	if n < 0 {
		return nil
	}
	return m.exporters[n].record
}

// ownReady reports whether the import has a ready endpoint of the own cluster.
func (m *merged) ownReady() bool {
	own := m.own()
	return own != nil && hasReady(m, own)
}

// hasReady reports whether the import has a ready endpoint of a record.
func hasReady(m *merged, r *v1alpha1.ExportedService) bool {
	return slices.ContainsFunc(r.Endpoints, func(g v1alpha1.ExportedEndpoints) bool {
		return len(m.endpointPorts(r, g.Targets)) > 0 && groupReady(g)
	})
}

// groupReady reports whether one of some endpoints is ready.
func groupReady(g v1alpha1.ExportedEndpoints) bool {
	return slices.ContainsFunc(g.Pods,
		func(p v1alpha1.ExportedEndpoint) bool { return p.State == v1alpha1.EndpointReady })
}

// wantSlices returns the EndpointSlices of an import, except those of missing pages that stay as
// they are.
//
// If all other clusters look unreachable, the fault is more likely here: only those that were so
// before are, unless the own cluster has ready endpoints, which lose nothing by it. What is not
// known of a cluster changes nothing, either.
func (i *importer) wantSlices(m *merged, owner *mcsv1alpha1.ServiceImport) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	l := i.locality(m)
	meta := newSliceMeta(m, owner)
	before := i.heldBefore(m.key)
	keep := i.localFault && !m.ownReady()
	for _, c := range m.exporters {
		was := before[c.cluster]
		unreachable := c.unreachable && !keep || (keep || c.unknown) && was.unreachable
		if c.kept {
			out = append(out, i.keptSlices(m, c, meta, l, unreachable)...)
			continue
		}
		hints := l.own
		if !c.own {
			hints = l.other
		}
		n := 0
		for _, g := range groupsOf(c, i.standsFor(c.record, was)) {
			ports := m.endpointPorts(c.record, g.Targets)
			if len(ports) == 0 && !m.headless() {
				continue
			}
			withheld := ""
			if !c.own {
				withheld = withheldBecause(unreachable, l.withholds(ports))
			}
			for pods := range slices.Chunk(sortedPods(g.Pods), sliceLimit) {
				s := meta.slice(c, n, withheld)
				n++
				s.Ports = ports
				s.Endpoints = make([]discoveryv1.Endpoint, len(pods))
				for at := range pods {
					s.Endpoints[at] = wantEndpoint(&pods[at], withheld != "", hints)
					if m.headless() {
						s.Endpoints[at].Hostname = optional(pods[at].Hostname)
					}
				}
				out = append(out, s)
			}
		}
	}
	return out
}

// withheldBecause returns why the endpoints of another cluster are not to be used: a value of
// WithheldAnnotation, or "" if they are.
func withheldBecause(unreachable, localFirst bool) string {
	switch {
	case unreachable:
		return WithheldUnreachable
	case localFirst:
		return WithheldLocalFirst
	}
	return ""
}

// groupsOf returns the endpoints of a record. If another cluster publishes none, or its address
// stands for them, the address is the endpoint, and has the ports of the Service. The own address
// of a Service is no endpoint: kube-proxy does not translate twice.
func groupsOf(c claim, address bool) []v1alpha1.ExportedEndpoints {
	r := c.record
	if len(r.Endpoints) > 0 && !address || c.own || r.Address == "" || r.Headless {
		return r.Endpoints
	}
	state := v1alpha1.EndpointReady
	if !r.Ready {
		state = v1alpha1.EndpointNotReady
	}
	g := v1alpha1.ExportedEndpoints{Pods: []v1alpha1.ExportedEndpoint{{IP: r.Address, State: state}}}
	for _, p := range r.Ports {
		g.Targets = append(g.Targets, p.Port)
	}
	return []v1alpha1.ExportedEndpoints{g}
}

// endpointPorts returns the ports of endpoints: those that the import has with the number which
// they have at the exporter, under the name that they have in the import.
func (m *merged) endpointPorts(r *v1alpha1.ExportedService, targets []int32) []discoveryv1.EndpointPort {
	out := make([]discoveryv1.EndpointPort, 0, len(targets))
	for n := range min(len(targets), len(r.Ports)) {
		if targets[n] == 0 {
			continue
		}
		for at := range m.ports {
			p := &m.ports[at]
			if isPort(*p, r.Ports[n]) {
				out = append(out, discoveryv1.EndpointPort{
					Name: &p.Name, Protocol: &p.Protocol, Port: &targets[n], AppProtocol: p.AppProtocol,
				})
			}
		}
	}
	return out
}

// sortedPods returns endpoints in an order that does not depend on the exporter's.
func sortedPods(pods []v1alpha1.ExportedEndpoint) []v1alpha1.ExportedEndpoint {
	byAddress := func(a, b v1alpha1.ExportedEndpoint) int { return cmp.Compare(a.IP, b.IP) }
	if slices.IsSortedFunc(pods, byAddress) {
		return pods
	}
	return slices.SortedStableFunc(slices.Values(pods), byAddress)
}

// wantEndpoint returns an endpoint. It has neither a node nor a pod: those are objects of another
// cluster.
func wantEndpoint(p *v1alpha1.ExportedEndpoint, withheld bool, hints *discoveryv1.EndpointHints) discoveryv1.Endpoint {
	serves := p.State == v1alpha1.EndpointReady || p.State == v1alpha1.EndpointServing
	terminating := p.State == v1alpha1.EndpointTerminating || p.State == v1alpha1.EndpointServing
	return discoveryv1.Endpoint{
		Addresses: []string{p.IP},
		Conditions: discoveryv1.EndpointConditions{
			Ready:       new(p.State == v1alpha1.EndpointReady && !withheld),
			Serving:     new(serves && !withheld),
			Terminating: new(terminating),
		},
		Zone:  optional(p.Zone),
		Hints: hints,
	}
}

// sliceMeta is what the EndpointSlices of an import have in common.
type sliceMeta struct {
	name  string
	owner metav1.OwnerReference
	m     *merged
}

func newSliceMeta(m *merged, owner *mcsv1alpha1.ServiceImport) sliceMeta {
	return sliceMeta{name: DerivedName(m.key), owner: ownerOf(owner), m: m}
}

// slice returns the n-th slice of a cluster, without endpoints. IDs of clusters have at most 63
// characters, so that the name has fewer than 253.
func (s sliceMeta) slice(c claim, n int, withheld string) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.m.key.Namespace,
			Name:      fmt.Sprintf("%s-%s-%d", s.name, c.cluster, n),
			Labels: map[string]string{
				discoveryv1.LabelServiceName:   s.name,
				discoveryv1.LabelManagedBy:     ManagedBy,
				mcsv1alpha1.LabelServiceName:   s.m.key.Name,
				mcsv1alpha1.LabelSourceCluster: c.cluster,
			},
			OwnerReferences: []metav1.OwnerReference{s.owner},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	if s.m.headless() {
		out.Labels[corev1.IsHeadlessService] = "" // kube-proxy has nothing to do with it.
	}
	annotations := map[string]string{}
	if withheld != "" {
		annotations[WithheldAnnotation] = withheld
	}
	if c.record.Address != "" && !s.m.headless() {
		annotations[AddressAnnotation] = c.record.Address
	}
	if len(annotations) > 0 {
		out.Annotations = annotations
	}
	return out
}
