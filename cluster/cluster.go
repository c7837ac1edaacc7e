// Package cluster is what a cluster that has joined holds: the objects that are
// installed in it, their names, and who made them. Packages join, uninstall and
// rotate, below it, change a cluster: each reads facts from the API servers, makes a
// plan of them with a pure function, which returns everything that is wrong instead,
// and applies the plan. Package cluster itself changes nothing. What the agents do on
// a node is in package agent, and what a broker is made of in package broker.
package cluster

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

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

// IsOurs reports whether we made the object that has these labels.
func IsOurs(labels map[string]string) bool { return labels[ManagedByLabel] == ManagedBy }

// Side is an API server that a command works on.
type Side struct {
	client.Client
	URL     string // for people
	Version string // such as "v1.36.3"
}

// Poll is how often commands look whether what they wait for has happened. A look is
// a handful of small requests.
const Poll = time.Second

// Interrupted returns, in a word, why ctx is done.
func Interrupted(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("out of time")
	}
	return errors.New("interrupted")
}
