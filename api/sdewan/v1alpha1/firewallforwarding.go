package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FirewallForwarding allows connections from one zone to another one, in this direction only.
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
type FirewallForwarding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec FirewallForwardingSpec `json:"spec"`
	// +optional
	Status RuleStatus `json:"status,omitempty"`
}

// RuleStatus returns the status, which the caller may change.
func (r *FirewallForwarding) RuleStatus() *RuleStatus { return &r.Status }

// FirewallForwardingList is a list of FirewallForwarding objects.
//
// +kubebuilder:object:root=true
type FirewallForwardingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FirewallForwarding `json:"items"`
}

// FirewallForwardingSpec names two zones.
//
// +kubebuilder:validation:XValidation:rule=`self.src != ""`,message="src is required: the name of a FirewallZone, or \"*\""
// +kubebuilder:validation:XValidation:rule=`self.dest != ""`,message="dest is required: the name of a FirewallZone, or \"*\""
type FirewallForwardingSpec struct {
	// Name has no effect: on the CNF, the rule has the object's name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Src is the zone from which connections may be opened.
	Src ZoneName `json:"src"`
	// Dest is the zone to which connections may be opened.
	Dest ZoneName `json:"dest"`
	// Family limits the rule to IPv4 or IPv6.
	// +optional
	Family Family `json:"family,omitempty"`
}
