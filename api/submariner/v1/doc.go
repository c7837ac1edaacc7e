// Package v1 defines the kinds that describe clusters and their gateways (Cluster,
// Endpoint, Gateway and RouteAgent), and the kinds that request global addresses
// (ClusterGlobalEgressIP, GlobalEgressIP and GlobalIngressIP), of API group submariner.io/v1.
//
// JSON names and required fields are the same as Submariner's, so that its tools can
// read our objects; our own fields are optional additions. The package
// contains only data. The content of objects beyond their schema is validated where
// it is used (package cable): until then, an object from another cluster is untrusted.
//
// +kubebuilder:object:generate=true
// +groupName=submariner.io
package v1
