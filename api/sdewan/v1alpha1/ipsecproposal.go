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
	// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches('^(null|des|3des|cast128|chacha20poly1305|(aes|camellia)|(aes|camellia|blowfish|serpent|twofish)(128|192|256)|(aes|camellia)(128|192|256)ctr|(aes|camellia)(128|192|256)ccm(8|12|16|64|96|128)|aes(128|192|256)(gcm(8|12|16|64|96|128)|gmac))$')`,message="must be a cipher of strongSwan: aes128, aes192 or aes256, also followed by ctr, gcm16, gcm12, gcm8, ccm16, ccm12, ccm8 or gmac; chacha20poly1305; camellia256, 3des, blowfish128, serpent128, twofish128, cast128, des or null"
	Encryption string `json:"encryption_algorithm"`
	// Hash protects integrity. A cipher with its own protection (aes256gcm16, chacha20poly1305)
	// needs none for ESP.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches('^(md5|md5_128|sha|sha1|sha1_160|sha256|sha2_256|sha256_96|sha2_256_96|sha384|sha2_384|sha512|sha2_512|aesxcbc|aescmac|aes(128|192|256)gmac|camelliaxcbc)$')`,message="must be a hash of strongSwan: sha256, sha384, sha512, sha1, md5, sha256_96, aesxcbc, aescmac, aes128gmac, aes192gmac, aes256gmac or camelliaxcbc"
	Hash string `json:"hash_algorithm,omitempty"`
	// DHGroup is the group of the key exchange.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches('^(modpnone|modpnull|modp(768|1024|1536|2048|3072|4096|6144|8192|1024s160|2048s224|2048s256)|ecp(192|224|256|384|521)|ecp(224|256|384|512)bp|curve25519|x25519|curve448|x448)$')`,message="must be a group of strongSwan: modp2048, modp3072, modp4096, modp6144, modp8192, ecp256, ecp384, ecp521, ecp256bp, ecp384bp, ecp512bp, x25519 (curve25519), x448 (curve448), or one of the weak ones modp768 to modp1536"
	DHGroup string `json:"dh_group,omitempty"`
}
