package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Names of ClusterGlobalEgressIPs. A cluster with one active gateway has an object with the name
// ClusterEgress. A cluster with several gateway nodes has an object for each of them, named
// <node>-cluster-egress.submariner.io.
const (
	ClusterEgress           = "cluster-egress.submariner.io"
	GatewayEgressSuffix     = "-" + ClusterEgress
	DefaultClusterEgressIPs = 8 // upstream
)

// MaxGlobalEgressIPs is the most addresses of an egress object (upstream).
const MaxGlobalEgressIPs = 20

// ClusterGlobalEgressIP requests the global addresses that packets of this cluster have as their
// source in other clusters, unless a GlobalEgressIP or a GlobalIngressIP gives their pod another
// one.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clusterglobalegressips,singular=clusterglobalegressip,scope=Cluster,shortName=cgeip
// +kubebuilder:printcolumn:name="Requested",type=integer,JSONPath=`.spec.numGlobalIPs`
// +kubebuilder:printcolumn:name="IPs",type=string,JSONPath=`.status.allocatedIPs`
// +kubebuilder:printcolumn:name="Allocated",type=string,JSONPath=`.status.conditions[?(@.type=="Allocated")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterGlobalEgressIP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterGlobalEgressIPSpec `json:"spec"`
	// +optional
	Status GlobalEgressIPStatus `json:"status,omitempty"`
}

// ClusterGlobalEgressIPSpec is how many addresses are requested.
type ClusterGlobalEgressIPSpec struct {
	// NumGlobalIPs is the number of addresses; 1 if it is not specified (upstream).
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=20
	NumGlobalIPs *int `json:"numGlobalIPs,omitempty"`
}

// Count returns the number of addresses that are requested.
func (s ClusterGlobalEgressIPSpec) Count() int { return countOf(s.NumGlobalIPs) }

// countOf returns the number of addresses that an egress object requests.
func countOf(n *int) int {
	if n == nil {
		return 1
	}
	return *n
}

// GlobalEgressIPStatus is what has been allocated.
type GlobalEgressIPStatus struct {
	// Conditions has the condition Allocated.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// AllocatedIPs are the allocated addresses: a range without gaps, sorted.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	AllocatedIPs []string `json:"allocatedIPs,omitempty"`
}

// GetConditions returns the conditions of the status.
func (o *ClusterGlobalEgressIP) GetConditions() []metav1.Condition { return o.Status.Conditions }

// ClusterGlobalEgressIPList is a list of ClusterGlobalEgressIPs.
//
// +kubebuilder:object:root=true
type ClusterGlobalEgressIPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterGlobalEgressIP `json:"items"`
}
