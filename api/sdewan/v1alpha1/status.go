package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RuleStatus reports whether all pods of the CNF have the rule. It is written by the controller.
type RuleStatus struct {
	// AppliedVersion is the resource version of the object that all pods of the CNF have. It is
	// absent while a pod is not ready.
	// +optional
	AppliedVersion string `json:"appliedVersion,omitempty"`
	// AppliedTime is when the last pod got this version.
	// +optional
	AppliedTime *metav1.Time `json:"appliedTime,omitempty"`
	// InSync is true if all pods of the CNF have the rule as it is.
	// +optional
	InSync bool `json:"inSync"`
	// ObservedGeneration is the generation of the object that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions has the condition Applied, which gives the reason if InSync is false.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// AppliedGeneration is not written: later controllers of ICN SD-EWAN have it, and so objects
	// that come from them.
	// +optional
	AppliedGeneration int64 `json:"appliedGeneration,omitempty"`
	// State is not written, like appliedGeneration.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	State string `json:"state,omitempty"`
	// Message is not written, like appliedGeneration: the condition Applied has the message.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`
}

// ConditionApplied is true if all pods of the CNF have the rule as it is.
const ConditionApplied = "Applied"
