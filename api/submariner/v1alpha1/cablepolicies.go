package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// CablePolicies says which cable driver joins which pairs of clusters. It is made
// on the broker or on any member, and shared with every cluster of the clusterset,
// or, with the label submarinerv1.ClusterSetLabel, of that one clusterset. The policy
// named "default" decides where no other does; package policy says how.
//
// What counts is what the broker holds, so that all clusters work from the same: see
// ClusterSets, InForce and SharedName. A copy in a member carries the labels ClusterIDLabel
// (which cluster made it; BrokerID: it was made on the broker) and ClusterSetLabel.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=cablepolicies,singular=cablepolicies
type CablePolicies struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	ConnectionPolicies []CablePolicySpec `json:"spec"`
	// Status is written by the active gateway of the cluster that made the policy.
	// Copies have none.
	// +optional
	Status CablePoliciesStatus `json:"status,omitempty"`
}

// DefaultCablePolicy is the name of the policy for pairs that no other matches.
const DefaultCablePolicy = "default"

// CablePolicySpec selects pairs of clusters, in either order, and names their driver.
type CablePolicySpec struct {
	// LeftClusterSelector selects one end by the labels of its Cluster object. Empty
	// matches any cluster.
	// +optional
	LeftClusterSelector ClusterSelector `json:"leftClusterSelector,omitempty"`
	// RightClusterSelector selects the other end. Empty matches any cluster.
	// +optional
	RightClusterSelector ClusterSelector `json:"rightClusterSelector,omitempty"`
	// CableDriver is the driver for the pairs; libreswan is an alias of ipsec.
	// +kubebuilder:validation:Enum=vxlan;wireguard;ipsec;libreswan;vxlan+wireguard;wireguard+vxlan;vxlan+ipsec;ipsec+vxlan;vxlan+libreswan;libreswan+vxlan
	CableDriver string `json:"name"`
	// CableOptions are settings of the driver for these pairs.
	// +optional
	CableOptions *CableOptions `json:"options,omitempty"`
}

// ClusterSelector selects clusters by their labels: a metav1.LabelSelector with bounds,
// as policies come from other clusters.
//
// +structType=atomic
type ClusterSelector struct {
	// MatchLabels are labels that a cluster has to have; a value that begins with "!" is
	// one that it must not have.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	// MatchExpressions are further requirements.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	MatchExpressions []ClusterRequirement `json:"matchExpressions,omitempty"`
}

// ClusterRequirement is a metav1.LabelSelectorRequirement with bounds.
//
// +kubebuilder:validation:XValidation:rule="self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0",message="operators In and NotIn need values, Exists and DoesNotExist take none"
type ClusterRequirement struct {
	// Key is that of a label.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Key string `json:"key"`
	// Operator relates the key to the values.
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`
	// Values are those of labels.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Values []string `json:"values,omitempty"`
}

// Bounds of a policy, as its schema has them.
const (
	MaxRules        = 64
	MaxRequirements = 32  // of matchLabels, and of matchExpressions
	MaxValues       = 256 // of one requirement
	MaxOptionsData  = 16  // keys
)

// CableOptions is the part of a ConfigMap that a policy carries along: other
// clusters have no access to the ConfigMap itself. It has a ConfigMap's JSON.
type CableOptions struct {
	// Metadata names the ConfigMap that Data is a copy of.
	// +optional
	Metadata CableOptionsSource `json:"metadata,omitempty"`
	// Data is the ConfigMap's: settings are the YAML under the key CableCustomConfig.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Data map[string]string `json:"data,omitempty"`
}

// CableOptionsSource names a ConfigMap in the cluster that made the policy.
type CableOptionsSource struct {
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Namespace is submariner-operator if empty.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// CableCustomConfig is the key of a ConfigMap under which drivers' settings are
// found, as YAML.
const CableCustomConfig = "CableCustomConfig"

// CablePoliciesStatus is what became of a policy.
type CablePoliciesStatus struct {
	// ClusterSets lists the clustersets on whose broker the policy is, sorted.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	ClusterSets []string `json:"clusterSets,omitempty"`
	// Rules are those that the broker holds, and that count: the spec may have a mistake
	// since, or the broker may be away.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Rules []CablePolicySpec `json:"rules,omitempty"`
	// Conditions: Accepted, false with a reason where the policy is not understood;
	// Shared, false where it is not on the broker, for example as its name is taken.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions of CablePolicies.
const (
	ConditionAccepted = "Accepted"
	// ConditionShared is true for a generation that the broker holds as it is here.
	ConditionShared = "Shared"
)

// ClusterSets returns the clustersets in which the policy counts, sorted: those on
// whose broker it is. One that was made here counts in none before it is there.
func (p *CablePolicies) ClusterSets() []string {
	if submarinerv1.IsCopy(p) {
		return []string{p.Labels[submarinerv1.ClusterSetLabel]}
	}
	return p.Status.ClusterSets
}

// InForce returns the rules that count in the ClusterSets: those that the broker holds.
func (p *CablePolicies) InForce() []CablePolicySpec {
	if submarinerv1.IsCopy(p) || len(p.Status.Rules) == 0 {
		return p.ConnectionPolicies
	}
	return p.Status.Rules
}

// SharedName returns the name that the policy has on the broker, which is the same
// for all clusters. The copy of a clusterset other than "default", and one whose name
// is that of another policy here, is called <name>.<clusterset>.
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
