package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FirewallDNAT translates the destination addresses of packets that arrive from a zone, and accepts
// these packets.
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
type FirewallDNAT struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec FirewallDNATSpec `json:"spec"`
	// +optional
	Status RuleStatus `json:"status,omitempty"`
}

// RuleStatus returns the status, which the caller may change.
func (r *FirewallDNAT) RuleStatus() *RuleStatus { return &r.Status }

// RulePriority returns the priority, "" for none.
func (r *FirewallDNAT) RulePriority() Priority { return r.Spec.Priority }

// FirewallDNATList is a list of FirewallDNAT objects.
//
// +kubebuilder:object:root=true
type FirewallDNATList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FirewallDNAT `json:"items"`
}

// FirewallDNATSpec selects packets; an absent field matches all.
//
// +kubebuilder:validation:XValidation:rule=`has(self.src) && self.src != ""`,message="src is required: the FirewallZone from which packets arrive"
// +kubebuilder:validation:XValidation:rule=`!(has(self.src_port) && self.src_port != "" || has(self.src_dport) && self.src_dport != "" || has(self.dest_port) && self.dest_port != "") || !has(self.proto) || self.proto in ["", 'tcp', 'udp', 'tcpudp', 'udplite', 'sctp']`,message="ports need proto tcp, udp, tcpudp, udplite or sctp"
type FirewallDNATSpec struct {
	// Priority is the place among the rules of which the first that matches decides: the lowest
	// number comes first, and of two with the same number the first name. Rules without one come
	// after those with one, in the order of their creation.
	// +optional
	Priority Priority `json:"priority,omitempty"`
	// Name has no effect: on the CNF, the rule has the object's name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Src is the zone from which packets arrive.
	// +optional
	Src ZoneName `json:"src,omitempty"`
	// SrcIP matches the source address.
	// +optional
	SrcIP Address `json:"src_ip,omitempty"`
	// SrcDIP matches the destination address.
	// +optional
	SrcDIP Address `json:"src_dip,omitempty"`
	// SrcMAC matches the address of the device that sent the packet.
	// +optional
	SrcMAC MAC `json:"src_mac,omitempty"`
	// SrcPort matches the source port.
	// +optional
	SrcPort Ports `json:"src_port,omitempty"`
	// SrcDPort matches the destination port.
	// +optional
	SrcDPort Ports `json:"src_dport,omitempty"`
	// Proto matches the protocol. The default is tcpudp.
	// +optional
	Proto Proto `json:"proto,omitempty"`
	// Dest is the zone to which packets leave.
	// +optional
	Dest ZoneName `json:"dest,omitempty"`
	// DestIP is the new destination address. The default is the CNF itself.
	// +optional
	DestIP IP `json:"dest_ip,omitempty"`
	// DestPort is the new destination port. The default is src_dport.
	// +optional
	DestPort Port `json:"dest_port,omitempty"`
	// Mark matches the mark of the packet.
	// +optional
	Mark MarkMatch `json:"mark,omitempty"`
	// Target is DNAT, and may be absent.
	// +optional
	// +kubebuilder:validation:Enum="";DNAT
	Target string `json:"target,omitempty"`
	// Family is for OpenWrt; addresses are translated for IPv4 only.
	// +optional
	Family Family `json:"family,omitempty"`
}
