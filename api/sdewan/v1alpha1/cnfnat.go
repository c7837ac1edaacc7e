package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CNFNAT translates addresses on a device, independently of zones. The first one that matches
// decides; those with an index come first.
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
type CNFNAT struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CNFNATSpec `json:"spec"`
	// +optional
	Status RuleStatus `json:"status,omitempty"`
}

// RuleStatus returns the status, which the caller may change.
func (r *CNFNAT) RuleStatus() *RuleStatus { return &r.Status }

// RulePriority returns the priority, "" for none.
func (r *CNFNAT) RulePriority() Priority { return r.Spec.Priority }

// CNFNATList is a list of CNFNAT objects.
//
// +kubebuilder:object:root=true
type CNFNATList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CNFNAT `json:"items"`
}

// CNFNATSpec selects packets, and says what becomes of their addresses.
//
// +kubebuilder:validation:XValidation:rule=`self.target != 'SNAT' || has(self.src_dip) && self.src_dip != "" && has(self.dest) && self.dest != ""`,message="target SNAT needs src_dip and dest"
// +kubebuilder:validation:XValidation:rule=`self.target != 'MASQUERADE' || has(self.dest) && self.dest != ""`,message="target MASQUERADE needs dest"
// +kubebuilder:validation:XValidation:rule=`self.target != 'DNAT' || has(self.dest_ip) && self.dest_ip != "" || has(self.dest_port) && self.dest_port != ""`,message="target DNAT needs dest_ip or dest_port"
// +kubebuilder:validation:XValidation:rule=`self.target != 'SNAT' || !has(self.src_dip) || self.src_dip == "" || isIP(self.src_dip)`,message="src_dip must be one address for target SNAT"
// +kubebuilder:validation:XValidation:rule=`self.target != 'DNAT' || !has(self.dest_ip) || self.dest_ip == "" || isIP(self.dest_ip)`,message="dest_ip must be one address for target DNAT"
// +kubebuilder:validation:XValidation:rule=`self.target != 'SNAT' || !has(self.src_dport) || !string(self.src_dport).contains(',')`,message="src_dport must be one port or range for target SNAT"
// +kubebuilder:validation:XValidation:rule=`self.target != 'DNAT' || !has(self.dest_port) || !string(self.dest_port).contains(',')`,message="dest_port must be one port or range for target DNAT"
type CNFNATSpec struct {
	// Priority is the place among the rules of which the first that matches decides: the lowest
	// number comes first, and of two with the same number the first name. Rules without one come
	// after those with one, in the order of their creation.
	// +optional
	Priority Priority `json:"priority,omitempty"`
	// Name has no effect: on the CNF, the rule has the object's name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Src is for target DNAT: the device on which packets arrive, as in dev of a CNFRoute.
	// +optional
	Src Device `json:"src,omitempty"`
	// SrcIP matches the source address.
	// +optional
	SrcIP Address `json:"src_ip,omitempty"`
	// SrcDIP is for target SNAT the source address that packets get, and for target DNAT matches
	// the destination address.
	// +optional
	SrcDIP Address `json:"src_dip,omitempty"`
	// SrcPort matches the source port.
	// +optional
	SrcPort Ports `json:"src_port,omitempty"`
	// SrcDPort is for target SNAT the source port that packets get, and for target DNAT matches the
	// destination port.
	// +optional
	SrcDPort Ports `json:"src_dport,omitempty"`
	// Proto matches the protocol. The default is all, or tcpudp with ports.
	// +optional
	Proto Proto `json:"proto,omitempty"`
	// Dest is for targets SNAT and MASQUERADE: the device by which packets leave, as in dev of a
	// CNFRoute, or "#source" for the device with the address src_dip.
	// +optional
	Dest Device `json:"dest,omitempty"`
	// DestIP is for target DNAT the destination address that packets get, and otherwise matches it.
	// +optional
	DestIP Address `json:"dest_ip,omitempty"`
	// DestPort is for target DNAT the destination port that packets get, and otherwise matches it.
	// +optional
	DestPort Ports `json:"dest_port,omitempty"`
	// Target is SNAT, MASQUERADE (sources) or DNAT (destinations).
	// +kubebuilder:validation:Enum=SNAT;DNAT;MASQUERADE
	Target string `json:"target"`
	// Index is the place among CNFNATs, from 1; 0 or none is the last.
	// +optional
	Index Index `json:"index,omitempty"`
}
