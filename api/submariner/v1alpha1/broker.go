package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Broker describes how a broker was deployed: the settings that joining clusters need.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=brokers,singular=broker
// +kubebuilder:printcolumn:name="Components",type=string,JSONPath=`.spec.components`
// +kubebuilder:printcolumn:name="Globalnet",type=boolean,JSONPath=`.spec.globalnetEnabled`
// +kubebuilder:printcolumn:name="Globalnet CIDR",type=string,JSONPath=`.spec.globalnetCIDRRange`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Broker struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BrokerSpec   `json:"spec,omitempty"`
	Status BrokerStatus `json:"status,omitempty"`
}

// BrokerSpec holds the settings that all clusters of a broker share.
type BrokerSpec struct {
	// Components lists the components that clusters install: connectivity. For service discovery
	// see serviceDiscoveryEnabled.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(c, c == 'connectivity')",message="specify connectivity only, and service discovery with serviceDiscoveryEnabled"
	Components []string `json:"components,omitempty"`
	// DefaultCustomDomains must be empty: names of imported Services end in clusterset.local.
	// +optional
	// +kubebuilder:validation:XValidation:rule="size(self) == 0",message="it has no effect: names of imported Services end in clusterset.local"
	DefaultCustomDomains []string `json:"defaultCustomDomains,omitempty"`
	// ServiceDiscoveryEnabled specifies whether clusters export and import Services by name, if
	// their join does not specify it (our addition). Unset, it is true.
	// +optional
	ServiceDiscoveryEnabled *bool `json:"serviceDiscoveryEnabled,omitempty"`
	// GlobalnetEnabled specifies whether a cluster gets a network of globally unique
	// addresses when it joins.
	// +optional
	GlobalnetEnabled bool `json:"globalnetEnabled,omitempty"`
	// GlobalnetCIDRRange is the range from which these networks are allocated, in CIDR notation.
	// +optional
	GlobalnetCIDRRange string `json:"globalnetCIDRRange,omitempty"`
	// DefaultGlobalnetClusterSize is the number of addresses in the network of a cluster that does
	// not ask for another number. It is a power of two.
	// +optional
	DefaultGlobalnetClusterSize uint `json:"defaultGlobalnetClusterSize,omitempty"`
	// ClustersetIPEnabled must be false: imported Services always have an address.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self",message="it has no effect: imported Services always have an address"
	ClustersetIPEnabled bool `json:"clustersetIPEnabled,omitempty"`
	// ClustersetIPCIDRRange must be empty: imported Services have addresses of the Service network.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == ''",message="it has no effect: imported Services have addresses of the Service network"
	ClustersetIPCIDRRange string `json:"clustersetIPCIDRRange,omitempty"`
	// CableDriver is the driver of clusters that do not specify one (our addition).
	// +optional
	CableDriver string `json:"cableDriver,omitempty"`
	// PoliciesFrom specifies whose cable policies apply: "members" (also if it is empty), those
	// of the broker and of all clusters; "broker", only those of the broker (our addition).
	// +optional
	PoliciesFrom PoliciesFrom `json:"policiesFrom,omitempty"`
}

// HasServiceDiscovery reports whether clusters export and import Services by name, if their join
// does not specify it.
func (s BrokerSpec) HasServiceDiscovery() bool {
	return s.ServiceDiscoveryEnabled == nil || *s.ServiceDiscoveryEnabled
}

// PoliciesFrom specifies whose cable policies apply.
//
// +kubebuilder:validation:Enum=members;broker
type PoliciesFrom string

// The values of PoliciesFrom. Empty means PoliciesFromMembers.
const (
	PoliciesFromMembers PoliciesFrom = "members"
	PoliciesFromBroker  PoliciesFrom = "broker"
)

// BrokerOnly reports whether only the broker's policies apply.
func (p PoliciesFrom) BrokerOnly() bool { return p == PoliciesFromBroker }

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
