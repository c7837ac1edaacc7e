// Package v1alpha1 defines the kinds of SD-EWAN, of API group batch.sdewan.akraino.org/v1alpha1:
// the rules that are applied to the network functions (CNFs) with the same label sdewanPurpose in
// the same namespace, and CNFStatus.
//
// ICN SD-EWAN has the same kinds, fields and values, so that its manifests apply: a number may be
// written as a number or as a string, and "" is the same as an absent field.
//
// +kubebuilder:object:generate=true
// +groupName=batch.sdewan.akraino.org
package v1alpha1
