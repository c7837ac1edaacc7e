package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CNFService makes a port of the CNF lead to a port of a Service.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Purpose",type=string,JSONPath=`.metadata.labels.sdewanPurpose`
// +kubebuilder:printcolumn:name="In Sync",type=boolean,JSONPath=`.status.inSync`
// +kubebuilder:printcolumn:name="Applied",type=date,JSONPath=`.status.appliedTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].reason`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].message`,priority=1
// +kubebuilder:validation:XValidation:rule=`!self.metadata.name.matches('[A-Z_]')`,messageExpression="'write the name ' + self.metadata.name.lowerAscii().replace('_', '-')"
type CNFService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CNFServiceSpec `json:"spec"`
	// +optional
	Status RuleStatus `json:"status,omitempty"`
}

// RuleStatus returns the status, which the caller may change.
func (r *CNFService) RuleStatus() *RuleStatus { return &r.Status }

// RulePriority returns the priority, "" for none.
func (r *CNFService) RulePriority() Priority { return r.Spec.Priority }

// CNFServiceList is a list of CNFService objects.
//
// +kubebuilder:object:root=true
type CNFServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CNFService `json:"items"`
}

// CNFServiceSpec names a port and a Service.
//
// +kubebuilder:validation:XValidation:rule=`self.port != ""`,message="port is required: the port of the CNF, from 1 to 65535"
// +kubebuilder:validation:XValidation:rule=`self.dport != ""`,message="dport is required: the port of the Service, from 1 to 65535"
type CNFServiceSpec struct {
	// Priority is the place among the rules of which the first that matches decides: the lowest
	// number comes first, and of two with the same number the first name. Rules without one come
	// after those with one, in the order of their creation.
	// +optional
	Priority Priority `json:"priority,omitempty"`
	// FullName is the DNS name of the Service.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*[.]?$')`,message="must be a DNS name such as httpd.default.svc.cluster.local"
	FullName string `json:"fullname"`
	// Port is the TCP port of the CNF.
	Port Port `json:"port"`
	// DPort is the port of the Service.
	DPort Port `json:"dport"`
	// CIDR limits the rule to connections from these addresses.
	// +optional
	CIDR Address `json:"cidr,omitempty"`
}
