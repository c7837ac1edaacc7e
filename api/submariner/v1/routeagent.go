package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RouteAgent is the report of a node's route agent. Its name is the name of the node.
// It is not copied to other clusters.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=routeagents,singular=routeagent
// +kubebuilder:printcolumn:name="Private IP",type=string,JSONPath=`.status.node.privateIP`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Failure",type=string,JSONPath=`.status.statusFailure`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RouteAgent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is a plain field: upstream has no status subresource here.
	Status RouteAgentStatus `json:"status"`
}

// GetConditions returns the conditions in the status.
func (r *RouteAgent) GetConditions() []metav1.Condition { return r.Status.Conditions }

// RouteAgentStatus is the report of a route agent.
type RouteAgentStatus struct {
	Version       string `json:"version"`
	StatusFailure string `json:"statusFailure"`
	// RemoteEndpoints are the paths from the node to the gateways of other clusters, which the
	// route agent pings: at most 32, the unconnected gateways first.
	RemoteEndpoints []RemoteEndpoint `json:"remoteEndpoints"`
	// RemoteEndpointsOmitted is the number of gateways that RemoteEndpoints leaves out. The
	// Gateways of this cluster have all of them (our addition).
	// +optional
	RemoteEndpointsOmitted int `json:"remoteEndpointsOmitted,omitempty"`
	// Node describes the network of the node. The plans of other nodes and "subctl show plan"
	// depend on it.
	// +optional
	Node *NodeFacts `json:"node,omitempty"`
	// Conditions are the conditions of the agent, such as Synced and Refused.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeFacts describes the network of a node, as far as plans need it and the API server
// does not know it.
type NodeFacts struct {
	// PrivateIP is the node's InternalIP if one of its devices has it, or else its address on
	// the device of the default route.
	PrivateIP string `json:"privateIP"`
	// Device is the device of PrivateIP.
	Device string `json:"device"`
	// MTU is the MTU of Device, in bytes.
	MTU int `json:"mtu"`
	// Network is the network of PrivateIP, in CIDR notation. It contains the node's router and
	// neighbors, and no other cluster may announce it.
	// +optional
	Network string `json:"network,omitempty"`
	// PodIP is an address of the node in the cluster's pod network. Host-network processes
	// use it as source address towards other clusters, and it answers health checks.
	// +optional
	PodIP string `json:"podIP,omitempty"`
	// PodIPPlanned reports whether PodIP is on the agent's own device, because no device of
	// the CNI has an address in the pod network.
	// +optional
	PodIPPlanned bool `json:"podIPPlanned,omitempty"`
	// NeverRouted lists networks and addresses that the node itself needs to reach. The node
	// does not connect to an endpoint of another cluster that announces any part of them.
	// +optional
	// +listType=atomic
	NeverRouted []NeverRouted `json:"neverRouted,omitempty"`
	// WireGuard describes the node's WireGuard implementation.
	// +optional
	WireGuard EngineFact `json:"wireguard,omitempty"`
	// IPsec describes the node's IPsec implementation.
	// +optional
	IPsec EngineFact `json:"ipsec,omitempty"`
	// NoNextHopObjects reports that the node's kernel has no next hop objects (Linux before 5.3).
	// +optional
	NoNextHopObjects bool `json:"noNextHopObjects,omitempty"`
	// NoIPv6Tables reports that the node's kernel has IPv6, and its nftables has no tables for
	// IPv6: IPv6 packets that other clusters hide inside VXLAN packets are not dropped.
	// +optional
	NoIPv6Tables bool `json:"noIPv6Tables,omitempty"`
	// ResilientGroups reports whether the node's kernel has resilient next hop groups.
	// +optional
	ResilientGroups bool `json:"resilientGroups,omitempty"`
	// MultipathHashPolicy is net.ipv4.fib_multipath_hash_policy of the node: 0 if the gateway of a
	// packet depends on its addresses, 1 if it depends on its ports, too; nil if unknown.
	// +optional
	MultipathHashPolicy *int `json:"multipathHashPolicy,omitempty"`
}

// NeverRouted is a network that a node itself needs to reach.
type NeverRouted struct {
	// Network is in CIDR notation.
	Network string `json:"network"`
	// Reason is what the node needs it for.
	Reason string `json:"reason"`
}

// EngineFact describes the implementation of an encryption protocol on a node.
type EngineFact struct {
	// Name is "kernel", or the name of the userspace program or plugin; empty if the node
	// has no implementation.
	// +optional
	Name string `json:"name,omitempty"`
	// Missing names the missing prerequisite; empty unless Name is empty.
	// +optional
	Missing string `json:"missing,omitempty"`
}

// RemoteEndpoint is the state of the path from a node to one remote endpoint.
type RemoteEndpoint struct {
	// Status is "none" if the path is not probed; StatusMessage has the reason.
	Status        ConnectionStatus `json:"status"`
	StatusMessage string           `json:"statusMessage"`
	// Spec is the remote endpoint without its BackendConfig; its Backend is the driver of the
	// pair.
	Spec EndpointSpec `json:"spec"`
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
