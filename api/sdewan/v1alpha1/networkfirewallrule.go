package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NetworkFirewallRule accepts, rejects, drops or marks packets between devices, independently of
// zones and after their rules. The first rule that matches decides; rules are in the order of their
// creation.
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
type NetworkFirewallRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NetworkFirewallRuleSpec `json:"spec"`
	// +optional
	Status RuleStatus `json:"status,omitempty"`
}

// RuleStatus returns the status, which the caller may change.
func (r *NetworkFirewallRule) RuleStatus() *RuleStatus { return &r.Status }

// RulePriority returns the priority, "" for none.
func (r *NetworkFirewallRule) RulePriority() Priority { return r.Spec.Priority }

// NetworkFirewallRuleList is a list of NetworkFirewallRule objects.
//
// +kubebuilder:object:root=true
type NetworkFirewallRuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkFirewallRule `json:"items"`
}

// NetworkFirewallRuleSpec selects packets; an absent field matches all. With src alone the rule is
// for packets to the CNF itself, with src and dest for packets that it forwards.
//
// +kubebuilder:validation:XValidation:rule=`self.src != ""`,message="src is required: the device on which packets arrive"
// +kubebuilder:validation:XValidation:rule=`!has(self.target) || self.target != 'MARK' || has(self.set_mark) && self.set_mark != "" || has(self.set_xmark) && self.set_xmark != ""`,message="target MARK needs set_mark or set_xmark"
// +kubebuilder:validation:XValidation:rule=`!has(self.icmp_type) || size(self.icmp_type) == 0 || has(self.proto) && self.proto == 'icmp'`,message="icmp_type needs proto icmp"
// +kubebuilder:validation:XValidation:rule=`!(has(self.src_port) && self.src_port != "" || has(self.dest_port) && self.dest_port != "") || has(self.proto) && self.proto in ['tcp', 'udp', 'tcpudp', 'udplite', 'sctp']`,message="ports need proto tcp, udp, tcpudp, udplite or sctp"
type NetworkFirewallRuleSpec struct {
	// Priority is the place among the rules of which the first that matches decides: the lowest
	// number comes first, and of two with the same number the first name. Rules without one come
	// after those with one, in the order of their creation.
	// +optional
	Priority Priority `json:"priority,omitempty"`
	// Name has no effect: on the CNF, the rule has the object's name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Src is the device on which packets arrive, as in dev of a CNFRoute.
	Src Device `json:"src"`
	// SrcIP matches the source address.
	// +optional
	SrcIP Address `json:"src_ip,omitempty"`
	// SrcMAC matches the address of the device that sent the packet.
	// +optional
	SrcMAC MAC `json:"src_mac,omitempty"`
	// SrcPort matches the source port.
	// +optional
	SrcPort Ports `json:"src_port,omitempty"`
	// Proto matches the protocol. The default is all.
	// +optional
	Proto Proto `json:"proto,omitempty"`
	// ICMPType matches types of ICMP.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ICMPType []ICMPType `json:"icmp_type,omitempty"`
	// Dest is the device by which packets leave. Without it, the rule concerns what is for the CNF
	// itself.
	// +optional
	Dest Device `json:"dest,omitempty"`
	// DestIP matches the destination address.
	// +optional
	DestIP Address `json:"dest_ip,omitempty"`
	// DestPort matches the destination port.
	// +optional
	DestPort Ports `json:"dest_port,omitempty"`
	// Mark matches the mark of the packet.
	// +optional
	Mark MarkMatch `json:"mark,omitempty"`
	// Target is what happens. The default is REJECT.
	// +optional
	// +kubebuilder:validation:Enum="";ACCEPT;REJECT;DROP;MARK;NOTRACK
	Target string `json:"target,omitempty"`
	// SetMark is for target MARK: sets the bits of the mask, or all bits, to this mark.
	// +optional
	SetMark Mark `json:"set_mark,omitempty"`
	// SetXMark is for target MARK: clears the bits of the mask, and inverts the bits of this mark.
	// +optional
	SetXMark Mark `json:"set_xmark,omitempty"`
	// Family limits the rule to IPv4 or IPv6.
	// +optional
	Family Family `json:"family,omitempty"`
	// Extra is for OpenWrt: further arguments of iptables.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Extra string `json:"extra,omitempty"`
}
