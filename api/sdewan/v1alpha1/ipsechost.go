package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IpsecHost is a gateway at the other end of IPsec tunnels, from which this CNF gets an address.
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
type IpsecHost struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IpsecHostSpec `json:"spec"`
	// +optional
	Status RuleStatus `json:"status,omitempty"`
}

// RuleStatus returns the status, which the caller may change.
func (r *IpsecHost) RuleStatus() *RuleStatus { return &r.Status }

// IpsecHostList is a list of IpsecHost objects.
//
// +kubebuilder:object:root=true
type IpsecHostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IpsecHost `json:"items"`
}

// IpsecHostSpec describes the other end and the tunnels to it.
//
// +kubebuilder:validation:XValidation:rule=`self.authentication_method != 'psk' || has(self.pre_shared_key) && self.pre_shared_key != ""`,message="authentication_method psk needs pre_shared_key"
// +kubebuilder:validation:XValidation:rule=`self.authentication_method != 'pubkey' || has(self.local_public_cert) && self.local_public_cert != "" && has(self.local_private_cert) && self.local_private_cert != "" && has(self.shared_ca) && self.shared_ca != ""`,message="authentication_method pubkey needs local_public_cert, local_private_cert and shared_ca"
type IpsecHostSpec struct {
	IpsecRemote `json:",inline"`
	// Connections are the tunnels to the other end.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule=`self.map(c, has(c.name) && c.name != "" ? c.name : has(c.connection_name) ? c.connection_name : "").all(a, self.exists_one(b, a == (has(b.name) && b.name != "" ? b.name : has(b.connection_name) ? b.connection_name : "")))`,message="each connection must have a name of its own"
	Connections []IpsecHostConnection `json:"connections"`
}

// IpsecHostConnection is a tunnel to a host.
type IpsecHostConnection struct {
	IpsecConnection `json:",inline"`
	// LocalSourceIP is the address of this CNF in the tunnel; "%config" asks the other end for one.
	// +optional
	LocalSourceIP SourceIPs `json:"local_sourceip,omitempty"`
}
