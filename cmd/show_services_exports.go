package cmd

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/services"
)

// exportedService is a Service that a cluster exports; its JSON is a promise.
type exportedService struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	DNSName   string        `json:"dnsName"`
	Type      string        `json:"type"` // ClusterSetIP or Headless; empty: nothing is published
	Ports     []servicePort `json:"ports"`
	State     string        `json:"state"`   // exported, waiting or conflict
	Reason    string        `json:"reason"`  // of the condition of the ServiceExport; empty: exported
	Message   string        `json:"message"` // of that condition
	Mode      string        `json:"mode"`    // pods or address; empty: nothing is published
	// Endpoints are those of the Service; null: not known.
	Endpoints *endpointCount `json:"endpoints"`
	Spread    bool           `json:"spread"`
	Direct    bool           `json:"direct"`

	since time.Time // when the state began
}

// The states of exports.
const (
	exportExported = "exported"
	exportWaiting  = "waiting"
	exportConflict = "conflict"
)

// The modes of export records.
const (
	modePods    = "pods"
	modeAddress = "address"
)

// stateText returns the state for a table.
func (e exportedService) stateText() string {
	if e.State == exportExported {
		return e.State
	}
	return e.State + ": " + cmp.Or(e.Reason, e.Message)
}

// exports returns the exports of the cluster, in the order of the API server.
func (k *knownServices) exports() []exportedService {
	out := []exportedService{}
	for i := range k.site.Services.Exports {
		o := &k.site.Services.Exports[i]
		key := serviceKey{o.Namespace, o.Name}
		e := exportedService{
			Namespace: o.Namespace, Name: o.Name, DNSName: dnsName(o.Namespace, o.Name), Ports: []servicePort{},
			Spread: o.Annotations[v1alpha1.SpreadAnnotation] == "true",
			Direct: o.Annotations[v1alpha1.DirectAnnotation] == "true",
		}
		record, published := k.records[key][k.site.Name]
		if published {
			e.Type = typeOf(record.Headless)
			e.Ports = portsOf(record.Ports)
			e.Mode = modeOf(record.ExportedService)
			e.Endpoints = endpointsOf(record.ExportedService)
		}
		if use, ok := k.uses[key][k.site.Name]; ok { // also has the pods of those in mode address
			e.Endpoints = &endpointCount{Ready: use.ready, All: use.all}
		}
		e.judge(o, published)
		out = append(out, e)
	}
	return out
}

// judge sets the state, by the conditions of the ServiceExport.
func (e *exportedService) judge(o *mcsv1alpha1.ServiceExport, published bool) {
	valid := exportCondition(o, mcsv1alpha1.ServiceExportConditionValid)
	ready := exportCondition(o, mcsv1alpha1.ServiceExportConditionReady)
	listed := exportCondition(o, services.ConditionPublished) // only with a global network
	conflict := exportCondition(o, mcsv1alpha1.ServiceExportConditionConflict)
	set := func(state string, c metav1.Condition) {
		e.State = state
		e.Reason = c.Reason
		e.Message = c.Message
		e.since = c.LastTransitionTime.Time
		if e.since.IsZero() {
			e.since = o.CreationTimestamp.Time
		}
	}
	switch {
	case valid.Status == metav1.ConditionFalse:
		set(exportWaiting, valid)
	case ready.Status != "" && ready.Status != metav1.ConditionTrue:
		set(exportWaiting, ready)
	case listed.Status == metav1.ConditionFalse:
		set(exportWaiting, listed)
	case ready.Status == "" || !published:
		set(exportWaiting, metav1.Condition{
			Reason: string(mcsv1alpha1.ServiceExportReasonPending), LastTransitionTime: o.CreationTimestamp,
			Message: "the agent of service discovery has not published it: see kubectl -n " + cluster.Namespace +
				" get deployment " + cluster.ServiceDiscoveryName,
		})
	case conflict.Status == metav1.ConditionTrue:
		set(exportConflict, conflict)
	default:
		e.State = exportExported
	}
}
