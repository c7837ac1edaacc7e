// Package cable says how packets get from a node to the pods and Services of
// another cluster: from a worker to a gateway of its own cluster (intra.go), from
// there through a cable to a gateway of the other cluster (plan.go, and one
// package per Driver), and on to the worker that has the pod.
//
// Everything here is a pure function of its input: no clock, no kernel, no API
// server. What a plan returns is a dataplane.State.
//
// What arrives from other clusters is hostile until Parse and CheckRemote have looked
// at it; a Gateway is an Endpoint that Parse accepted.
package cable

import (
	"net/netip"

	"subctl/dataplane"
)

// Gateway is one active gateway of a cluster, as its Endpoint describes it,
// syntactically sound.
type Gateway struct {
	Cluster   string
	Name      string // of the cable: Endpoint.spec.cable_name
	Host      string // node name
	PrivateIP netip.Addr
	HealthIP  netip.Addr     // answers pings through the cable; the zero Addr if there is none
	Subnets   []netip.Prefix // sorted, without host bits
	NAT       bool           // expects an address translation on the way
	Driver    string         // what it offers
	Port      int            // UDP port of its cable
}

// Networks is what a cluster is made of, and no other cluster may claim.
type Networks struct {
	Pods     []netip.Prefix
	Services []netip.Prefix
	Nodes    []netip.Addr
	// Needed are networks and addresses that the nodes themselves cannot do without:
	// their own networks, and where the API server of the broker is.
	Needed []netip.Prefix
}

// All returns pod and Service networks, in the order of Endpoint.spec.subnets:
// Services first.
func (n Networks) All() []netip.Prefix {
	return append(append([]netip.Prefix{}, n.Services...), n.Pods...)
}

// Local is the gateway a plan is made for.
type Local struct {
	Gateway
	MTU   int        // of the device that leads to the other gateways, in bytes
	PodIP netip.Addr // source of what the node's own processes send to other clusters
	Pods  []netip.Prefix
	Svcs  []netip.Prefix
}

// Driver is a way to join two gateways. It does no I/O at all.
type Driver interface {
	// Name is what a user types.
	Name() string
	// Device is the network device that packets from other clusters come in on.
	Device() string
	// Advertise returns what the other side must know: entries of
	// Endpoint.spec.backend_config. Never a secret.
	Advertise(Local) map[string]string
	// Refuses says why the driver cannot join the two; nil if it can.
	Refuses(Local, Gateway) error
	// Plan returns devices and next hops, and the ID of the next hop for each peer,
	// in the order of peers.
	Plan(Local, []Gateway) (dataplane.State, []uint32, error)
}
