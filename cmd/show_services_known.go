package cmd

import (
	"cmp"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/trust"
	"subctl/internal/look"
	"subctl/services"
)

// serviceKey is the namespace and name of a Service.
type serviceKey struct{ namespace, name string }

func (k serviceKey) compare(other serviceKey) int {
	return cmp.Or(strings.Compare(k.namespace, other.namespace), strings.Compare(k.name, other.name))
}

// knownServices indexes what a cluster knows of exported Services.
type knownServices struct {
	site       look.Site
	namespaces map[string]bool
	// These are by Service and by the ID of the exporter.
	records map[serviceKey]map[string]exportRecord
	uses    map[serviceKey]map[string]endpointUse
	refused map[serviceKey]map[string][]string // reasons
}

// exportRecord is an export record, and when its page was signed.
type exportRecord struct {
	v1alpha1.ExportedService
	signed time.Time // zero for those of the cluster itself
}

// endpointUse is what the EndpointSlices of an exporter hold.
type endpointUse struct {
	ready, all int
	zones      map[string]bool // of the hints of ready endpoints
	unhinted   bool            // a ready endpoint has no hints
	withheld   string          // services.WithheldAnnotation
	address    bool            // the only endpoint is the exporter's address of the Service
}

// shares reports whether kube-proxy uses endpoints of both. It uses only those with hints for a
// zone of its own if there are some. Endpoints of this cluster have hints for all its zones.
func (u endpointUse) shares(other endpointUse) bool {
	if u.unhinted || other.unhinted {
		return true
	}
	for zone := range other.zones {
		if u.zones[zone] {
			return true
		}
	}
	return false
}

func newKnownServices(s look.Site) *knownServices {
	k := &knownServices{
		site: s, namespaces: map[string]bool{}, records: map[serviceKey]map[string]exportRecord{},
		uses: map[serviceKey]map[string]endpointUse{}, refused: map[serviceKey]map[string][]string{},
	}
	for i := range s.Services.Namespaces {
		k.namespaces[s.Services.Namespaces[i].Name] = true
	}
	for i := range s.Services.Pages {
		k.addPage(&s.Services.Pages[i])
	}
	for i := range s.Services.Slices {
		k.addSlice(&s.Services.Slices[i])
	}
	for _, r := range s.RefusedServices() {
		key := serviceKey{r.Service.Namespace, r.Service.Name}
		if k.refused[key] == nil {
			k.refused[key] = map[string][]string{}
		}
		k.refused[key][r.Cluster] = append(k.refused[key][r.Cluster], r.Reason)
	}
	return k
}

// addPage adds the records of a page. What names another cluster than the one that published it is
// left out, as the agent does.
func (k *knownServices) addPage(page *v1alpha1.ExportedServices) {
	id := submarinerv1.MakerOf(page, k.site.Name)
	if id != page.Spec.ClusterID {
		return
	}
	var signed time.Time
	if token := page.Annotations[submarinerv1.SignatureAnnotation]; token != "" && id != k.site.Name {
		if s, err := trust.ReadStatement(token); err == nil {
			signed = time.UnixMilli(s.Sequence)
		}
	}
	for _, r := range page.Spec.Services {
		key := serviceKey{r.Namespace, r.Name}
		if k.records[key] == nil {
			k.records[key] = map[string]exportRecord{}
		}
		if had, ok := k.records[key][id]; !ok || signed.After(had.signed) { // it has moved to another page
			k.records[key][id] = exportRecord{r, signed}
		}
	}
}

// addSlice adds the endpoints of an EndpointSlice that the agent has made.
func (k *knownServices) addSlice(o *discoveryv1.EndpointSlice) {
	key := serviceKey{o.Namespace, o.Labels[mcsv1alpha1.LabelServiceName]}
	id := o.Labels[mcsv1alpha1.LabelSourceCluster]
	if id == "" || o.Labels[discoveryv1.LabelManagedBy] != services.ManagedBy {
		return
	}
	if k.uses[key] == nil {
		k.uses[key] = map[string]endpointUse{}
	}
	use := k.uses[key][id]
	if use.zones == nil {
		use.zones = map[string]bool{}
	}
	use.withheld = cmp.Or(o.Annotations[services.WithheldAnnotation], use.withheld)
	use.address = use.address || services.HasAddress(o)
	for _, e := range o.Endpoints {
		use.all++
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		use.ready++
		if e.Hints == nil || len(e.Hints.ForZones) == 0 {
			use.unhinted = true
			continue
		}
		for _, zone := range e.Hints.ForZones {
			use.zones[zone.Name] = true
		}
	}
	k.uses[key][id] = use
}

// lastKnown returns when a Service was exported or, by other clusters, last published.
func (k *knownServices) lastKnown(key serviceKey) (last time.Time) {
	for _, r := range k.records[key] {
		at := r.signed
		if at.IsZero() {
			at = time.Unix(r.ExportedAt, 0)
		}
		if at.After(last) {
			last = at
		}
	}
	return last
}

// typeOf returns the type of the import of a record.
func typeOf(headless bool) string {
	if headless {
		return string(mcsv1alpha1.Headless)
	}
	return string(mcsv1alpha1.ClusterSetIP)
}

// modeOf returns how other clusters reach what a record describes.
func modeOf(r v1alpha1.ExportedService) string {
	if r.Headless || len(r.Endpoints) > 0 {
		return modePods
	}
	return modeAddress
}

// endpointsOf returns the number of endpoints of a record. An address is one.
func endpointsOf(r v1alpha1.ExportedService) *endpointCount {
	n := &endpointCount{}
	if modeOf(r) == modeAddress {
		n.All = 1
		if r.Ready {
			n.Ready = 1
		}
		return n
	}
	for _, group := range r.Endpoints {
		for _, pod := range group.Pods {
			n.All++
			if pod.State == v1alpha1.EndpointReady {
				n.Ready++
			}
		}
	}
	return n
}

// portsOf returns the ports of a record.
func portsOf(ports []v1alpha1.ExportedPort) []servicePort {
	out := []servicePort{}
	for _, p := range ports {
		out = append(out, servicePort{p.Name, cmp.Or(p.Protocol, "TCP"), p.Port})
	}
	return out
}
