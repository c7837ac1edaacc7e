package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Endpoint is an active gateway of a cluster: its addresses, its drivers and the networks
// behind it. A cluster with several active gateways has several Endpoints.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=endpoints,singular=endpoint
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster_id`
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.spec.hostname`
// +kubebuilder:printcolumn:name="Cable",type=string,JSONPath=`.spec.backend`
// +kubebuilder:printcolumn:name="Private IP",type=string,JSONPath=`.spec.private_ip`
// +kubebuilder:printcolumn:name="Public IP",type=string,JSONPath=`.spec.public_ip`
// +kubebuilder:printcolumn:name="Subnets",type=string,JSONPath=`.spec.subnets`,priority=1
// +kubebuilder:printcolumn:name="Name in Clusters",type=string,JSONPath=`.metadata.annotations.submariner\.io/name`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Endpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:rule="!has(self.backend_config) || self.backend_config.all(k, size(k) <= 63 && size(self.backend_config[k]) <= 1024)",message="backend_config: keys have at most 63 characters, values 1024"
	// +kubebuilder:validation:XValidation:rule="self.backend.matches('[^ ]')",message="backend: the name of a cable driver is missing"
	Spec EndpointSpec `json:"spec"`
}

// EndpointSpec describes an active gateway.
type EndpointSpec struct {
	// ClusterID is the ID of the gateway's cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"cluster_id"`
	// CableName is submariner-cable-<cluster ID>-<private IP, with '-' instead of '.'>.
	// +kubebuilder:validation:MaxLength=253
	CableName string `json:"cable_name"`
	// HealthCheckIP is an address of the gateway in its pod network that answers pings
	// through the cable. If it is empty, the cable is not probed.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	HealthCheckIP string `json:"healthCheckIP,omitempty"`
	// Hostname is the name of the gateway's node.
	// +kubebuilder:validation:MaxLength=253
	Hostname string `json:"hostname"`
	// Subnets lists the networks behind the gateway, in CIDR notation: Service networks,
	// then pod networks; with globalnet only the global networks.
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=64
	Subnets []string `json:"subnets"`
	// PrivateIP is the gateway node's address in its own network.
	// +kubebuilder:validation:MaxLength=64
	PrivateIP string `json:"private_ip"`
	// PublicIP is the gateway's public address; empty if unknown.
	// +kubebuilder:validation:MaxLength=64
	PublicIP string `json:"public_ip"`
	// NATEnabled reports whether the gateway expects NAT between gateways.
	NATEnabled bool `json:"nat_enabled"`
	// Backend is the gateway's default cable driver.
	// +kubebuilder:validation:MaxLength=63
	Backend string `json:"backend"`
	// BackendConfig holds the parameters of the drivers that a peer needs, such as ports and
	// public keys. It never contains a secret.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	BackendConfig map[string]string `json:"backend_config,omitempty"`
	// AllocatedIPs lists addresses that belong to this gateway: replies to them must
	// return through it.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	AllocatedIPs []string `json:"allocated_ips,omitempty"`
}

// MaxAllocatedIPs is the most addresses in EndpointSpec.AllocatedIPs that other clusters accept: a
// gateway has as many as an egress object may have.
const MaxAllocatedIPs = MaxGlobalEgressIPs

// EndpointList is a list of Endpoints.
//
// +kubebuilder:object:root=true
type EndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Endpoint `json:"items"`
}
