// Package v1alpha1 defines the kinds that configure subctl: Submariner (a joined cluster),
// Broker, and CablePolicies (the cable driver for each pair of clusters), of API group
// submariner.io/v1alpha1.
//
// JSON names and required fields are the same as Submariner's; our own fields are
// optional additions.
//
// +kubebuilder:object:generate=true
// +groupName=submariner.io
package v1alpha1
