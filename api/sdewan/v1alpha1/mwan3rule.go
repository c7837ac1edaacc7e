package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Mwan3Rule assigns a Mwan3Policy to connections. The first rule that matches decides; rules are in
// the order of their creation.
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
type Mwan3Rule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec Mwan3RuleSpec `json:"spec"`
	// +optional
	Status RuleStatus `json:"status,omitempty"`
}

// RuleStatus returns the status, which the caller may change.
func (r *Mwan3Rule) RuleStatus() *RuleStatus { return &r.Status }

// RulePriority returns the priority, "" for none.
func (r *Mwan3Rule) RulePriority() Priority { return r.Spec.Priority }

// Mwan3RuleList is a list of Mwan3Rule objects.
//
// +kubebuilder:object:root=true
type Mwan3RuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Mwan3Rule `json:"items"`
}

// Mwan3RuleSpec selects connections; an absent field matches all.
//
// +kubebuilder:validation:XValidation:rule=`self.policy != ""`,message="policy is required: the name of a Mwan3Policy"
// +kubebuilder:validation:XValidation:rule=`!(has(self.src_port) && self.src_port != "" || has(self.dest_port) && self.dest_port != "") || has(self.proto) && self.proto in ['tcp', 'udp']`,message="ports need proto tcp or udp"
type Mwan3RuleSpec struct {
	// Priority is the place among the rules of which the first that matches decides: the lowest
	// number comes first, and of two with the same number the first name. Rules without one come
	// after those with one, in the order of their creation.
	// +optional
	Priority Priority `json:"priority,omitempty"`
	// Policy is the name of the Mwan3Policy.
	Policy ObjectName `json:"policy"`
	// SrcIP matches the source address.
	// +optional
	SrcIP Address `json:"src_ip,omitempty"`
	// SrcPort matches the source port.
	// +optional
	SrcPort Ports `json:"src_port,omitempty"`
	// DestIP matches the destination address.
	// +optional
	DestIP Address `json:"dest_ip,omitempty"`
	// DestPort matches the destination port.
	// +optional
	DestPort Ports `json:"dest_port,omitempty"`
	// Proto matches the protocol. The default is all.
	// +optional
	// +kubebuilder:validation:Enum="";tcp;udp;icmp;all
	Proto string `json:"proto,omitempty"`
	// Family matches IPv4 or IPv6. The default is all.
	// +optional
	// +kubebuilder:validation:Enum="";ipv4;ipv6;all
	Family string `json:"family,omitempty"`
	// Sticky is 1 if the connections of a source address stay with one uplink.
	// +optional
	Sticky Switch `json:"sticky,omitempty"`
	// Timeout is for how long after its last connection a source stays with an uplink. The default
	// is 600.
	// +optional
	Timeout Seconds `json:"timeout,omitempty"`
}
