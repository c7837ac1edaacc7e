package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CNFStatus reports what CNFs do: the state of their tunnels, connections, routes, leases and
// neighbours. The controller creates and writes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=cnfstatuses,singular=cnfstatus
// +kubebuilder:printcolumn:name="Purpose",type=string,JSONPath=`.metadata.labels.sdewanPurpose`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.status.information[*].name`
// +kubebuilder:printcolumn:name="Read",type=date,JSONPath=`.status.appliedTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CNFStatus struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec CNFStatusSpec `json:"spec,omitempty"`
	// +optional
	Status CNFStatusStatus `json:"status,omitempty"`
}

// CNFStatusSpec is empty.
type CNFStatusSpec struct{}

// CNFStatusStatus lists pods.
type CNFStatusStatus struct {
	// AppliedTime is when the pods gave the answers. A change of counters and connections alone is
	// written after a minute.
	// +optional
	AppliedTime *metav1.Time `json:"appliedTime,omitempty"`
	// Information is what each pod answered.
	// +optional
	// +listType=atomic
	Information []CNFInformation `json:"information,omitempty"`
}

// TooLong is the JSON that CNFInformation.Status has in place of what a module reports, or of its
// error, if that is too long. The field "count" of the module then is the number of entries that it
// listed. The modules ipsec, wan and effect have fewer details at first.
const TooLong = `"(too long)"`

// CNFInformation is what a pod answered.
type CNFInformation struct {
	// Name is the name of the pod.
	Name string `json:"name"`
	// Namespace is the namespace of the pod.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Node is the node on which the pod runs.
	// +optional
	Node string `json:"node,omitempty"`
	// Purpose is the pod's label sdewanPurpose.
	// +optional
	Purpose string `json:"purpose,omitempty"`
	// IP is the pod's address.
	// +optional
	IP string `json:"ip,omitempty"`
	// Status is the pod's answer to GET sdewan/v1/status, JSON as text. Modules that report much
	// have "(too long)" as their status, and the number of their entries as count. The module ipsec
	// has the numbers of tunnels and remotes as counts instead, and lists as many tunnels as fit.
	// Tunnels that are not up come first.
	// +optional
	Status string `json:"status,omitempty"`
	// Error is why the pod did not answer.
	// +optional
	Error string `json:"error,omitempty"`
}

// CNFStatusList is a list of CNFStatus objects.
//
// +kubebuilder:object:root=true
type CNFStatusList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CNFStatus `json:"items"`
}
