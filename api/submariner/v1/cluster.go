package v1

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CableConfigAnnotation is an annotation of a cluster's own Cluster. It holds the cable
// driver settings in force, as YAML. It is not copied to the broker.
const CableConfigAnnotation = "submariner.io/cable-config"

// PoliciesAnnotation is an annotation of a cluster's own Cluster. It states that the cluster
// holds all cable policies of its clustersets: the broker and the clustersets that they were
// read from, and their digest. It is not copied to the broker.
const PoliciesAnnotation = "submariner.io/cable-policies"

// ClusterSetsAnnotation is an annotation of local copies of other clusters' objects. It lists
// the clustersets in which the broker has the object, sorted, separated by commas. A clusterset
// with '?' after its name was never read since the copy was made: it may have the object, too.
// On a cluster's own Cluster it lists the clustersets of the cluster's grant.
const ClusterSetsAnnotation = "submariner.io/clustersets"

// UnreadMark is the character after the name of such a clusterset.
const UnreadMark = "?"

// Encryption specifies whether pairs of clusters may be connected without encryption.
//
// +kubebuilder:validation:Enum="";required
type Encryption string

// EncryptionRequired forbids cables without encryption, whatever the cable policies decide.
const EncryptionRequired Encryption = "required"

// Required reports whether encryption is required. An unknown value, for example of a newer
// version, counts as required.
func (e Encryption) Required() bool { return e != "" }

// Cluster is a member of a clusterset. Its name is the cluster ID. Every cluster
// writes its own Cluster; the copies in other clusters carry ClusterIDLabel.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusters,singular=cluster
// +kubebuilder:printcolumn:name="Service CIDR",type=string,JSONPath=`.spec.service_cidr`
// +kubebuilder:printcolumn:name="Cluster CIDR",type=string,JSONPath=`.spec.cluster_cidr`
// +kubebuilder:printcolumn:name="Global CIDR",type=string,JSONPath=`.spec.global_cidr`,priority=1
// +kubebuilder:printcolumn:name="Clustersets",type=string,JSONPath=`.spec.cluster_sets`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
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
	// ColorCodes is always ["blue"], which upstream's tools expect.
	// +optional
	ColorCodes []string `json:"color_codes,omitempty"`
	// ServiceCIDR lists the Service networks of the cluster, in CIDR notation. Other clusters reach
	// them unless there is a GlobalCIDR.
	// +kubebuilder:validation:MaxItems=64
	ServiceCIDR []string `json:"service_cidr"`
	// ClusterCIDR lists the pod networks of the cluster, in CIDR notation. Other clusters reach
	// them unless there is a GlobalCIDR.
	// +kubebuilder:validation:MaxItems=64
	ClusterCIDR []string `json:"cluster_cidr"`
	// GlobalCIDR lists the cluster's networks of globally unique addresses, in CIDR
	// notation; empty without globalnet.
	// +kubebuilder:validation:MaxItems=64
	GlobalCIDR []string `json:"global_cidr"`
	// ClusterSets lists, on the broker, the clusterset of the namespace; in a copy, the clustersets
	// in which the Cluster was found; and in the cluster itself, all its clustersets. It shows
	// them, and does not decide: it is not signed, agents and subctl do not go by it (see
	// ClusterSetsAnnotation), and clusters refuse that a person changes it.
	// +optional
	// +kubebuilder:validation:MaxItems=2048
	ClusterSets []string `json:"cluster_sets,omitempty"`
	// PublicKey is the cluster's X25519 public key, in base64. Each pair of clusters
	// derives its own secret from its two key pairs. The private key never leaves the
	// cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PublicKey string `json:"public_key,omitempty"`
	// Encryption is "required" if the cluster must never be connected to another cluster
	// without encryption.
	// +optional
	Encryption Encryption `json:"encryption,omitempty"`
}

// ClusterList is a list of Clusters.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Cluster `json:"items"`
}

// ClusterSets returns the clustersets in which a copy was found; none, if the copy does not say.
func (c *Cluster) ClusterSets() []string { return c.listedSets(false) }

// UnreadClusterSets returns the clustersets in which the object of a copy may be, too, as they
// have not been read.
func (c *Cluster) UnreadClusterSets() []string { return c.listedSets(true) }

func (c *Cluster) listedSets(unread bool) (out []string) {
	listed := c.Annotations[ClusterSetsAnnotation]
	if listed == "" {
		return nil
	}
	for set := range strings.SplitSeq(listed, ",") {
		if name, marked := strings.CutSuffix(set, UnreadMark); marked == unread {
			out = append(out, name)
		}
	}
	return out
}

// Announced returns the networks in which other clusters reach this one, in the order of
// EndpointSpec.Subnets.
func (s ClusterSpec) Announced() []string {
	if len(s.GlobalCIDR) > 0 {
		return slices.Clone(s.GlobalCIDR)
	}
	return slices.Concat(s.ServiceCIDR, s.ClusterCIDR)
}
