package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CableConfigAnnotation is on a cluster's own Cluster: its settings of the cable
// drivers that are in force, as YAML. It does not leave the cluster.
const CableConfigAnnotation = "submariner.io/cable-config"

// ClusterSetsAnnotation is on local copies of other clusters' objects: the clustersets
// that the object was found in on the broker, sorted, separated by commas.
const ClusterSetsAnnotation = "submariner.io/clustersets"

// Cluster is one member of a clusterset. Its name is its cluster ID. Every
// cluster writes its own; the copies in the other clusters carry ClusterIDLabel.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusters,singular=cluster
// +kubebuilder:printcolumn:name="Service CIDR",type=string,JSONPath=`.spec.service_cidr`
// +kubebuilder:printcolumn:name="Cluster CIDR",type=string,JSONPath=`.spec.cluster_cidr`
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterSpec `json:"spec"`
}

// ClusterSpec describes a member.
type ClusterSpec struct {
	// ClusterID is a DNS-1123 label, unique among all clusters of a broker.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"cluster_id"`
	// ColorCodes is always ["blue"]; upstream's tools expect it.
	// +optional
	ColorCodes []string `json:"color_codes,omitempty"`
	// ServiceCIDR lists the networks of the cluster's Services.
	// +kubebuilder:validation:MaxItems=64
	ServiceCIDR []string `json:"service_cidr"`
	// ClusterCIDR lists the networks of the cluster's pods.
	// +kubebuilder:validation:MaxItems=64
	ClusterCIDR []string `json:"cluster_cidr"`
	// GlobalCIDR lists the cluster's networks of globally unique addresses; empty
	// without globalnet.
	// +kubebuilder:validation:MaxItems=64
	GlobalCIDR []string `json:"global_cidr"`
	// ClusterSets lists the clustersets the cluster is in; empty means
	// "default".
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	ClusterSets []string `json:"cluster_sets,omitempty"`
	// PublicKey is the base64 of the cluster's X25519 public key, from which each
	// pair of clusters derives its own secret. The private key never leaves the
	// cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PublicKey string `json:"public_key,omitempty"`
}

// ClusterList is a list of Clusters.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Cluster `json:"items"`
}
