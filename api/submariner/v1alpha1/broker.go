package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Broker says how a broker was set up: what joining clusters must know.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=brokers,singular=broker
type Broker struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BrokerSpec   `json:"spec,omitempty"`
	Status BrokerStatus `json:"status,omitempty"`
}

// BrokerSpec holds what is common to all clusters of a broker.
type BrokerSpec struct {
	// Components lists what clusters install: connectivity, service-discovery.
	// +optional
	Components []string `json:"components,omitempty"`
	// DefaultCustomDomains lists DNS domains besides clusterset.local.
	// +optional
	DefaultCustomDomains []string `json:"defaultCustomDomains,omitempty"`
	// GlobalnetEnabled gives every cluster a network of globally unique addresses.
	// +optional
	GlobalnetEnabled bool `json:"globalnetEnabled,omitempty"`
	// GlobalnetCIDRRange is the network those networks are cut from.
	// +optional
	GlobalnetCIDRRange string `json:"globalnetCIDRRange,omitempty"`
	// DefaultGlobalnetClusterSize is how many addresses a cluster gets.
	// +optional
	DefaultGlobalnetClusterSize uint `json:"defaultGlobalnetClusterSize,omitempty"`
	// ClustersetIPEnabled gives exported Services an address of the clusterset.
	// +optional
	ClustersetIPEnabled bool `json:"clustersetIPEnabled,omitempty"`
	// ClustersetIPCIDRRange is the network those addresses are cut from.
	// +optional
	ClustersetIPCIDRRange string `json:"clustersetIPCIDRRange,omitempty"`
	// CableDriver is the driver of clusters that do not name one (ours).
	// +optional
	CableDriver string `json:"cableDriver,omitempty"`
}

// BrokerStatus is empty, as upstream.
type BrokerStatus struct{}

// BrokerList is a list of Brokers.
//
// +kubebuilder:object:root=true
type BrokerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Broker `json:"items"`
}
