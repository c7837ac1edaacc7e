package cmd

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/services"
)

// importedService is a Service that a cluster imports, or that others export in a namespace that it
// does not have; its JSON is a promise.
type importedService struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	DNSName   string        `json:"dnsName"`
	Type      string        `json:"type"` // ClusterSetIP or Headless
	IPs       []string      `json:"ips"`  // for which the name stands in this cluster; empty: headless, or waiting
	Ports     []servicePort `json:"ports"`
	State     string        `json:"state"`   // imported, waiting, refused, foreign or no namespace
	Message   string        `json:"message"` // why it waits
	Spread    bool          `json:"spread"`
	Direct    bool          `json:"direct"`
	Clusters  []exporter    `json:"clusters"`

	since time.Time // of the import
}

// The states of imports.
const (
	importImported    = "imported"
	importWaiting     = "waiting"
	importRefused     = "refused" // from all clusters that export it
	importForeign     = "foreign" // another program has made the ServiceImport
	importNoNamespace = "no namespace"
)

// exporter is a cluster that exports an imported Service; its JSON is a promise.
type exporter struct {
	Cluster string `json:"cluster"`
	// Endpoints are those that the cluster publishes; in mode address there is one. Null: not
	// known.
	Endpoints *endpointCount `json:"endpoints"`
	Mode      string         `json:"mode"`  // pods or address, as it is in use; empty: not known
	Known     string         `json:"known"` // RFC 3339: when the cluster signed it; empty for the cluster itself
	State     string         `json:"state"` // see the help
	// why the Service of the cluster, or a part of it, is refused; empty: it is not
	Reason string `json:"reason"`

	age string
}

// The states of exporters.
const (
	exporterUsed        = "used"
	exporterWithheld    = "withheld"
	exporterNotReady    = "not ready"
	exporterUnreachable = "unreachable"
	exporterRefused     = "refused"
	exporterPending     = "pending"
	exporterNoNamespace = importNoNamespace
)

// stateText returns the state for a table.
func (x exporter) stateText() string {
	switch {
	case x.State == exporterRefused:
		return x.State + ": " + x.Reason
	case x.Reason != "":
		return x.State + "; refused in part: " + x.Reason
	}
	return x.State
}

// imports returns what the cluster imports, or could import, by namespace and name.
func (k *knownServices) imports() []importedService {
	objects := map[serviceKey]*mcsv1alpha1.ServiceImport{}
	for i := range k.site.Services.Imports {
		o := &k.site.Services.Imports[i]
		objects[serviceKey{o.Namespace, o.Name}] = o
	}
	keys := map[serviceKey]bool{}
	for key := range objects {
		keys[key] = true
	}
	for key := range k.records {
		keys[key] = true
	}
	out := []importedService{}
	for _, key := range slices.SortedFunc(maps.Keys(keys), serviceKey.compare) {
		out = append(out, k.imported(key, objects[key]))
	}
	return out
}

// imported returns an import; o is nil if there is none.
func (k *knownServices) imported(key serviceKey, o *mcsv1alpha1.ServiceImport) importedService {
	out := importedService{
		Namespace: key.namespace, Name: key.name, DNSName: dnsName(key.namespace, key.name), IPs: []string{},
		Ports: []servicePort{}, State: importImported, Clusters: k.exporters(key, o),
	}
	if o == nil {
		out.Type, out.Ports = k.exportedAs(key)
	} else {
		out.Type = string(o.Spec.Type)
		out.since = o.CreationTimestamp.Time
		out.IPs = append(out.IPs, o.Spec.IPs...)
		out.Spread = o.Annotations[v1alpha1.SpreadAnnotation] == "true"
		out.Direct = o.Annotations[v1alpha1.DirectAnnotation] == "true"
		for _, p := range o.Spec.Ports {
			out.Ports = append(out.Ports, servicePort{p.Name, cmp.Or(string(p.Protocol), "TCP"), p.Port})
		}
	}
	switch {
	case o == nil && !k.namespaces[key.namespace]:
		out.State = importNoNamespace
	case o == nil && !slices.ContainsFunc(out.Clusters, func(x exporter) bool { return x.State != exporterRefused }):
		out.State = importRefused
	case o == nil:
		out.State = importWaiting
		out.Message = "the agent of service discovery has not imported it"
		out.since = k.lastKnown(key)
	case o.Labels[submarinerv1.ManagedByLabel] != submarinerv1.ManagedBy:
		out.State = importForeign
	default:
		if message := notReady(o); message != "" {
			out.State = importWaiting
			out.Message = message
		}
	}
	return out
}

// exportedAs returns the type and the ports of a Service that is not imported, as the first cluster
// exports it.
func (k *knownServices) exportedAs(key serviceKey) (string, []servicePort) {
	for _, id := range slices.Sorted(maps.Keys(k.records[key])) {
		r := k.records[key][id]
		return typeOf(r.Headless), portsOf(r.Ports)
	}
	return "", []servicePort{}
}

// notReady returns why an import is not ready, such as a name that is taken, or a missing address;
// empty if it is.
func notReady(o *mcsv1alpha1.ServiceImport) string {
	for _, c := range o.Status.Conditions {
		if c.Type == string(mcsv1alpha1.ServiceImportConditionReady) && c.Status == metav1.ConditionFalse &&
			cmp.Or(c.Message, c.Reason) != "" {
			return cmp.Or(c.Message, c.Reason)
		}
	}
	if o.Spec.Type != mcsv1alpha1.Headless && len(o.Spec.IPs) == 0 {
		return "the agent of service discovery has not created its Service"
	}
	return ""
}

// exporters returns the clusters that export a Service, by ID.
func (k *knownServices) exporters(key serviceKey, o *mcsv1alpha1.ServiceImport) []exporter {
	ids := map[string]bool{}
	for id := range k.records[key] {
		ids[id] = true
	}
	for id := range k.uses[key] {
		ids[id] = true
	}
	if o != nil {
		for _, c := range o.Status.Clusters {
			ids[c.Cluster] = true
		}
	}
	out := []exporter{}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		seen := o != nil && slices.ContainsFunc(o.Status.Clusters, func(c mcsv1alpha1.ClusterStatus) bool {
			return c.Cluster == id
		})
		out = append(out, k.exporter(key, id, seen))
	}
	return out
}

// exporter returns what is known of an export of a cluster. There is no EndpointSlice of an export
// that the agent has seen, if it has no endpoints.
func (k *knownServices) exporter(key serviceKey, id string, seen bool) exporter {
	x := exporter{Cluster: id, Reason: strings.Join(k.refused[key][id], "; ")}
	record, published := k.records[key][id]
	use, imported := k.uses[key][id]
	if published {
		if use.address && id != k.site.Name {
			record.Endpoints = nil // they are not used: the broker is away
		}
		x.Mode = modeOf(record.ExportedService)
		x.Endpoints = endpointsOf(record.ExportedService)
		if !record.signed.IsZero() {
			x.Known = record.signed.UTC().Format(time.RFC3339)
			x.age = max(0, k.site.Now.Sub(record.signed)).Round(time.Second).String()
		}
	}
	if id == k.site.Name && published {
		if x.Mode == modeAddress { // other clusters use the address
			x.Endpoints = nil
		}
		x.Mode = modePods
	}
	if imported && (id == k.site.Name || !published) {
		x.Endpoints = &endpointCount{Ready: use.ready, All: use.all}
	}
	own := k.uses[key][k.site.Name]
	switch {
	case !k.namespaces[key.namespace]:
		x.State = exporterNoNamespace
		x.Reason = ""
	case !imported && x.Reason != "":
		x.State = exporterRefused
	case !imported && !seen:
		x.State = exporterPending
	case use.withheld == services.WithheldUnreachable:
		x.State = exporterUnreachable
	case use.withheld != "", id != k.site.Name && own.ready > 0 && use.ready > 0 && !own.shares(use):
		x.State = exporterWithheld
	case use.ready > 0:
		x.State = exporterUsed
	default:
		x.State = exporterNotReady
	}
	return x
}
