package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CablePolicies says which cable driver joins which pairs of clusters. It is made
// on the broker or on any member, and shared with every cluster of the clusterset.
// The policy named "default" decides where no other does; package policy says how.
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
	// Status is written by the cluster that made the policy.
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
	LeftClusterSelector metav1.LabelSelector `json:"leftClusterSelector,omitempty"`
	// RightClusterSelector selects the other end. Empty matches any cluster.
	// +optional
	RightClusterSelector metav1.LabelSelector `json:"rightClusterSelector,omitempty"`
	// CableDriver is the driver for the pairs: vxlan, wireguard, ipsec (or its alias
	// libreswan), vxlan+wireguard or vxlan+ipsec.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	CableDriver string `json:"name"`
	// CableOptions are settings of the driver for these pairs.
	// +optional
	CableOptions *CableOptions `json:"options,omitempty"`
}

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
	// Conditions: Accepted, false with a reason where the policy is not understood;
	// Shared, false where the broker refuses it, for example as its name is taken.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions of CablePolicies.
const (
	ConditionAccepted = "Accepted"
	ConditionShared   = "Shared"
)

// CablePoliciesList is a list of CablePolicies.
//
// +kubebuilder:object:root=true
type CablePoliciesList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CablePolicies `json:"items"`
}
