package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GlobalIngressTarget is what a global address leads to.
//
// +kubebuilder:validation:Enum=ClusterIPService;HeadlessServicePod;HeadlessServiceEndpoints
type GlobalIngressTarget string

// All targets (upstream).
const (
	// TargetClusterIPService is a Service with a cluster IP: the ports of the Service lead to its
	// endpoints.
	TargetClusterIPService GlobalIngressTarget = "ClusterIPService"
	// TargetHeadlessServicePod is a pod, in both directions.
	TargetHeadlessServicePod GlobalIngressTarget = "HeadlessServicePod"
	// TargetHeadlessServiceEndpoints is an address of a headless Service without selector, in both
	// directions: see HeadlessEndpointAnnotation.
	TargetHeadlessServiceEndpoints GlobalIngressTarget = "HeadlessServiceEndpoints"
)

const (
	// HeadlessEndpointAnnotation is an annotation of a GlobalIngressIP with the target
	// HeadlessServiceEndpoints: the address that it stands for (upstream).
	HeadlessEndpointAnnotation = "submariner.io/headless-svc-endpoints-ip"
	// ServiceRefLabel is a label of a GlobalIngressIP: the name of the exported Service (upstream).
	ServiceRefLabel = "submariner.io/serviceRef"
	// GatewayGlobalIPAnnotation is an annotation of a Gateway: the global address that answers
	// pings (upstream).
	GatewayGlobalIPAnnotation = "submariner.io/globalIp"
	// OwnGlobalIPAnnotation is an annotation of a Pod, or of a Namespace for each of its pods. With
	// the value OwnGlobalIP the pod has a global address of its own, in both directions.
	OwnGlobalIPAnnotation = "submariner.io/global-ip"
	// GlobalIPAnnotation is an annotation of a Pod or a Service: its global address (upstream). The
	// globalnet agent writes it for users, and nothing depends on it.
	GlobalIPAnnotation = "submariner.io/GlobalIp"
	// OwnGlobalIP is the value of OwnGlobalIPAnnotation.
	OwnGlobalIP = "own"
)

// Condition Allocated of the objects that request global addresses, and its reasons (upstream).
const (
	ConditionAllocated     = "Allocated"
	ReasonAllocated        = "Success"
	ReasonPoolExhausted    = "IPPoolAllocationFailed"
	ReasonInvalidInput     = "InvalidInput"
	ReasonNothingRequested = "ZeroInput"
	ReasonInvalidInstance  = "InvalidInstance"
)

// GlobalIngressIP requests a global address at which other clusters reach a Service or a pod. The
// globalnet agent makes one for each exported Service, and for each pod with an address of its own.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=globalingressips,singular=globalingressip,shortName=giip
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.target`
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.status.allocatedIP`
// +kubebuilder:printcolumn:name="Allocated",type=string,JSONPath=`.status.conditions[?(@.type=="Allocated")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GlobalIngressIP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec GlobalIngressIPSpec `json:"spec"`
	// +optional
	Status GlobalIngressIPStatus `json:"status,omitempty"`
}

// GlobalIngressIPSpec is what the address leads to.
type GlobalIngressIPSpec struct {
	Target GlobalIngressTarget `json:"target"`
	// ServiceRef is the Service, for the targets ClusterIPService and HeadlessServiceEndpoints.
	// +optional
	ServiceRef *corev1.LocalObjectReference `json:"serviceRef,omitempty"`
	// PodRef is the pod, for the target HeadlessServicePod.
	// +optional
	PodRef *corev1.LocalObjectReference `json:"podRef,omitempty"`
}

// GlobalIngressIPStatus is what has been allocated.
type GlobalIngressIPStatus struct {
	// Conditions has the condition Allocated.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// AllocatedIP is the allocated address; empty if there is none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AllocatedIP string `json:"allocatedIP,omitempty"`
}

// GetConditions returns the conditions of the status.
func (o *GlobalIngressIP) GetConditions() []metav1.Condition { return o.Status.Conditions }

// GlobalIngressIPList is a list of GlobalIngressIPs.
//
// +kubebuilder:object:root=true
type GlobalIngressIPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GlobalIngressIP `json:"items"`
}
