// Package v1 holds the kinds that clusters tell each other about themselves:
// Cluster, Endpoint, Gateway and RouteAgent of API group submariner.io/v1.
//
// JSON names and required fields are those of Submariner, so that its tools can
// read what we write; fields of our own are optional additions. The package
// holds data only: what an object may contain beyond its schema is checked where
// it is used (package cable), because an object that came from another cluster
// is hostile until then.
//
// +kubebuilder:object:generate=true
// +groupName=submariner.io
package v1
