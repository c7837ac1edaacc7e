// Package cluster is what a member of a clusterset holds: which objects join
// installs in it and why, what must be true before, and how all of it goes away
// again. Every change goes the same way: facts are read from the API servers, a
// pure function makes a plan of them (or says everything that is wrong), and the
// plan is applied. It does not know what the agents do on a node (package agent)
// nor what a broker is made of (package broker).
package cluster

import (
	submarinerv1 "subctl/api/submariner/v1"
)

// Names of what is installed. Upstream's tools look for them
// (Submariner 0.18).
const (
	// Namespace holds everything that is not cluster-scoped.
	Namespace = submarinerv1.OperatorNamespace

	// GatewayName names the DaemonSet on gateway nodes, its container, ServiceAccount,
	// Role and ClusterRole.
	GatewayName = "submariner-gateway"
	// RouteAgentName does so for the DaemonSet on all nodes.
	RouteAgentName = "submariner-routeagent"

	// BrokerSecret holds token and ca.crt for the broker.
	BrokerSecret = "submariner-broker-secret"
	// PSKSecret holds psk, the key that all clusters of the broker share.
	PSKSecret = "submariner-ipsec-psk"
	// ClusterKeySecret holds this cluster's X25519 key pair, under KeyPrivate and
	// KeyPublic, and KeySeed. It is made once and survives every later join; RotateKey
	// makes a new pair.
	ClusterKeySecret = "submariner-cluster-key"
)

// Labels and annotations of ours.
const (
	// ManagedByLabel with value ManagedBy is on every object we made, and so on
	// everything that uninstall may delete.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// ManagedBy is its value.
	ManagedBy = "subctl"

	// LabelledByAnnotation on a node says who made it a gateway; with value
	// ManagedBy uninstall takes the label off again.
	LabelledByAnnotation = "submariner.io/labelled-by"
)

// Components of Submariner.spec.imageOverrides.
const (
	gatewayComponent    = GatewayName
	routeAgentComponent = RouteAgentName
)

// ours returns the labels of every object we make, app being its component.
func ours(app string) map[string]string {
	labels := map[string]string{ManagedByLabel: ManagedBy}
	if app != "" {
		labels["app"] = app
	}
	return labels
}

// isOurs reports whether labels are those of an object we made.
func isOurs(labels map[string]string) bool { return labels[ManagedByLabel] == ManagedBy }
