package v1

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HAStatus specifies whether a gateway carries traffic.
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
	// ConnectionNone is the status of a path that is not probed. Only RouteAgents report it.
	ConnectionNone ConnectionStatus = "none"
)

// ConditionBrokerSynced is a condition of Gateways: whether the cluster and the broker hold the
// same objects.
const ConditionBrokerSynced = "BrokerSynced"

// ReasonBrokerNotRead is the reason of ConditionBrokerSynced if nothing is read from the broker:
// what other clusters change is not known here.
const ReasonBrokerNotRead = "BrokerNotRead"

// ConditionClean is a condition of Gateways and RouteAgents. While the cluster is being
// uninstalled, it is true once the node holds no kernel objects of the agent.
const ConditionClean = "Clean"

// TimestampAnnotation is an annotation of every Gateway. It holds the time of the last
// update, in seconds since 1970. A gateway is considered dead if its Gateway was not
// updated for 15 s (upstream's rule).
const TimestampAnnotation = "update-timestamp"

// Gateway is the report of a gateway node about itself and its connections. Its
// name is the name of the node. It is not copied to other clusters.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=gateways,singular=gateway
// +kubebuilder:printcolumn:name="HA Status",type=string,JSONPath=`.status.haStatus`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Failure",type=string,JSONPath=`.status.statusFailure`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Gateway struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is a plain field: upstream has no status subresource here.
	Status GatewayStatus `json:"status"`
}

// ReportedAt returns when the report was last written, by the clock of the gateway; ok is
// false if the report does not tell.
func (g *Gateway) ReportedAt() (at time.Time, ok bool) {
	seconds, err := strconv.ParseInt(g.Annotations[TimestampAnnotation], 10, 64)
	return time.Unix(seconds, 0), err == nil
}

// SetReportedAt sets when the report was written.
func (g *Gateway) SetReportedAt(at time.Time) {
	metav1.SetMetaDataAnnotation(&g.ObjectMeta, TimestampAnnotation, strconv.FormatInt(at.Unix(), 10))
}

// GetConditions returns the conditions in the status.
func (g *Gateway) GetConditions() []metav1.Condition { return g.Status.Conditions }

// GatewayStatus is the report of a gateway.
type GatewayStatus struct {
	Version       string       `json:"version"`
	HAStatus      HAStatus     `json:"haStatus"`
	LocalEndpoint EndpointSpec `json:"localEndpoint"`
	// StatusFailure is the error that prevents the gateway from working; empty if there is none.
	StatusFailure string       `json:"statusFailure"`
	Connections   []Connection `json:"connections"`
	// ConnectionsOmitted is the number of connections that Connections leaves out, as the Gateway
	// would be too large to be written: first those that are connected and carry no packets, then
	// those that are not connected, and those that carry packets last (our addition).
	// +optional
	ConnectionsOmitted int `json:"connectionsOmitted,omitempty"`
	// ConnectionsOmittedDown is how many of these are not connected (our addition).
	// +optional
	ConnectionsOmittedDown int `json:"connectionsOmittedDown,omitempty"`
	// BootID identifies the boot of the node since which the kernel holds what Connections tells;
	// empty if unknown. After another boot, it holds nothing of that (our addition).
	// +optional
	BootID string `json:"bootID,omitempty"`
	// Weight is the gateway's share of new flows, compared to the other gateways of its cluster; 0
	// if that is why it drains, and nil if unknown.
	// +optional
	Weight *int `json:"weight,omitempty"`
	// Drain is "draining" while the gateway keeps the flows that it has and gets no new ones, and
	// "drained" once other nodes and clusters do not use it any more; empty if it is in service.
	// +optional
	Drain string `json:"drain,omitempty"`
	// DrainingSince is when the gateway began to drain; nil if it is in service.
	// +optional
	DrainingSince *metav1.Time `json:"drainingSince,omitempty"`
	// Flows is the number of connections to and from other clusters through the gateway that had a
	// packet recently, without those of the node's own pods; nil if unknown.
	// +optional
	Flows *int64 `json:"flows,omitempty"`
	// SomeFlows lists the first of these connections, at most 20, such as "tcp 10.1.0.5:40000 →
	// 10.2.0.9:80".
	// +optional
	// +listType=atomic
	SomeFlows []string `json:"someFlows,omitempty"`
	// GlobalEgress lists the global addresses to which the gateway translates the sources of
	// connections, those with the fewest ports left for a destination first, at most 20.
	// +optional
	// +listType=atomic
	GlobalEgress []EgressUse `json:"globalEgress,omitempty"`
	// Programmed tells which objects with global addresses the kernel of the node holds; nil if the
	// gateway translates nothing, or is of a version that does not report it (our addition).
	// +optional
	Programmed *ProgrammedVersions `json:"programmed,omitempty"`
	// Conditions are the conditions of the gateway, such as Synced and Refused.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClearMeasurements removes the values, except those of connections, that change often. They are
// written with the next heartbeat.
func (s *GatewayStatus) ClearMeasurements() {
	s.Flows = nil
	s.SomeFlows = nil
	s.GlobalEgress = nil
	s.Programmed = nil
}

// ProgrammedVersions are the highest resource versions, by kind, of the objects whose addresses the
// kernel translates: it holds the addresses of all objects of the kind whose resource version is
// not higher. Each is empty if there are no objects.
type ProgrammedVersions struct {
	// +optional
	ClusterGlobalEgressIPs string `json:"clusterGlobalEgressIPs,omitempty"`
	// +optional
	GlobalEgressIPs string `json:"globalEgressIPs,omitempty"`
	// +optional
	GlobalIngressIPs string `json:"globalIngressIPs,omitempty"`
}

// EgressUse is how many connections through a gateway have a global address as their source. A
// connection that has ended counts for as long as the kernel remembers it.
type EgressUse struct {
	Address string `json:"address"`
	// Connections is the number of connections to all destinations.
	Connections int64 `json:"connections"`
	// Busiest is the destination with the most of them, such as "tcp 242.2.0.9:80", and
	// BusiestConnections is their number, at most EgressPorts.
	Busiest            string `json:"busiest"`
	BusiestConnections int64  `json:"busiestConnections"`
}

// EgressPorts is the maximum number of connections from an address to one destination, and
// EgressPortsScarce is the number from which on the gateway warns: 80 %.
const (
	EgressPorts       = 65536
	EgressPortsScarce = EgressPorts * 80 / 100
)

// Scarce reports whether the address has few ports left for a destination.
func (u EgressUse) Scarce() bool { return u.BusiestConnections >= EgressPortsScarce }

// GatewayList is a list of Gateways.
//
// +kubebuilder:object:root=true
type GatewayList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gateway `json:"items"`
}
