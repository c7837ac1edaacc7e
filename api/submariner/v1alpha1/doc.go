// Package v1alpha1 holds the kinds with which a person says what to run: Submariner
// (a joined cluster), Broker, and CablePolicies (which cable a pair of clusters gets), of
// API group submariner.io/v1alpha1.
//
// JSON names and required fields are those of Submariner; fields of our own are
// optional additions.
//
// +kubebuilder:object:generate=true
// +groupName=submariner.io
package v1alpha1
