package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConditionSelects is a condition of GlobalEgressIPs: whether pods have its addresses as their
// source. It is False if it selects no pods, if another GlobalEgressIP takes precedence for some of
// them, or if a gateway has no room for its addresses.
const ConditionSelects = "Selects"

// Reasons of ConditionSelects.
const (
	ReasonPodsSelected = "PodsSelected"
	ReasonNoPods       = "NoPods"
	ReasonOthersFirst  = "OthersFirst"
	ReasonNoRoom       = "NoRoom"
	ReasonFewAddresses = "FewAddresses"
)

// GlobalEgressIP requests global addresses that packets of pods of its namespace have as their
// source in other clusters: the pods that PodSelector selects, or all pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=globalegressips,singular=globalegressip,shortName=geip
// +kubebuilder:printcolumn:name="Requested",type=integer,JSONPath=`.spec.numberOfIPs`
// +kubebuilder:printcolumn:name="IPs",type=string,JSONPath=`.status.allocatedIPs`
// +kubebuilder:printcolumn:name="Allocated",type=string,JSONPath=`.status.conditions[?(@.type=="Allocated")].reason`
// +kubebuilder:printcolumn:name="Selects",type=string,JSONPath=`.status.conditions[?(@.type=="Selects")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GlobalEgressIP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec GlobalEgressIPSpec `json:"spec"`
	// +optional
	Status GlobalEgressIPStatus `json:"status,omitempty"`
}

// GlobalEgressIPSpec is how many addresses are requested, and for which pods.
type GlobalEgressIPSpec struct {
	// NumberOfIPs is the number of addresses; 1 if it is not specified (upstream).
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=20
	NumberOfIPs *int `json:"numberOfIPs,omitempty"`
	// PodSelector selects pods of the namespace; all, if it is not specified.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
}

// Count returns the number of addresses that are requested.
func (s GlobalEgressIPSpec) Count() int { return countOf(s.NumberOfIPs) }

// GetConditions returns the conditions of the status.
func (o *GlobalEgressIP) GetConditions() []metav1.Condition { return o.Status.Conditions }

// GlobalEgressIPList is a list of GlobalEgressIPs.
//
// +kubebuilder:object:root=true
type GlobalEgressIPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GlobalEgressIP `json:"items"`
}
