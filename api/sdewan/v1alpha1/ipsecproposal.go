package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IpsecProposal names the algorithms of a tunnel, in the words of strongSwan.
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
type IpsecProposal struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IpsecProposalSpec `json:"spec"`
	// +optional
	Status RuleStatus `json:"status,omitempty"`
}

// RuleStatus returns the status, which the caller may change.
func (r *IpsecProposal) RuleStatus() *RuleStatus { return &r.Status }

// IpsecProposalList is a list of IpsecProposal objects.
//
// +kubebuilder:object:root=true
type IpsecProposalList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IpsecProposal `json:"items"`
}

// IpsecProposalSpec names algorithms.
//
// +kubebuilder:validation:XValidation:rule=`self.encryption_algorithm != ""`,message="encryption_algorithm is required, such as aes256"
type IpsecProposalSpec struct {
	// Name has no effect: on the CNF, the rule has the object's name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Encryption is the cipher.
	// +kubebuilder:validation:MaxLength=64
	Encryption string `json:"encryption_algorithm"`
	// Hash protects integrity. A cipher with its own protection (aes256gcm16, chacha20poly1305) needs none for ESP.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash_algorithm,omitempty"`
	// DHGroup is the group of the key exchange.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	DHGroup string `json:"dh_group,omitempty"`
}
