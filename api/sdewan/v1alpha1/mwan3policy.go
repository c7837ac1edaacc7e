package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Mwan3Policy spreads connections over uplinks, and selects other uplinks when some are offline.
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
type Mwan3Policy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec Mwan3PolicySpec `json:"spec"`
	// +optional
	Status RuleStatus `json:"status,omitempty"`
}

// RuleStatus returns the status, which the caller may change.
func (r *Mwan3Policy) RuleStatus() *RuleStatus { return &r.Status }

// Mwan3PolicyList is a list of Mwan3Policy objects.
//
// +kubebuilder:object:root=true
type Mwan3PolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Mwan3Policy `json:"items"`
}

// Mwan3PolicySpec lists uplinks. Of the uplinks that are online, the ones with the lowest metric
// are used, each for a share of new connections according to its weight. Uplinks that are not good
// come last: see MaxLoss.
type Mwan3PolicySpec struct {
	// Members are the uplinks.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=60
	// +kubebuilder:validation:XValidation:rule=`self.all(a, self.exists_one(b, b.network == a.network))`,message="each network may be listed once"
	Members []Mwan3PolicyMember `json:"members"`
	// LastResort is what connections meet if no uplink of the policy is online: they are refused
	// (unreachable), dropped (blackhole), or take the default route of the pod (default). The
	// default is unreachable.
	// +optional
	// +kubebuilder:validation:Enum="";unreachable;blackhole;default
	LastResort string `json:"last_resort,omitempty"`
}

// Mwan3PolicyMember is an uplink of a policy.
type Mwan3PolicyMember struct {
	// Network is the name of a network of the CNF, as in its annotation
	// k8s.plugin.opnfv.org/nfn-network.
	Network NetworkName `json:"network"`
	// Metric orders uplinks: those with the lowest metric are used. The default is 1.
	// +optional
	Metric Metric `json:"metric,omitempty"`
	// Weight is the share of this uplink among those with the same metric. The default is 1.
	// +optional
	Weight Weight `json:"weight,omitempty"`
	// MaxLoss is the greatest loss of pings, in percent, with which the uplink is good. New
	// connections take uplinks that are not good only if no other one of the policy is online.
	// +optional
	MaxLoss Percent `json:"max_loss,omitempty"`
	// MaxLatency is the greatest round-trip time, in milliseconds, with which the uplink is good.
	// +optional
	MaxLatency Milliseconds `json:"max_latency,omitempty"`
	// MaxJitter is the greatest difference between the round-trip times of two pings, on average,
	// in milliseconds, with which the uplink is good.
	// +optional
	MaxJitter Milliseconds `json:"max_jitter,omitempty"`
}
