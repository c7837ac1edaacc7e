package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// CablePolicies specifies which cable driver connects which pairs of clusters. It is created
// on the broker or on any member, and shared with all clustersets of that member, or, with
// the label submarinerv1.ClusterSetLabel, with that clusterset only. The policy
// named "default" decides where no other policy matches; see package policy.
//
// The version that the broker holds is in force, so that all clusters use the same policy:
// see ClusterSets, InForce and SharedName. A copy in a member carries the labels ClusterIDLabel
// (the cluster on which it was created, or BrokerID) and ClusterSetLabel.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=cablepolicies,singular=cablepolicies
// +kubebuilder:printcolumn:name="First Driver",type=string,JSONPath=`.spec[0].name`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Shared",type=string,JSONPath=`.status.conditions[?(@.type=="Shared")].status`
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels.submariner-io/clusterID`,priority=1
// +kubebuilder:printcolumn:name="Name in Clusters",type=string,JSONPath=`.metadata.annotations.submariner\.io/name`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CablePolicies struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// ConnectionPolicies are the rules, a list even for a single one. Selectors have matchLabels or
	// matchExpressions. "subctl cable-policy add -f FILE --dry-run -o yaml" converts a file with
	// the short form of a single rule.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	ConnectionPolicies []CablePolicySpec `json:"spec"`
	// Status is written by the active gateway of the cluster on which the policy was created.
	// Copies have none.
	// +optional
	Status CablePoliciesStatus `json:"status,omitempty"`
}

// DefaultCablePolicy is the name of the policy for pairs that no other policy matches.
const DefaultCablePolicy = "default"

// CablePolicySpec selects pairs of clusters, in either order, and specifies their driver.
type CablePolicySpec struct {
	// LeftClusterSelector selects one end by the labels of its Cluster object. An empty
	// selector selects any cluster.
	// +optional
	LeftClusterSelector ClusterSelector `json:"leftClusterSelector,omitempty"`
	// RightClusterSelector selects the other end. An empty selector selects any cluster.
	// +optional
	RightClusterSelector ClusterSelector `json:"rightClusterSelector,omitempty"`
	// CableDriver is the driver for the pairs; libreswan is an alias of ipsec.
	// +kubebuilder:validation:Enum=vxlan;wireguard;ipsec;libreswan;vxlan+wireguard;wireguard+vxlan;vxlan+ipsec;ipsec+vxlan;vxlan+libreswan;libreswan+vxlan
	CableDriver string `json:"name"`
	// CableOptions are settings of the driver for these pairs.
	// +optional
	CableOptions *CableOptions `json:"options,omitempty"`
}

// ClusterSelector selects clusters by their labels. It is a metav1.LabelSelector with limits,
// since policies come from other clusters.
//
// +structType=atomic
type ClusterSelector struct {
	// MatchLabels are labels that a cluster must have. If a value begins with "!", the cluster
	// must not have the label with the rest of the value.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	// MatchExpressions are further requirements.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	MatchExpressions []ClusterRequirement `json:"matchExpressions,omitempty"`
}

// ClusterRequirement is a metav1.LabelSelectorRequirement with limits.
//
// +kubebuilder:validation:XValidation:rule="self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0",message="operators In and NotIn need values, Exists and DoesNotExist take none"
type ClusterRequirement struct {
	// Key is the key of a label.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Key string `json:"key"`
	// Operator relates the key to the values.
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`
	// Values are label values; empty for Exists and DoesNotExist.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Values []string `json:"values,omitempty"`
}

// Limits of a policy, as in its schema.
const (
	MaxRules        = 64
	MaxRequirements = 32  // of matchLabels, and of matchExpressions
	MaxValues       = 256 // of one requirement
	MaxOptionsData  = 16  // keys
)

// CableOptions are settings of a rule. Metadata and Data have the JSON form of a ConfigMap,
// and are a copy of one, since other clusters have no access to the ConfigMap itself.
type CableOptions struct {
	// Metadata names the ConfigMap from which Data was copied.
	// +optional
	Metadata CableOptionsSource `json:"metadata,omitempty"`
	// Data is the data of the ConfigMap. The key CableCustomConfig holds settings as YAML.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Data map[string]string `json:"data,omitempty"`
	// Encryption is "required" if the pairs that the rule matches must never be connected
	// without encryption, even where another rule decides.
	// +optional
	Encryption submarinerv1.Encryption `json:"encryption,omitempty"`
}

// RequiresEncryption reports whether the pairs that the rule matches must never be connected
// without encryption.
func (s CablePolicySpec) RequiresEncryption() bool {
	return s.CableOptions != nil && s.CableOptions.Encryption.Required()
}

// CableOptionsSource names a ConfigMap in the cluster on which the policy was created.
type CableOptionsSource struct {
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Namespace is the namespace of the ConfigMap; empty means submariner-operator.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// CableCustomConfig is the key of a ConfigMap that holds cable driver settings, as YAML.
const CableCustomConfig = "CableCustomConfig"

// CablePoliciesStatus reports whether a policy is valid and shared.
type CablePoliciesStatus struct {
	// ClusterSets lists the clustersets in which the broker has the policy, sorted.
	// +optional
	// +kubebuilder:validation:MaxItems=2048
	ClusterSets []string `json:"clusterSets,omitempty"`
	// Rules are the rules that the broker holds, which are in force. The spec may have become
	// invalid since, or may not have reached the broker.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Rules []CablePolicySpec `json:"rules,omitempty"`
	// Conditions are Accepted, which is false if the policy is invalid, and Shared, which is
	// false if the broker does not have it, for example because its name is taken.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions of CablePolicies.
const (
	// ConditionAccepted is true if the policy is valid.
	ConditionAccepted = "Accepted"
	// ConditionShared is true if the broker holds the observed generation. Pages of exported
	// Services have it, too.
	ConditionShared = "Shared"
)

// Reasons of the condition Shared, if it is false, for which agents look.
const (
	// ReasonPending means that the broker is to have the object soon.
	ReasonPending = "Pending"
	// ReasonTooMany means that the broker has no place for the object.
	ReasonTooMany = "TooMany"
)

// ClusterSets returns the clustersets in which the policy is in force, sorted: the
// clustersets in which the broker has it.
func (p *CablePolicies) ClusterSets() []string {
	if submarinerv1.IsCopy(p) {
		return []string{p.Labels[submarinerv1.ClusterSetLabel]}
	}
	return p.Status.ClusterSets
}

// InForce returns the rules that are in force in the ClusterSets: the rules that the broker holds.
func (p *CablePolicies) InForce() []CablePolicySpec {
	if submarinerv1.IsCopy(p) || len(p.Status.Rules) == 0 {
		return p.ConnectionPolicies
	}
	return p.Status.Rules
}

// GetConditions returns the conditions in the status.
func (p *CablePolicies) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SharedName returns the name of the policy on the broker, which is the same for all
// clusters. A local copy is called <name>.<clusterset> if its clusterset is not "default",
// or if another policy here has the name.
func (p *CablePolicies) SharedName() string {
	if submarinerv1.IsCopy(p) {
		name, _, _ := strings.Cut(p.Name, ".")
		return name
	}
	return p.Name
}

// CablePoliciesList is a list of CablePolicies.
//
// +kubebuilder:object:root=true
type CablePoliciesList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CablePolicies `json:"items"`
}
