// Package cable plans the path of packets from a node to the pods and Services of
// another cluster: from a worker to a gateway of its own cluster (intra.go), through
// a cable to a gateway of the other cluster (plan.go, and one package per Driver), and
// on to the pod's worker.
//
// Everything in this package is a pure function of its input: no clock, no kernel, no API
// server. Plans are returned as a dataplane.State.
//
// Endpoints from other clusters are untrusted until Parse and CheckRemote have accepted
// them. A Gateway is an Endpoint that Parse accepted.
package cable

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable/keys"
	"subctl/dataplane"
)

// Gateway is a gateway of a cluster, from an Endpoint with valid syntax.
type Gateway struct {
	Cluster   string
	Name      string // cable name: Endpoint.spec.cable_name
	Host      string // node name
	PrivateIP netip.Addr
	// Of its addresses on the devices of cables; those of PrivateIP if it announces none, as older
	// versions do.
	Octets   Octets
	PublicIP netip.Addr // public address, outside NAT; the zero Addr if unknown
	HealthIP netip.Addr // answers pings through the cable; the zero Addr if there is none
	// Addresses of Subnets to which packets must take this gateway, as it alone knows the
	// connections.
	Returned []netip.Addr
	Subnets  []netip.Prefix // sorted, without host bits
	NAT      bool           // expects NAT on its paths
	Weight   int            // its share of new flows, compared to its siblings: 1 to MaxWeight, or 0 for DefaultWeight
	Drain    Drain          // how far it has got on its way out of service
	Siblings bool           // its cluster has other active gateways
	// TellsSiblings reports whether it announces Siblings. Older versions do not, and know no
	// StandIn.
	TellsSiblings bool
	Default       string   // the driver for pairs that no policy decides, whether or not it is offered
	Drivers       []string // the offered drivers
	// NotRunning names agents of its cluster that do not run; empty if all do, as far as it knows.
	// It is for messages: it comes from another cluster.
	NotRunning string
	// Missing are the reasons why the gateway does not offer other drivers, by driver. It lacks
	// drivers of combined cables whose reason is that of their parts: see WhyNot.
	Missing map[string]string
	// Config is Endpoint.spec.backend_config. Each driver reads and validates its own keys.
	Config map[string]string
}

// Offers reports whether the gateway offers a driver.
func (g Gateway) Offers(driver string) bool { return slices.Contains(g.Drivers, driver) }

// Peer is a gateway of another cluster, with the path to it and the settings of the pair.
type Peer struct {
	Gateway
	// Address is the destination of the cable's packets: PrivateIP, PublicIP, or an address
	// from path discovery.
	Address netip.Addr
	// Guessed reports whether Address is only announced: path discovery has had no answer yet.
	Guessed bool
	// NATed reports whether path discovery detected NAT on the path.
	NATed bool
	// InboundOnly reports whether the gateway answers at none of the addresses that it
	// announces. Address is then the translated source of its packets, and this end must wait
	// for the other end to start the cable.
	InboundOnly bool
	// MTU is the MTU of the path to Address, in bytes; 0 if unknown.
	MTU int
	// PublicKey is the public key of the peer's cluster; the zero PublicKey if it has none.
	PublicKey keys.PublicKey
	// Config holds the driver's settings for this pair: this cluster's own settings, overridden
	// by Shared.
	Config Config
	// Shared holds the settings of the policy, which are the same at both ends.
	Shared Config
	// Policy is the name of the cable policy that chose the driver; empty if none did.
	Policy string
	// Rule is the number of the rule of Policy, counted from 1; 0 if Policy is empty.
	Rule int
	// MustEncrypt names what requires that the cable encrypts, a cluster or a policy; empty if
	// nothing does.
	MustEncrypt string
}

// ForbidsDriver reports whether the cables of a driver are not encrypted although they must be.
func (p Peer) ForbidsDriver(d Driver) bool { return p.MustEncrypt != "" && !d.Properties().Encrypts }

// Networks are the networks and addresses of a cluster, which no other cluster may announce.
type Networks struct {
	Pods     []netip.Prefix
	Services []netip.Prefix
	// Global are the networks of globally unique addresses; nil without globalnet.
	Global []netip.Prefix
	Nodes  []netip.Addr
	// Needed are networks and addresses that the nodes themselves must reach: their own
	// networks, and the API server of the broker.
	Needed []netip.Prefix
}

// All returns the Service, pod and global networks.
func (n Networks) All() []netip.Prefix { return slices.Concat(n.Services, n.Pods, n.Global) }

// Announced returns the networks in which other clusters reach this one, in the order of
// Endpoint.spec.subnets: the global networks or, without globalnet, Service networks, then pod
// networks.
func (n Networks) Announced() []netip.Prefix {
	if len(n.Global) > 0 {
		return slices.Clone(n.Global)
	}
	return slices.Concat(n.Services, n.Pods)
}

// Local is the gateway for which a plan is made.
type Local struct {
	Gateway
	MTU   int        // MTU of the device towards the other gateways, in bytes
	PodIP netip.Addr // source address of the node's own processes towards other clusters
	// PodIPMissing reports whether no device holds PodIP yet. The kernel rejects routes with
	// such a source address.
	PodIPMissing bool
	Pods         []netip.Prefix
	Svcs         []netip.Prefix
	Global       []netip.Prefix // the global networks; nil without globalnet
	// Keys are the keys for encrypted cables; nil if the plan is only shown.
	Keys *keys.Ring
	// Settings are this cluster's own settings, by driver.
	Settings map[string]Config
	// WireGuard and IPsec are the node's implementations of the protocols.
	WireGuard, IPsec dataplane.Engine
	// Resilient reports whether the kernel has resilient next hop groups.
	Resilient bool
}

// A Driver plans one kind of cable between two gateways. It does no I/O.
type Driver interface {
	// Name returns the name of the driver, as users specify it.
	Name() string
	// Properties returns the capabilities and requirements of the driver.
	Properties() Properties
	// Options returns the settings of the driver.
	Options() []Option
	// Lacks returns an error that names a missing prerequisite if this node cannot offer the
	// driver.
	Lacks(Local) error
	// Advertise returns the parameters that the other end needs, as entries of
	// Endpoint.spec.backend_config. They contain no secret.
	Advertise(Local) (map[string]string, error)
	// Refuses returns an error with the reason if the driver cannot connect the two.
	Refuses(Local, Peer) error
	// Device returns the name of the network device for packets from and to other clusters,
	// for the settings of a pair. Two cables with different devices can be up at once between
	// the same two gateways.
	Device(Config) string
	// Overhead returns the difference between the MTU of the path and of the cable, in bytes.
	Overhead(Local, Peer) int
	// Plan returns the objects that the kernel should hold for the cables to peers. Refuses
	// must have accepted each peer.
	Plan(Local, []Peer) (Wiring, error)
}

// Specified is a Driver that has settings in fields of upstream's Submariner.
type Specified interface {
	// SettingsOf returns the settings that the fields specify.
	SettingsOf(v1alpha1.SubmarinerSpec) (Config, error)
}

// OverVXLAN is a Driver whose gateways send each other VXLAN packets, perhaps inside other packets.
// Every driver that plans a VXLAN device is one: nodes forward such packets from gateways only, as
// pods could forge them.
type OverVXLAN interface {
	// VXLANPort returns the UDP port of the packets.
	VXLANPort(Local) int
}

// Wiring is the plan of one driver.
type Wiring struct {
	State dataplane.State
	// Links are the ends of the cables, in the order of the peers.
	Links []Link
	// Listens are the kinds of packets that the gateway must accept.
	Listens []Listen
}

// Link is our end of a cable.
type Link struct {
	Hop    uint32     // ID of the next hop to the peer
	Device string     // Driver.Device
	IP     netip.Addr // the peer's address on the device: answers pings from From
	From   netip.Addr // our address on the device
	// MAC is the peer's address on the device; empty if the peer cannot forward echoes back, as the
	// device is not a VXLAN.
	MAC   string
	Outer netip.Addr // source of the peer's VXLAN packets; the zero Addr if the driver uses no VXLAN
	// State is the dataplane.CableState.Peer of the cable, on the device StateDevice;
	// empty for drivers without state.
	State, StateDevice string
	// Passes names what the network between the gateways must let pass, such as "UDP port 4500",
	// for messages. Plan sets it.
	Passes []string
	// Needs are the objects of the driver's plan that the cable depends on. What these need in
	// turn (Object.Needs) can be left out.
	Needs []dataplane.Object
}

// packetKinds returns the kinds of packets of a cable on the network between the gateways, for
// messages.
func packetKinds(listens []Listen) []string {
	var out []string
	for _, l := range listens {
		switch {
		case l.IPsec || l.Device != "": // inside another cable
		case l.Proto == "esp":
			out = append(out, "ESP (IP protocol 50)")
		default:
			out = append(out, fmt.Sprintf("%s port %d", strings.ToUpper(l.Proto), l.Port))
		}
	}
	return out
}

// Listen is a kind of packet that gateways send each other, with the accepted senders.
// Packets of this kind from others are dropped.
type Listen struct {
	Proto string // "udp" or "esp"
	Port  int    // UDP port
	// From lists the accepted senders. It is nil for all senders, for protocols that
	// authenticate packets and whose peers may roam.
	From []netip.Addr
	// Device is the device on which the packet must arrive; empty for any.
	Device string
	// IPsec specifies whether the packet must have arrived through IPsec.
	IPsec bool
	// VXLAN reports whether the packet is a VXLAN packet.
	VXLAN bool
}
