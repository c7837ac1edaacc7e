package services

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// Domain is the DNS domain of imported Services (KEP-1645).
const Domain = "clusterset.local"

// ManagedBy is the value of the label endpointslice.kubernetes.io/managed-by of the EndpointSlices
// that we make. It keeps the controller of Kubernetes from them.
const ManagedBy = "service-discovery.submariner.io"

// Annotations of EndpointSlices that we make.
const (
	// AddressAnnotation is the address at which the exporter serves the Service: its cluster IP, or
	// with a global network its global address. DNS servers that answer with exporters' addresses
	// need it.
	AddressAnnotation = "submariner.io/address"
	// WithheldAnnotation tells why no endpoint of a slice is ready or serving, whatever its
	// exporter says.
	WithheldAnnotation = "submariner.io/withheld"
)

// Values of WithheldAnnotation.
const (
	// WithheldUnreachable stands for a cluster that no gateway is connected to.
	WithheldUnreachable = "unreachable"
	// WithheldLocalFirst stands for a cluster whose endpoints are used when this cluster has no
	// ready one, where kube-proxy follows no hints.
	WithheldLocalFirst = "local-first"
)

// derivedServiceAnnotation is on ServiceImports (KEP-1645). Its value is the name of the derived
// Service.
const derivedServiceAnnotation = "multicluster.kubernetes.io/derived-service"

// Source is what a cluster has to export. Lists are sorted by namespace and name.
type Source struct {
	ClusterID string
	Exports   []*mcsv1alpha1.ServiceExport
	Services  []*corev1.Service
	// Slices are EndpointSlices that others than this agent have made.
	Slices []*discoveryv1.EndpointSlice
	// GlobalNetworks are the global networks of the cluster, if it has any, and Ingress are the
	// addresses there.
	GlobalNetworks []netip.Prefix
	Ingress        []*submarinerv1.GlobalIngressIP
	// PodNetworks and ServiceNetworks are announced to other clusters, and contain what they reach.
	PodNetworks, ServiceNetworks []netip.Prefix
	// Published are the pages that the cluster has.
	Published []*v1alpha1.ExportedServices
	// Readers is the number of other clusters in the clustersets of this one.
	Readers int
	// MayExport reports whether the cluster's grant allows exports from a namespace. Nil allows
	// all.
	MayExport func(namespace string) bool
}

// Exported is the result for one ServiceExport.
type Exported struct {
	Export *mcsv1alpha1.ServiceExport
	// Record is nil if the Service cannot be exported now.
	Record *v1alpha1.ExportedService
	// Local is the record with the endpoints that the own cluster uses: the pods by their own
	// addresses, whatever Record publishes. It is nil if Record is.
	Local *v1alpha1.ExportedService
	// Conditions are Valid, Ready and Conflict, without times; with a global network Published and
	// Conflict, as the globalnet agent writes the others. Conclude completes them.
	Conditions []metav1.Condition
}

// Conflict is a disagreement between the exporters of a Service.
type Conflict struct {
	// Reasons are the reasons of the API, such as PortConflict, sorted.
	Reasons []string
	// Message names both sides.
	Message string
}

// Member is another cluster, as far as Import needs to know.
type Member struct {
	ID string
	// Pages are copies of its pages.
	Pages []*v1alpha1.ExportedServices
	// PodNetworks, ServiceNetworks and GlobalNetworks are those that it announces.
	PodNetworks, ServiceNetworks, GlobalNetworks []netip.Prefix
	// Routed are the networks for which gateways have a connection to the cluster, as far as known:
	// they belong to no other cluster, and to no node.
	Routed []netip.Prefix
	// Unreachable reports that no gateway is connected to the cluster. Its endpoints are kept and
	// not used.
	Unreachable bool
	// Unknown reports that nobody knows whether a gateway is: endpoints that are used stay in use,
	// and those that are not do not come back.
	Unknown bool
}

// View is what an importing cluster sees. Lists are sorted by namespace and name.
type View struct {
	ClusterID string
	// Now is the time by the clock of the API server, about.
	Now time.Time
	// Own are the records of this cluster's own exports, with the endpoints that it uses itself.
	Own []v1alpha1.ExportedService
	// Members are the other clusters whose Cluster objects are here, by ID.
	Members []Member
	// Contact is the contact with the broker.
	Contact Contact
	// Namespaces are the names of the namespaces in which objects can be made.
	Namespaces map[string]bool
	// Forbidden are networks in which no other cluster has endpoints: the cluster's own networks,
	// and the addresses of its nodes and API servers, which do not count where gateways are
	// connected to a cluster.
	Forbidden []netip.Prefix
	// Zones are the zones of this cluster's nodes, sorted; "" stands for nodes without one.
	Zones []string
	// Hints reports whether kube-proxy follows zone hints of EndpointSlices. Otherwise endpoints of
	// other clusters are withheld while the cluster has ready ones of its own.
	Hints bool
	Rules []v1alpha1.ImportRule
	// MaxImports is the maximum number of imports; 0 stands for MaxImports, the constant.
	MaxImports int
	// Direct is v1alpha1.DirectAnnotation for all imports.
	Direct bool
	// MayExport reports whether exports from a namespace count that no grant names.
	MayExport func(namespace string) bool

	// Settled is that of the last result; the zero value plans all anew. The result is the same.
	Settled Settled

	// Imports, Services and Slices are what the API server holds: all ServiceImports, all Services,
	// and all EndpointSlices.
	Imports  []*mcsv1alpha1.ServiceImport
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
}

// Imported is the result of Import: the differences between what the API server holds and what it
// should hold, and what it means.
type Imported struct {
	// Imports, Services and Slices are to be applied. A ServiceImport comes first, then its Service
	// (which needs its UID), then the address of the Service, in different rounds.
	Imports  []*mcsv1alpha1.ServiceImport
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	// Statuses are ServiceImports whose status is to be replaced. A condition without time has
	// changed, and gets the time from who writes it.
	Statuses []*mcsv1alpha1.ServiceImport
	// Delete are objects of ours to delete.
	Delete []metav1.Object
	// Conflicts are those of all imports.
	Conflicts map[types.NamespacedName]Conflict
	// Refused are records that are not imported, or only in part.
	Refused []Refusal
	// Settled is for the next View.
	Settled Settled
}

// Refusal is a record, or a part of it, that is not imported.
type Refusal struct {
	Cluster string
	Service types.NamespacedName
	Reason  string
}
