package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FirewallSNAT translates the source addresses of packets that leave to a zone.
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
type FirewallSNAT struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec FirewallSNATSpec `json:"spec"`
	// +optional
	Status RuleStatus `json:"status,omitempty"`
}

// RuleStatus returns the status, which the caller may change.
func (r *FirewallSNAT) RuleStatus() *RuleStatus { return &r.Status }

// RulePriority returns the priority, "" for none.
func (r *FirewallSNAT) RulePriority() Priority { return r.Spec.Priority }

// FirewallSNATList is a list of FirewallSNAT objects.
//
// +kubebuilder:object:root=true
type FirewallSNATList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FirewallSNAT `json:"items"`
}

// FirewallSNATSpec selects packets; an absent field matches all.
//
// +kubebuilder:validation:XValidation:rule=`has(self.src_dip) && self.src_dip != ""`,message="src_dip is required: the new source address"
// +kubebuilder:validation:XValidation:rule=`has(self.dest) && self.dest != ""`,message="dest is required: the FirewallZone to which packets leave"
// +kubebuilder:validation:XValidation:rule=`!has(self.src_mac) || self.src_mac == ""`,message="src_mac is not possible: sources are translated after routing"
// +kubebuilder:validation:XValidation:rule=`!(has(self.src_port) && self.src_port != "" || has(self.src_dport) && self.src_dport != "" || has(self.dest_port) && self.dest_port != "") || !has(self.proto) || self.proto in ["", 'tcp', 'udp', 'tcpudp', 'udplite', 'sctp']`,message="ports need proto tcp, udp, tcpudp, udplite or sctp"
type FirewallSNATSpec struct {
	// Priority is the place among the rules of which the first that matches decides: the lowest
	// number comes first, and of two with the same number the first name. Rules without one come
	// after those with one, in the order of their creation.
	// +optional
	Priority Priority `json:"priority,omitempty"`
	// Name has no effect: on the CNF, the rule has the object's name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Src is a zone, which must exist. It selects nothing, as on OpenWrt: use src_ip.
	// +optional
	Src ZoneName `json:"src,omitempty"`
	// SrcIP matches the source address.
	// +optional
	SrcIP Address `json:"src_ip,omitempty"`
	// SrcDIP is the new source address.
	// +optional
	SrcDIP IP `json:"src_dip,omitempty"`
	// SrcMAC is refused: upstream has the field, but sources are translated after routing.
	// +optional
	SrcMAC MAC `json:"src_mac,omitempty"`
	// SrcPort matches the source port.
	// +optional
	SrcPort Ports `json:"src_port,omitempty"`
	// SrcDPort is the new source port.
	// +optional
	SrcDPort Port `json:"src_dport,omitempty"`
	// Proto matches the protocol. The default is tcpudp.
	// +optional
	Proto Proto `json:"proto,omitempty"`
	// Dest is the zone to which packets leave.
	// +optional
	Dest ZoneName `json:"dest,omitempty"`
	// DestIP matches the destination address.
	// +optional
	DestIP Address `json:"dest_ip,omitempty"`
	// DestPort matches the destination port.
	// +optional
	DestPort Ports `json:"dest_port,omitempty"`
	// Mark matches the mark of the packet.
	// +optional
	Mark MarkMatch `json:"mark,omitempty"`
	// Target is SNAT, and may be absent.
	// +optional
	// +kubebuilder:validation:Enum="";SNAT
	Target string `json:"target,omitempty"`
	// Family is for OpenWrt; addresses are translated for IPv4 only.
	// +optional
	Family Family `json:"family,omitempty"`
}
