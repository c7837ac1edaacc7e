package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HAStatus says whether a gateway carries traffic.
type HAStatus string

// The values of HAStatus.
const (
	HAStatusActive  HAStatus = "active"
	HAStatusPassive HAStatus = "passive"
)

// ConnectionStatus is the state of one connection.
type ConnectionStatus string

// The values of ConnectionStatus.
const (
	Connected       ConnectionStatus = "connected"
	Connecting      ConnectionStatus = "connecting"
	ConnectionError ConnectionStatus = "error"
)

// ConditionClean is the condition of Gateways and RouteAgents by which an agent
// says, while its cluster is being uninstalled, that the node holds nothing of it
// any more.
const ConditionClean = "Clean"

// TimestampAnnotation is on every Gateway: when it was last written, in seconds
// since 1970. A Gateway not written for 15 s is of a dead gateway (upstream).
const TimestampAnnotation = "update-timestamp"

// Gateway is what a gateway node reports about itself and its connections. Its
// name is the node's. It exists in its own cluster only.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=gateways,singular=gateway
// +kubebuilder:printcolumn:name="HA Status",type=string,JSONPath=`.status.haStatus`
type Gateway struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is a plain field: upstream has no status subresource here.
	Status GatewayStatus `json:"status"`
}

// GatewayStatus is the report of a gateway.
type GatewayStatus struct {
	Version       string       `json:"version"`
	HAStatus      HAStatus     `json:"haStatus"`
	LocalEndpoint EndpointSpec `json:"localEndpoint"`
	// StatusFailure is what keeps the gateway from its work; empty if nothing does.
	StatusFailure string       `json:"statusFailure"`
	Connections   []Connection `json:"connections"`
	// Conditions says what the gateway makes of its input: Synced, Refused.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Connection is the state of the cable to one remote endpoint.
type Connection struct {
	Status        ConnectionStatus `json:"status"`
	StatusMessage string           `json:"statusMessage"`
	Endpoint      EndpointSpec     `json:"endpoint"`
	// UsingIP is the remote address the cable goes to.
	// +optional
	UsingIP string `json:"usingIP,omitempty"`
	// UsingNAT says that an address translation lies between the gateways.
	// +optional
	UsingNAT bool `json:"usingNAT,omitempty"`
	// Driver is the cable driver in use (ours; upstream has only endpoint.backend).
	// +optional
	Driver string `json:"driver,omitempty"`
	// Device is the network device of the cable.
	// +optional
	Device string `json:"device,omitempty"`
	// Policy is the cable policy that chose the driver; empty if none did.
	// +optional
	Policy string `json:"policy,omitempty"`
	// Settings are the driver's for this pair, by key, without those that have their
	// default; PolicySettings are those of them that the policy set.
	// +optional
	Settings map[string]string `json:"settings,omitempty"`
	// +optional
	PolicySettings map[string]string `json:"policySettings,omitempty"`
	// Before is the cable that carried the traffic until this one took over, for as long
	// as it is still up. An agent that starts makes both again.
	// +optional
	Before *PreviousCable `json:"before,omitempty"`
	// Implementation says where the cable's packets are handled: "kernel", or the
	// program that does it in userspace.
	// +optional
	Implementation string `json:"implementation,omitempty"`
	// MTU is the largest packet that fits into the cable, in bytes.
	// +optional
	MTU int `json:"mtu,omitempty"`
	// PathMTU is the MTU of the way to UsingIP, in bytes; 0 if it is not known.
	// +optional
	PathMTU int `json:"pathMTU,omitempty"`
	// Attempts says what was tried to reach the remote gateway and what came of it.
	// +optional
	Attempts []string `json:"attempts,omitempty"`
	// LatencyRTT is the round trip through the cable.
	// +optional
	LatencyRTT *LatencyRTT `json:"latencyRTT,omitempty"`
}

// PreviousCable says how a cable was made; its fields are those of a Connection.
type PreviousCable struct {
	Driver string `json:"driver"`
	Device string `json:"device"`
	// +optional
	Policy string `json:"policy,omitempty"`
	// +optional
	Settings map[string]string `json:"settings,omitempty"`
	// +optional
	PolicySettings map[string]string `json:"policySettings,omitempty"`
}

// LatencyRTT holds round trip times in the notation of Go's time.Duration, such
// as "404.351µs".
type LatencyRTT struct {
	Last    string `json:"last,omitempty"`
	Min     string `json:"min,omitempty"`
	Average string `json:"average,omitempty"`
	Max     string `json:"max,omitempty"`
	StdDev  string `json:"stdDev,omitempty"`
}

// GatewayList is a list of Gateways.
//
// +kubebuilder:object:root=true
type GatewayList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gateway `json:"items"`
}
