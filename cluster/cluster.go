// Package cluster describes what a joined cluster contains: the objects that join
// installs, their names and their labels. It changes nothing. The packages below it do:
// join, uninstall and rotate each read facts from the API servers, compute a plan with a
// pure function, which returns all mistakes instead if there are any, and apply the plan.
// Package agent implements the agents, and package broker the broker.
package cluster

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// Names of the installed objects. The tools of Submariner 0.18 look for them.
const (
	// Namespace is the namespace of all objects that are not cluster-scoped.
	Namespace = submarinerv1.OperatorNamespace

	// GatewayName is the name of the DaemonSet on gateway nodes, and of its container,
	// ServiceAccount, Role and ClusterRole.
	GatewayName = "submariner-gateway"
	// RouteAgentName is the corresponding name for the DaemonSet on all nodes.
	RouteAgentName = "submariner-routeagent"
	// GlobalnetName is the corresponding name for the Deployment that allocates global addresses.
	GlobalnetName = "submariner-globalnet"
	// GatewayNodesName is the corresponding name for the Deployment that replaces gateway nodes.
	GatewayNodesName = "submariner-gateway-nodes"
	// ServiceDiscoveryName is the corresponding name for the Deployment that exports and imports
	// Services.
	ServiceDiscoveryName = "submariner-service-discovery"
	// DNSName is the corresponding name for the Deployment that answers for names of imported
	// Services, and the name of its Service.
	DNSName = "submariner-dns"

	// BrokerSecret is the Secret with the token and ca.crt for the broker.
	BrokerSecret = "submariner-broker-secret"
	// PSKSecret is the Secret with psk, the key that all clusters of the broker share.
	PSKSecret = "submariner-ipsec-psk"
	// ClusterKeySecret is the Secret with the X25519 key pair of this cluster (KeyPrivate
	// and KeyPublic) and KeySeed. Join creates it once and keeps it from then on; package
	// rotate replaces the key pair.
	ClusterKeySecret = "submariner-cluster-key"
	// TrustSecret is the Secret with which this cluster signs what it publishes (KeySigning),
	// and verifies what others publish (KeyAdministrator): see package trust. Without it
	// nothing is exchanged with the broker.
	TrustSecret = "submariner-trust"
)

// Labels and annotations of the installed objects.
const (
	// ManagedByLabel is on every object that subctl creates. Uninstall deletes only
	// objects that have it with the value ManagedBy.
	ManagedByLabel = submarinerv1.ManagedByLabel
	// ManagedBy is the value of ManagedByLabel and LabelledByAnnotation.
	ManagedBy = submarinerv1.ManagedBy

	// LabelledByAnnotation is on the nodes that subctl labelled as gateways.
	LabelledByAnnotation = submarinerv1.LabelledByAnnotation
)

// Components of Submariner.spec.imageOverrides.
const (
	gatewayComponent    = GatewayName
	routeAgentComponent = RouteAgentName
	globalnetComponent  = GlobalnetName

	gatewayNodesComponent = GatewayNodesName
	servicesComponent     = ServiceDiscoveryName
	dnsComponent          = DNSName
)

// ours returns the labels of an object of the component app; app may be empty.
func ours(app string) map[string]string {
	labels := map[string]string{ManagedByLabel: ManagedBy}
	if app != "" {
		labels["app"] = app
	}
	return labels
}

// IsOurs reports whether labels belong to an object that subctl created.
func IsOurs(labels map[string]string) bool { return labels[ManagedByLabel] == ManagedBy }

// Side is the API server of a cluster or of a broker.
type Side struct {
	client.Client
	URL     string // for messages
	Version string // such as "v1.36.3"
	// Clock is the clock of the API server; nil for the clock of this machine.
	Clock func() time.Time
}

// Now returns the time of the API server.
func (s Side) Now() time.Time {
	if s.Clock == nil {
		return time.Now()
	}
	return s.Clock()
}

// Poll is the interval at which commands check whether the event that they wait for has
// happened. A check consists of a few small requests.
const Poll = time.Second

// ErrOutOfTime is the error of a wait whose time limit has passed.
var ErrOutOfTime = errors.New("out of time")

// Interrupted returns an error that tells a timeout of ctx from an interruption.
func Interrupted(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ErrOutOfTime
	}
	return errors.New("interrupted")
}
