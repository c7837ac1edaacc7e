package dataplane

import (
	"slices"
	"strings"
)

// This file is the one list of numbers and names that subctl takes for itself on
// a node and on the wire; docs/numbers.md is generated from it.

// UDP ports, devices and VNIs. Those of Submariner are kept, so that firewalls
// opened for it serve us.
const (
	// IPsecPort is the UDP port of IPsec, for IKE and for ESP in UDP: the port of NAT
	// traversal (RFC 3948, section 2.1), which firewalls and translators know. Between
	// gateways that both have ESP in the kernel, and no translation between them, ESP is
	// not in UDP: it is IP protocol 50, unless the setting "encapsulation" is "yes".
	IPsecPort = 4500
	// WireGuardPort is the UDP port of WireGuard: a socket cannot serve two protocols,
	// so it is the next one.
	WireGuardPort = 4501
	// VXLANPort is the UDP port of plain VXLAN between gateways, the next one again.
	VXLANPort = 4502
	// VXLANWireGuardPort is the UDP port of VXLAN inside WireGuard. It is never seen on
	// the wire, but a VXLAN device listens on all addresses: a port of its own lets the
	// firewall tell encrypted packets from plain ones.
	VXLANWireGuardPort = 4503
	// VXLANIPsecPort is the UDP port of VXLAN inside IPsec in transport mode: what the
	// IPsec policy selects, and never seen on the wire.
	VXLANIPsecPort = 4504
	// NATDiscoveryPort is the UDP port on which gateways find out about address translation.
	NATDiscoveryPort = 4490
	// IntraPort is the UDP port of the VXLAN between the nodes of one cluster.
	IntraPort = 4800

	// VXLANDevice is the device of plain VXLAN between gateways.
	VXLANDevice = "vxlan-tunnel"
	// VXLANDevicePrefix is the prefix of the device of another VNI than CableVNI, which
	// follows it in decimal.
	VXLANDevicePrefix = "subvx-"
	// WireGuardDevice is the WireGuard device.
	WireGuardDevice = "submariner"
	// IPsecDevice is where packets enter and leave IPsec tunnels: an XFRM interface, or
	// the TUN device of userspace ESP.
	IPsecDevice = "ipsec-tunnel"
	// VXLANWireGuardDevice is the VXLAN device over WireGuardDevice.
	VXLANWireGuardDevice = "vxlan-wireguard"
	// VXLANIPsecDevice is the VXLAN device over IPsec in transport mode.
	VXLANIPsecDevice = "vxlan-ipsec"
	// CableVNI is the network identifier of the VXLAN devices between gateways.
	CableVNI = 1000
	// IntraDevice is the VXLAN device between the nodes of one cluster.
	IntraDevice = "vx-submariner"
	// IntraVNI is its network identifier.
	IntraVNI = 100

	// Every gateway has an address on every cable device, by which its peers probe it:
	// a first octet for each device, and three octets of the gateway's own address,
	// which is why two gateways that differ only in the first octet cannot both be
	// connected. 240/4 is reserved (RFC 1112) and so collides with nothing; 242 and 243
	// are those of globalnet and of clusterset IPs.
	VXLANNet          = 241
	WireGuardNet      = 244
	IPsecNet          = 245
	VXLANWireGuardNet = 246
	VXLANIPsecNet     = 247
	OtherVNINet       = 248 // all devices of other VNIs than CableVNI
	// IntraVTEPNet is the first octet of addresses on IntraDevice.
	IntraVTEPNet = 240

	// CableTable is the routing table of the gateways: what is behind the cables.
	CableTable = 100
	// IntraTable is the routing table between the nodes of one cluster: on a worker
	// what is behind the gateways, on a gateway which node has which pods.
	IntraTable = 150

	// CablePriority and IntraPriority are the rules that look the tables up: after
	// "local" (0), before "main" (32766).
	CablePriority = 100
	IntraPriority = 150

	// VXLANOverhead is what VXLAN over IPv4 takes of the MTU, in bytes: outer IPv4
	// header 20, UDP 8, VXLAN 8, inner Ethernet header 14 (RFC 7348, section 5).
	VXLANOverhead = 50
	// WireGuardOverhead is what WireGuard over IPv4 takes: outer IPv4 header 20, UDP 8,
	// header 16, tag 16 (WireGuard paper, section 5.4.6). There are no cables over IPv6.
	WireGuardOverhead = 60

	// IPsecIfID is the if_id of the XFRM interface and of the policies and security
	// associations behind it: it keeps them apart from those of anybody else on the
	// node, whose packets never match ours. ("ipsc" in ASCII: a number that nobody
	// picks by chance.)
	IPsecIfID = 0x69707363
	// IPsecBlockPriority is the priority of XFRM policies that block what must leave
	// encrypted. The kernel asks the policy of the lowest number first, and those of
	// strongSwan have less than a million.
	IPsecBlockPriority = 0x69707363
	// CharonTable is the routing table that a strongSwan with userspace ESP fills with
	// routes of its own making; nothing needs them, so CharonPriority has it looked up
	// after "main" and "default" (32766, 32767).
	CharonTable    = 0x69707363
	CharonPriority = 32768

	// GatewayMetricsPort and RouteMetricsPort serve /metrics, /healthz and /readyz.
	GatewayMetricsPort = 32780
	RouteMetricsPort   = 32782
)

// Range is an inclusive range of numbers.
type Range struct{ Min, Max uint32 }

// Has reports whether n is in r.
func (r Range) Has(n uint32) bool { return r.Min <= n && n <= r.Max }

// Owner says whose an object is, and so who may remove it. The agents of one
// node share its kernel: each sees its own objects only, so one that leaves does
// not hurt the others, and nobody hurts what is not ours.
type Owner struct {
	Name       string
	Devices    []string // exact names
	Prefixes   []string // of names of devices of kind vxlan
	Chains     string   // prefix of chains and sets; the longest prefix decides
	NFTable    string   // table of nftables, family ip
	Tables     Range    // routing tables
	IDs        Range    // next hops and groups
	Priorities Range    // rules that look up one of Tables
	Protocol   uint8    // of routes: shown by "ip route" as "proto N"
}

// The owners. Next hop IDs say in their first octet what they are of and in the
// other three which, so that no list of given-out numbers is needed.
var (
	GatewayOwner = Owner{
		Name: "gateway", Devices: []string{VXLANDevice, WireGuardDevice, IPsecDevice, VXLANWireGuardDevice, VXLANIPsecDevice},
		Prefixes: []string{VXLANDevicePrefix}, Chains: "SUBMARINER-GW-", NFTable: "submariner-gateway",
		Tables: Range{100, 109}, Priorities: Range{100, 109},
		IDs: Range{0x10000000, 0x1fffffff}, Protocol: 170,
	}
	RouteOwner = Owner{
		Name: "route", Devices: []string{IntraDevice}, Chains: "SUBMARINER-", NFTable: "submariner-route",
		Tables: Range{150, 159}, Priorities: Range{150, 159},
		IDs: Range{0x20000000, 0x2fffffff}, Protocol: 171,
	}
)

// Owners returns every owner there is.
func Owners() []Owner { return []Owner{GatewayOwner, RouteOwner} }

// The first octets of next hop and group IDs.
const (
	VXLANNexthopID          = 0x10 // one per remote gateway, over VXLAN
	WireGuardNexthopID      = 0x11 // over WireGuard
	IPsecNexthopID          = 0x12 // over IPsec
	VXLANWireGuardNexthopID = 0x13 // over VXLAN inside WireGuard
	VXLANIPsecNexthopID     = 0x14 // over VXLAN inside IPsec
	OtherVNINexthopID       = 0x15 // over VXLAN with another VNI than CableVNI
	OtherVNIGroupID         = 0x16 // that next hop alone, for the way to the peer's own address
	CableGroupID            = 0x1f // one per remote cluster
	IntraNexthopID          = 0x20 // one per node of this cluster
	IntraGroupID            = 0x2f // the gateways of this cluster, or one node
)

// OwnsDevice reports whether the device is o's.
func (o Owner) OwnsDevice(name string) bool {
	return slices.Contains(o.Devices, name) || slices.ContainsFunc(o.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// OwnsChain reports whether the chain or set is o's.
func (o Owner) OwnsChain(name string) bool {
	if !strings.HasPrefix(name, o.Chains) {
		return false
	}
	for _, other := range Owners() {
		if len(other.Chains) > len(o.Chains) && strings.HasPrefix(name, other.Chains) {
			return false
		}
	}
	return true
}
