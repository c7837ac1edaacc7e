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
	"slices"

	"subctl/cable/keys"
	"subctl/dataplane"
)

// Gateway is one active gateway of a cluster, as its Endpoint describes it,
// syntactically sound.
type Gateway struct {
	Cluster   string
	Name      string // of the cable: Endpoint.spec.cable_name
	Host      string // node name
	PrivateIP netip.Addr
	PublicIP  netip.Addr     // on the outside of an address translation; the zero Addr if unknown
	HealthIP  netip.Addr     // answers pings through the cable; the zero Addr if there is none
	Subnets   []netip.Prefix // sorted, without host bits
	NAT       bool           // expects an address translation on its paths
	Default   string         // the driver of its pairs that no policy decides, offered or not
	Drivers   []string       // what it offers
	// Config is Endpoint.spec.backend_config: each driver reads, and checks, its keys.
	Config map[string]string
}

// Offers says whether the gateway offers a driver.
func (g Gateway) Offers(driver string) bool { return slices.Contains(g.Drivers, driver) }

// Peer is a gateway of another cluster and what is known of the path to it.
type Peer struct {
	Gateway
	// Address is where packets of the cable go: PrivateIP, PublicIP, or what path
	// discovery found.
	Address netip.Addr
	// NATed says that path discovery saw an address translation on the path.
	NATed bool
	// InboundOnly says that the gateway answers at no address that it announces, and was
	// only heard from Address, from where its packets are translated: this end has to
	// wait for what the other one sends.
	InboundOnly bool
	// MTU is that of the path to Address, in bytes; 0 if nothing is known of it.
	MTU int
	// PublicKey is that of the peer's cluster; the zero PublicKey if it has none.
	PublicKey keys.PublicKey
	// Config is the driver's for this pair: Shared over this cluster's own settings.
	Config Config
	// Shared are the policy's settings, which both ends have alike.
	Shared Config
	// Policy is the name of the cable policy that chose the driver; empty if none did.
	Policy string
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
	// PodIPMissing says that no device holds PodIP yet: the kernel refuses routes with it
	// as their source.
	PodIPMissing bool
	Pods         []netip.Prefix
	Svcs         []netip.Prefix
	// Keys is what cables are encrypted with; nil if the plan is only to be shown.
	Keys *keys.Ring
	// Settings are this cluster's own, by driver.
	Settings map[string]Config
	// WireGuard and IPsec are what the node has to handle such packets.
	WireGuard, IPsec dataplane.Engine
}

// Driver is a way to join two gateways. It does no I/O at all.
type Driver interface {
	// Name is what a user types.
	Name() string
	// Properties returns what the driver can do, and what it needs.
	Properties() Properties
	// Options lists its settings.
	Options() []Option
	// Lacks says what this node would have to have to offer the driver; nil if it can.
	Lacks(Local) error
	// Advertise returns what the other side must know: entries of
	// Endpoint.spec.backend_config. Never a secret.
	Advertise(Local) (map[string]string, error)
	// Refuses says why the driver cannot join the two; nil if it can.
	Refuses(Local, Peer) error
	// Device is the network device on which packets from other clusters come in and
	// go out, for the settings of a pair. Two cables with different devices can be up
	// at once between the same two gateways.
	Device(Config) string
	// Overhead is how many bytes of the path's MTU the cable takes.
	Overhead(Local, Peer) int
	// Plan returns what the kernel holds for the cables to peers, none of which the
	// driver Refuses.
	Plan(Local, []Peer) (Wiring, error)
}

// Wiring is what one driver plans.
type Wiring struct {
	State dataplane.State
	// Links are the ends of the cables, in the order of the peers.
	Links []Link
	// Listens is what the gateway must be able to receive.
	Listens []Listen
}

// Link is our end of a cable.
type Link struct {
	Hop    uint32     // ID of the next hop to the peer
	Device string     // Driver.Device
	IP     netip.Addr // the peer's address on the device: answers pings from From
	From   netip.Addr // our address on the device
	// State is the dataplane.CableState.Peer of the cable, on the device StateDevice;
	// empty for drivers without state.
	State, StateDevice string
}

// Listen is a kind of packet that gateways send each other, and from whom it is
// accepted. What does not match is dropped.
type Listen struct {
	Proto string // "udp" or "esp"
	Port  int    // of UDP
	// From lists the senders; nil for anybody: a protocol that authenticates its
	// packets, and whose peers may roam.
	From []netip.Addr
	// Device is the one on which the packet must come in; empty for any.
	Device string
	// IPsec says that the packet must have come through IPsec.
	IPsec bool
}
