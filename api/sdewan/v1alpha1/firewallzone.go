package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FirewallZone is a set of networks, and what is allowed from it, to it and between its networks.
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
type FirewallZone struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec FirewallZoneSpec `json:"spec"`
	// +optional
	Status RuleStatus `json:"status,omitempty"`
}

// Networks returns the networks, whichever way the field is spelt.
func (s FirewallZoneSpec) Networks() []NetworkName {
	if len(s.Network) == 0 {
		return s.Newtork
	}
	return s.Network
}

// RuleStatus returns the status, which the caller may change.
func (r *FirewallZone) RuleStatus() *RuleStatus { return &r.Status }

// FirewallZoneList is a list of FirewallZone objects.
//
// +kubebuilder:object:root=true
type FirewallZoneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FirewallZone `json:"items"`
}

// FirewallZoneSpec describes a zone. Other zones are reached by FirewallForwardings.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.newtork) || !has(self.network) || size(self.network) == 0 || self.newtork == self.network`,message="newtork is read as network: write network alone"
// +kubebuilder:validation:XValidation:rule=`has(self.newtork) && size(self.newtork) > 0 || has(self.network) && size(self.network) > 0 || has(self.subnet) && size(self.subnet) > 0`,message="network is required: names of networks of the CNF, or else subnet"
type FirewallZoneSpec struct {
	// Name has no effect: on the CNF, the rule has the object's name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Network lists networks of the CNF, as in its annotation k8s.plugin.opnfv.org/nfn-network.
	// +optional
	// +kubebuilder:validation:MaxItems=60
	Network []NetworkName `json:"network,omitempty"`
	// Newtork is a spelling of network that examples have. It is read as network, with a warning.
	// +optional
	// +kubebuilder:validation:MaxItems=60
	Newtork []NetworkName `json:"newtork,omitempty"`
	// Masq is 1 to translate the source addresses of what leaves to this zone to the address of the
	// device.
	// +optional
	Masq Switch `json:"masq,omitempty"`
	// MasqSrc limits masq to these source addresses.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	MasqSrc []MaybeNot `json:"masq_src,omitempty"`
	// MasqDest limits masq to these destination addresses.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	MasqDest []MaybeNot `json:"masq_dest,omitempty"`
	// MasqAllowInvalid is 1 to let packets of no known connection leave to this zone, although they
	// are not translated.
	// +optional
	MasqAllowInvalid Switch `json:"masq_allow_invalid,omitempty"`
	// MTUFix is 1 to limit the segment size of TCP connections to what fits the path.
	// +optional
	MTUFix Switch `json:"mtu_fix,omitempty"`
	// Input is for connections from this zone to the CNF itself.
	// +optional
	Input Policy `json:"input,omitempty"`
	// Forward is for connections between the networks of this zone.
	// +optional
	Forward Policy `json:"forward,omitempty"`
	// Output is for connections from the CNF itself to this zone.
	// +optional
	Output Policy `json:"output,omitempty"`
	// Family limits the zone to IPv4 or IPv6.
	// +optional
	Family Family `json:"family,omitempty"`
	// Subnet lists addresses that belong to the zone.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Subnet []Address `json:"subnet,omitempty"`
	// ExtraSrc is for OpenWrt: further matches of iptables for packets from the zone.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ExtraSrc string `json:"extra_src,omitempty"`
	// ExtraDest is for OpenWrt: further matches of iptables for packets to the zone. The API of
	// CNFs spells it so.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ExtraDest string `json:"etra_dest,omitempty"`
}
