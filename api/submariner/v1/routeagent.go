package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RouteAgent is what the route agent of a node reports. Its name is the node's.
// It exists in its own cluster only.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=routeagents,singular=routeagent
type RouteAgent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is a plain field: upstream has no status subresource here.
	Status RouteAgentStatus `json:"status"`
}

// RouteAgentStatus is the report of a route agent.
type RouteAgentStatus struct {
	Version         string           `json:"version"`
	StatusFailure   string           `json:"statusFailure"`
	RemoteEndpoints []RemoteEndpoint `json:"remoteEndpoints"`
	// Node is what the agent found out about its node, for the plans of the other
	// nodes and for those who look from afar.
	// +optional
	Node *NodeFacts `json:"node,omitempty"`
	// Conditions says what the agent makes of its input: Synced, Refused.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeFacts is what a plan must know about a node's network and the API server
// does not tell.
type NodeFacts struct {
	// PrivateIP is the node's address on the device of its default route.
	PrivateIP string `json:"privateIP"`
	// Device is the device of the default route.
	Device string `json:"device"`
	// MTU of that device, in bytes.
	MTU int `json:"mtu"`
	// Network is what PrivateIP is in, in CIDR notation: the node's own network,
	// with its router and neighbours, which no other cluster may claim.
	// +optional
	Network string `json:"network,omitempty"`
	// PodIP is an address of the node inside the cluster's pod network: the source
	// of what host-network processes send to other clusters, and what answers
	// health checks.
	// +optional
	PodIP string `json:"podIP,omitempty"`
	// PodIPPlanned says that no device of the CNI held such an address, so that the
	// agent puts PodIP on its own device.
	// +optional
	PodIPPlanned bool `json:"podIPPlanned,omitempty"`
	// CableDevices are the devices there are of cables with VNIs of their own.
	// +optional
	// +listType=atomic
	CableDevices []string `json:"cableDevices,omitempty"`
	// WireGuard and IPsec say what handles such packets on the node.
	// +optional
	WireGuard EngineFact `json:"wireguard,omitempty"`
	// +optional
	IPsec EngineFact `json:"ipsec,omitempty"`
}

// EngineFact is what handles the packets of encrypted cables on a node.
type EngineFact struct {
	// Name is "kernel", or the program or plugin that does it in userspace; empty if
	// there is nothing.
	// +optional
	Name string `json:"name,omitempty"`
	// Missing is what there would have to be, if Name is empty.
	// +optional
	Missing string `json:"missing,omitempty"`
}

// RemoteEndpoint is the state of the path from a node to one remote endpoint.
type RemoteEndpoint struct {
	Status        ConnectionStatus `json:"status"`
	StatusMessage string           `json:"statusMessage"`
	Spec          EndpointSpec     `json:"spec"`
	// +optional
	LatencyRTT *LatencyRTT `json:"latencyRTT,omitempty"`
}

// RouteAgentList is a list of RouteAgents.
//
// +kubebuilder:object:root=true
type RouteAgentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RouteAgent `json:"items"`
}
