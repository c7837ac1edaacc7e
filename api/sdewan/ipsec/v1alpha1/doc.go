// Package v1alpha1 defines the IPsec kinds once more, of API group sdewan.akraino.org/v1alpha1, in
// which ICN SD-EWAN's documents print them. They have the same specs and effects as the kinds in
// subctl/api/sdewan/v1alpha1.
//
// +kubebuilder:object:generate=true
// +groupName=sdewan.akraino.org
package v1alpha1
