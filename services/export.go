package services

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/prefix"
)

// When a record has pods beside the address of a Service. Each change of a pod is a write that goes
// to all readers: with 10 MB/s of the broker, and 30 KiB for a signed page, each of 50 clusters can
// write every 8 seconds (adr/0048). 64 pods are a quarter of the endpoints that Kubernetes
// recommends for a Service, so that those of four clusters are within it.
const (
	maxPods    = 64
	maxReaders = 50
)

// bounds are the largest numbers of endpoints, readers and bytes with which a record has pods.
type bounds struct{ pods, readers, bytes int }

// A record without pods gets them again when the Service is well within the bounds. Otherwise each
// change of a Service at a bound would be a write, and would end connections.
var (
	toKeep   = bounds{pods: maxPods, readers: maxReaders, bytes: maxRecord}
	toReturn = bounds{pods: 48, readers: 40, bytes: maxRecord * 3 / 4}
)

// maxEndpoints is the maximum number of endpoints of a headless Service.
const maxEndpoints = v1alpha1.MaxExportedPods

// Export returns the result for each ServiceExport that is not being deleted, sorted by namespace
// and name.
func Export(s Source) []Exported {
	x := exporter{
		Source:    s,
		services:  make(map[types.NamespacedName]*corev1.Service, len(s.Exports)),
		slices:    make(map[types.NamespacedName][]*discoveryv1.EndpointSlice, len(s.Exports)),
		ingress:   newIngress(s),
		byAddress: publishedByAddress(s.Published),
	}
	for _, e := range s.Exports {
		x.services[keyOf(e)] = nil
	}
	for _, service := range s.Services {
		if _, exported := x.services[keyOf(service)]; exported {
			x.services[keyOf(service)] = service
		}
	}
	for _, slice := range s.Slices {
		key := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		if x.services[key] != nil && slice.Labels[discoveryv1.LabelManagedBy] != ManagedBy {
			x.slices[key] = append(x.slices[key], slice)
		}
	}
	out := make([]Exported, 0, len(s.Exports))
	for _, e := range s.Exports {
		if e.DeletionTimestamp == nil {
			out = append(out, x.export(e))
		}
	}
	return out
}

// exporter has an index of a Source: the Services that are exported, and their EndpointSlices.
type exporter struct {
	Source
	services map[types.NamespacedName]*corev1.Service
	slices   map[types.NamespacedName][]*discoveryv1.EndpointSlice
	ingress  ingress
	// byAddress are the Services whose published records have no pods, although some are ready.
	byAddress map[types.NamespacedName]bool
}

// publishedByAddress returns the Services whose records in pages have no pods, although some are
// ready.
func publishedByAddress(pages []*v1alpha1.ExportedServices) map[types.NamespacedName]bool {
	out := map[types.NamespacedName]bool{}
	for _, page := range pages {
		for n := range page.Spec.Services {
			r := &page.Spec.Services[n]
			if r.Ready && !r.Headless && len(r.Endpoints) == 0 {
				out[nameOf(r)] = true
			}
		}
	}
	return out
}

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (x *exporter) global() bool { return len(x.GlobalNetworks) > 0 }

// export returns the result for a ServiceExport.
func (x *exporter) export(e *mcsv1alpha1.ServiceExport) Exported {
	out := Exported{Export: e}
	service := x.services[keyOf(e)]
	var notes []string
	no := x.obstacle(e, service)
	if no == nil {
		out.Record, out.Local, notes, no = x.records(e, service)
	}
	out.Conditions = x.conditions(e, no, notes)
	return out
}

// obstacle returns why a Service cannot be exported, whatever its endpoints are; nil if it can.
func (x *exporter) obstacle(e *mcsv1alpha1.ServiceExport, s *corev1.Service) *obstacle {
	switch {
	case s == nil:
		return noService(e)
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return invalidType(
			"a Service of type ExternalName has no endpoints in this cluster: export a Service with endpoints")
	case isDerived(s):
		return invalidType("the Service stands for an imported Service: export that one, in the clusters that run it")
	case !hasIPv4(s):
		return invalidType("the Service has no IPv4 address, at which other clusters could reach it: " +
			"set spec.ipFamilyPolicy of the Service to PreferDualStack")
	case x.MayExport != nil && !x.MayExport(e.Namespace):
		return notGranted(e.Namespace)
	case isHeadless(s):
		return nil
	case !clusterIP(s).IsValid():
		return pending("the Service has no cluster IP yet")
	case !x.global() && !prefix.Contains(x.ServiceNetworks, clusterIP(s)):
		return failed("the cluster IP %s is in no Service network that this cluster announces: "+
			"join again, and specify all Service networks with --servicecidr", clusterIP(s))
	}
	return nil
}

// isDerived reports whether a Service stands for an imported one, here or in another
// implementation.
func isDerived(s *corev1.Service) bool {
	if _, labelled := s.Labels[mcsv1alpha1.LabelServiceName]; labelled {
		return true
	}
	return slices.ContainsFunc(s.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == mcsv1alpha1.ServiceImportKindName
	})
}

func isHeadless(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone }

// hasIPv4 reports whether IPv4 is among the IP families of a Service. A Service without any has not
// got its families yet.
func hasIPv4(s *corev1.Service) bool {
	return len(s.Spec.IPFamilies) == 0 || slices.Contains(s.Spec.IPFamilies, corev1.IPv4Protocol)
}

// clusterIP returns the IPv4 cluster IP of a Service; the zero Addr if it has none.
func clusterIP(s *corev1.Service) netip.Addr {
	for _, text := range append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...) {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() {
			return ip
		}
	}
	return netip.Addr{}
}

// records returns the record of a Service for other clusters, the one for the own cluster, and what
// of the Service is left out; or why there is no record.
func (x *exporter) records(
	e *mcsv1alpha1.ServiceExport, s *corev1.Service,
) (record, local *v1alpha1.ExportedService, notes []string, no *obstacle) {
	record, notes = newRecord(e, s)
	endpoints := endpointsOf(s, record.Ports, x.slices[keyOf(s)])

	clone := *record
	local = &clone
	local.Ready = anyReady(endpoints)
	local.Endpoints = group(endpoints)
	if !isHeadless(s) {
		local.Address = clusterIP(s).String()
	}
	give := x.flat
	if x.global() {
		give = x.translated
	}
	more, no := give(record, s, endpoints)
	notes = append(notes, more...)
	if no == nil && len(record.Endpoints) == 0 && jsonSize(record) > maxRecord {
		no = failed("its ports, exportedLabels and exportedAnnotations take more than %d KiB: export fewer",
			maxRecord>>10)
	}
	if no != nil {
		return nil, nil, nil, no
	}
	return record, local, notes, nil
}

// newRecord returns the record of a Service without address and endpoints, and what is left out.
func newRecord(e *mcsv1alpha1.ServiceExport, s *corev1.Service) (*v1alpha1.ExportedService, []string) {
	r := &v1alpha1.ExportedService{
		Namespace:  e.Namespace,
		Name:       e.Name,
		Headless:   isHeadless(s),
		ExportedAt: e.CreationTimestamp.Unix(),
		Spread:     e.Annotations[v1alpha1.SpreadAnnotation] == "true",
		Direct:     e.Annotations[v1alpha1.DirectAnnotation] == "true",
	}
	var notes []string
	r.Ports, notes = portsOf(s)
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		r.AffinitySeconds = corev1.DefaultClientIPServiceAffinitySeconds
		if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			r.AffinitySeconds = *c.ClientIP.TimeoutSeconds
		}
	}
	if p := s.Spec.InternalTrafficPolicy; p != nil {
		r.InternalTrafficPolicy = string(*p)
	}
	if d := s.Spec.TrafficDistribution; d != nil && len(*d) <= validation.LabelValueMaxLength {
		r.TrafficDistribution = *d
	}
	var dropped []string
	r.Labels, r.Annotations, dropped = importable(e.Spec.ExportedLabels, e.Spec.ExportedAnnotations)
	if len(dropped) > 0 {
		notes = append(notes, droppedKeys(dropped))
	}
	return r, notes
}

// portsOf returns the ports of a Service, and what is left out.
func portsOf(s *corev1.Service) (ports []v1alpha1.ExportedPort, notes []string) {
	for i := range s.Spec.Ports[:min(v1alpha1.MaxExportedPorts, len(s.Spec.Ports))] {
		p := &s.Spec.Ports[i]
		port := v1alpha1.ExportedPort{Name: p.Name, Port: p.Port}
		if p.Protocol != corev1.ProtocolTCP {
			port.Protocol = string(p.Protocol)
		}
		if p.AppProtocol != nil && len(*p.AppProtocol) <= v1alpha1.MaxAppProtocol {
			port.AppProtocol = *p.AppProtocol
		} else if p.AppProtocol != nil {
			notes = append(notes, longAppProtocol(p))
		}
		ports = append(ports, port)
	}
	if len(s.Spec.Ports) > v1alpha1.MaxExportedPorts {
		notes = append(notes, morePorts(s.Spec.Ports[v1alpha1.MaxExportedPorts:]))
	}
	return ports, notes
}

// flat gives a record the addresses at which other clusters reach a Service without translation. It
// returns what is left out, or why they do not reach it.
func (x *exporter) flat(r *v1alpha1.ExportedService, s *corev1.Service, all []endpoint) (notes []string, no *obstacle) {
	var own, foreign []endpoint
	for _, e := range all {
		if prefix.Contains(x.PodNetworks, e.addr) {
			own = append(own, e)
		} else {
			foreign = append(foreign, e)
		}
	}
	if !r.Headless {
		r.Address = clusterIP(s).String()
	}
	// Without a selector, somebody has chosen the endpoints: those outside of the cluster are not
	// the cluster's to export. With one, they are pods in the network of their node, which others
	// reach through the cluster IP alone.
	chosen := len(foreign) > 0 && len(s.Spec.Selector) == 0
	switch {
	case chosen && len(own) == 0:
		return nil, failed("%s", outside(foreign))
	case chosen, r.Headless, isLocal(s):
		r.Ready = anyReady(own)
		if rest := publish(r, own); len(rest) > 0 {
			notes = append(notes, tooMany(rest))
		}
		if len(foreign) > 0 {
			notes = append(notes, outside(foreign))
		}
		if chosen {
			r.Address = "" // it leads to the others, too
		}
	default:
		r.Ready = anyReady(all)
		most := toKeep
		if x.byAddress[nameOf(r)] {
			most = toReturn
		}
		if len(foreign) > 0 || x.Readers > most.readers || len(own) > most.pods || len(publish(r, own)) > 0 ||
			jsonSize(r) > most.bytes {
			r.Endpoints = nil // its address leads to all of them
		}
	}
	return notes, nil
}

// isLocal reports whether kube-proxy of a gateway would lead the cluster IP of a Service to
// endpoints on the gateway alone. Other clusters need its pods.
func isLocal(s *corev1.Service) bool {
	return s.Spec.InternalTrafficPolicy != nil &&
		*s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
}

// translated gives a record the global addresses at which other clusters reach a Service. It
// returns what is left out, or why they do not reach it yet.
func (x *exporter) translated(
	r *v1alpha1.ExportedService, s *corev1.Service, all []endpoint,
) (notes []string, no *obstacle) {
	if !r.Headless {
		ip, allocated := x.ingress.services[keyOf(s)]
		if !allocated {
			return nil, pending("the Service has no global address yet")
		}
		r.Address = ip.addr.String()
		r.Ready = anyReady(all)
		return nil, nil
	}
	endpoints := x.ingress.translate(s, all)
	r.Ready = anyReady(endpoints)
	if rest := publish(r, endpoints); len(rest) > 0 {
		notes = append(notes, tooMany(rest))
	}
	return notes, nil
}
