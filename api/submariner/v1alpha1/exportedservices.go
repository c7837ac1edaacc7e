package v1alpha1

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExportedServices is one page of the Services that a cluster exports. The cluster's service
// discovery agent writes its pages, named by ExportedServicesName; the speaker signs and publishes
// them like Endpoints. Pages of other clusters are copies with ClusterIDLabel, from which the
// agents there make ServiceImports. All pages of a cluster together are its exports: a Service in
// no page is not exported, unless a page is missing.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=exportedservices,singular=exportedservices
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Pages",type=integer,JSONPath=`.spec.pages`
// +kubebuilder:printcolumn:name="Shared",type=string,JSONPath=`.status.conditions[?(@.type=="Shared")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExportedServices struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ExportedServicesSpec `json:"spec"`
	// Status is written by the speaker of the cluster whose page it is; copies have none.
	// +optional
	Status ExportedServicesStatus `json:"status,omitempty"`
}

// ExportedServicesStatus reports whether a page is on the broker.
type ExportedServicesStatus struct {
	// ClusterSets lists the clustersets in which the broker has the page, sorted.
	// +optional
	// +kubebuilder:validation:MaxItems=2048
	ClusterSets []string `json:"clusterSets,omitempty"`
	// Conditions is Shared: whether the broker has the observed generation, in all clustersets.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GetConditions returns the conditions in the status.
func (p *ExportedServices) GetConditions() []metav1.Condition { return p.Status.Conditions }

// The bounds of pages and their records, which the schema has, too.
const (
	// MaxExportPages is the maximum number of pages of a cluster.
	MaxExportPages = 64
	// MaxPageServices is the maximum number of records of a page.
	MaxPageServices = 256
	// MaxExportedPorts is the maximum number of ports of a record, MaxExportedGroups of its groups
	// of endpoints, MaxExportedLabels of its labels, and of its annotations.
	MaxExportedPorts  = 32
	MaxExportedGroups = 16
	MaxExportedLabels = 32
	// MaxExportedPods is the maximum number of endpoints of a group.
	MaxExportedPods = 256
	// MaxAppProtocol is the maximum number of bytes of the appProtocol of a port.
	MaxAppProtocol = 253
)

// exportedServicesInfix is what follows the ID of the cluster in the name of a page.
const exportedServicesInfix = "-services-"

// ExportedServicesName returns the name of a page of a cluster. The first page has the number 0.
func ExportedServicesName(id string, n int) string {
	return id + exportedServicesInfix + strconv.Itoa(n)
}

// ExportedServicesPage returns the number of a page of a cluster from its name. It reports whether
// the cluster may have a page of that name.
func ExportedServicesPage(id, name string) (n int, ok bool) {
	rest, found := strings.CutPrefix(name, id+exportedServicesInfix)
	n, err := strconv.Atoi(rest)
	if !found || err != nil || n < 0 || n >= MaxExportPages {
		return 0, false
	}
	return n, strconv.Itoa(n) == rest
}

// ExportedServicesSpec is a page.
type ExportedServicesSpec struct {
	// ClusterID is the ID of the exporting cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"clusterID"`
	// Pages is how many pages the cluster has, of which this is one. A reader that lacks one of
	// them keeps what it knew from it.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	Pages int `json:"pages"`
	// Services are sorted by namespace and name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Services []ExportedService `json:"services,omitempty"`
}

// ExportedService is the export record of one Service: what other clusters need to import it.
type ExportedService struct {
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Headless Services have no address, and always endpoints.
	// +optional
	Headless bool `json:"headless,omitempty"`
	// ExportedAt is the creation time of the ServiceExport, in seconds since 1970. The oldest
	// export of a Service decides conflicts (KEP-1645).
	ExportedAt int64 `json:"exportedAt"`
	// Ports are the ports of the Service.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Ports []ExportedPort `json:"ports,omitempty"`
	// AffinitySeconds is the time of the session affinity ClientIP; 0 means no affinity.
	// +optional
	AffinitySeconds int32 `json:"affinitySeconds,omitempty"`
	// InternalTrafficPolicy and TrafficDistribution are fields of the Service.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	InternalTrafficPolicy string `json:"internalTrafficPolicy,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=63
	TrafficDistribution string `json:"trafficDistribution,omitempty"`
	// Labels and Annotations are spec.exportedLabels and spec.exportedAnnotations of the
	// ServiceExport.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`
	// Spread asks importers to use the endpoints of all clusters alike, instead of their own first.
	// +optional
	Spread bool `json:"spread,omitempty"`
	// Direct asks DNS servers to answer with addresses of exporters instead of the address of the
	// import.
	// +optional
	Direct bool `json:"direct,omitempty"`
	// Address is the IPv4 address at which the exporter serves the Service: its cluster IP, or with
	// a global network its global address. It is empty for a headless Service.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	Address string `json:"address,omitempty"`
	// Ready reports whether the Service has a ready endpoint.
	// +optional
	Ready bool `json:"ready,omitempty"`
	// Endpoints are the pods of the Service. If there are none, importers use Address. Endpoints
	// whose target ports differ are in different groups.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Endpoints []ExportedEndpoints `json:"endpoints,omitempty"`
}

// ExportedPort is a port of an exported Service.
type ExportedPort struct {
	// Name is a DNS label; it may be empty if there is no other port.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// Protocol is TCP, UDP or SCTP; empty means TCP.
	// +optional
	// +kubebuilder:validation:Enum="";TCP;UDP;SCTP
	Protocol string `json:"protocol,omitempty"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// +optional
	// +kubebuilder:validation:MaxLength=253
	AppProtocol string `json:"appProtocol,omitempty"`
}

// ExportedEndpoints are endpoints with the same target ports.
type ExportedEndpoints struct {
	// Targets are the ports of the endpoints, in the order of ExportedService.Ports; 0 stands for a
	// port that they do not have.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Targets []int32 `json:"targets"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Pods []ExportedEndpoint `json:"pods"`
}

// ExportedEndpoint is one endpoint.
type ExportedEndpoint struct {
	// IP is an IPv4 address of the pod, or with a global network its global address.
	// +kubebuilder:validation:MaxLength=15
	IP string `json:"ip"`
	// Hostname is a DNS label: the name of the endpoint under that of a headless Service; empty if
	// it has none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Hostname string `json:"hostname,omitempty"`
	// Zone is topology.kubernetes.io/zone of the pod's node.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
	// State is the state of the endpoint.
	// +optional
	State EndpointState `json:"state,omitempty"`
}

// EndpointState is the state of an endpoint, by the conditions of EndpointSlices.
//
// +kubebuilder:validation:Enum="";NotReady;Terminating;Serving
type EndpointState string

// The states of an endpoint.
const (
	EndpointReady    EndpointState = ""
	EndpointNotReady EndpointState = "NotReady"
	// EndpointTerminating is a pod that ends and serves no more, and EndpointServing one that ends
	// and still serves: it is used if no endpoint is ready.
	EndpointTerminating EndpointState = "Terminating"
	EndpointServing     EndpointState = "Serving"
)

// ExportedServicesList is a list of ExportedServices.
//
// +kubebuilder:object:root=true
type ExportedServicesList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExportedServices `json:"items"`
}
