package dataplane

import (
	"net/netip"
	"slices"
	"strings"
)

// This file is the only list of the numbers and names that subctl uses on a node
// and on the wire; docs/numbers.md is generated from it.

// UDP ports, devices, VNIs, addresses, tables and priorities. Submariner's numbers are
// kept where possible, so that firewall rules for Submariner keep working.
const (
	// IPsecPort is the UDP port of IPsec, for IKE and for ESP in UDP: the port of NAT
	// traversal (RFC 3948, section 2.1), which firewalls and NAT routers know. Between
	// gateways that both have ESP in the kernel, without NAT between them, ESP is
	// IP protocol 50 and not in UDP, unless the setting "encapsulation" is "yes".
	IPsecPort = 4500
	// WireGuardPort is the UDP port of WireGuard: the port after IPsecPort, since a
	// socket cannot serve two protocols.
	WireGuardPort = 4501
	// VXLANPort is the UDP port of plain VXLAN between gateways: the next port again.
	VXLANPort = 4502
	// VXLANWireGuardPort is the UDP port of VXLAN inside WireGuard. It never appears on
	// the wire, but a VXLAN device listens on all addresses: with a separate port the
	// firewall distinguishes encrypted packets from plain ones.
	VXLANWireGuardPort = 4503
	// VXLANIPsecPort is the UDP port of VXLAN inside IPsec in transport mode. The
	// IPsec policy selects packets by it; it never appears on the wire.
	VXLANIPsecPort = 4504
	// NATDiscoveryPort is the UDP port of path discovery, which detects NAT between gateways.
	NATDiscoveryPort = 4490
	// IntraPort is the UDP port of the VXLAN between the nodes of one cluster.
	IntraPort = 4800

	// VXLANDevice is the device of plain VXLAN between gateways.
	VXLANDevice = "vxlan-tunnel"
	// VXLANDevicePrefix is the name prefix of a VXLAN device with another VNI than
	// CableVNI; the VNI follows it in decimal.
	VXLANDevicePrefix = "subvx-"
	// WireGuardDevice is the WireGuard device.
	WireGuardDevice = "submariner"
	// IPsecDevice is the device of IPsec tunnels: an XFRM interface, or the TUN device of
	// userspace ESP.
	IPsecDevice = "ipsec-tunnel"
	// VXLANWireGuardDevice is the VXLAN device over WireGuardDevice.
	VXLANWireGuardDevice = "vxlan-wireguard"
	// VXLANIPsecDevice is the VXLAN device over IPsec in transport mode.
	VXLANIPsecDevice = "vxlan-ipsec"
	// CableVNI is the network identifier of the VXLAN devices between gateways.
	CableVNI = 1000
	// IntraDevice is the VXLAN device between the nodes of one cluster.
	IntraDevice = "vx-submariner"
	// IntraVNI is the network identifier of IntraDevice.
	IntraVNI = 100

	// Every gateway has an address on every cable device, at which its peers probe it:
	// a first octet for each device, and three octets of the gateway's own address.
	// Therefore two gateways whose addresses differ only in the first octet cannot both be
	// connected. 240/4 is reserved (RFC 1112) and so collides with no other network; 242
	// and 243 belong to globalnet and to clusterset IPs.
	VXLANNet          = 241
	WireGuardNet      = 244
	IPsecNet          = 245
	VXLANWireGuardNet = 246
	VXLANIPsecNet     = 247
	OtherVNINet       = 248 // all devices with another VNI than CableVNI
	// IntraVTEPNet is the first octet of addresses on IntraDevice.
	IntraVTEPNet = 240

	// CableTable is the routing table of gateways: routes to other clusters over the cables.
	CableTable = 100
	// IntraTable is the routing table between the nodes of one cluster: on a worker,
	// routes to other clusters over the gateways; on a gateway, routes to the pods of
	// each worker.
	IntraTable = 150

	// DropTable is the routing table by which a gateway drops the packets to other clusters that
	// no cable carries: the agent may just have lost its role, while other nodes still send to it.
	DropTable = 151

	// CablePriority, IntraPriority and DropPriority are the priorities of the rules that look up
	// the tables: after "local" (0), before "main" (32766). ArrivalPriority is the priority of a
	// gateway's rules that look up IntraTable for what arrives on its devices.
	CablePriority   = 100
	ArrivalPriority = 101
	IntraPriority   = 150
	DropPriority    = 151

	// VXLANOverhead is the overhead of VXLAN over IPv4, in bytes: outer IPv4
	// header 20, UDP 8, VXLAN 8, inner Ethernet header 14 (RFC 7348, section 5).
	VXLANOverhead = 50
	// WireGuardOverhead is the overhead of WireGuard over IPv4, in bytes: outer IPv4
	// header 20, UDP 8, header 16, tag 16 (WireGuard paper, section 5.4.6). There are no
	// cables over IPv6.
	WireGuardOverhead = 60

	// IPsecIfID is the if_id of the XFRM interface and of its policies and security
	// associations. It separates them from other IPsec users of the node, whose packets
	// never match ours. ("ipsc" in ASCII, so that it does not collide by chance.)
	IPsecIfID = 0x69707363
	// IPsecBlockPriority is the priority of XFRM policies that block unencrypted packets
	// of IPsec cables. The kernel uses the matching policy with the lowest number;
	// strongSwan's policies have priorities below one million.
	IPsecBlockPriority = 0x69707363
	// CharonTable is the routing table that strongSwan with userspace ESP fills with its
	// own routes. They are not needed, so CharonPriority places the table
	// after "main" and "default" (32766, 32767).
	CharonTable    = 0x69707363
	CharonPriority = 32768

	// GatewayMetricsPort and RouteMetricsPort are the TCP ports of /metrics, on all addresses of
	// a node.
	GatewayMetricsPort = 32780
	RouteMetricsPort   = 32782
	// GatewayProbePort and RouteProbePort are the TCP ports of /healthz and /readyz, on the
	// loopback address of a node: only its kubelet asks.
	GatewayProbePort = 32781
	RouteProbePort   = 32783
)

// FixedPorts are the UDP ports that no setting changes, and what uses them.
var FixedPorts = map[int]string{
	NATDiscoveryPort:   "NAT discovery",
	IntraPort:          "VXLAN between the nodes of a cluster",
	VXLANWireGuardPort: "VXLAN inside WireGuard",
	VXLANIPsecPort:     "VXLAN inside IPsec",
}

// DeviceNets are the networks of the addresses on our devices, which no cluster can have.
var DeviceNets = []struct {
	Net     netip.Prefix
	Devices string
}{
	{netip.MustParsePrefix("240.0.0.0/8"), "VXLAN devices between nodes"},        // IntraVTEPNet
	{netip.MustParsePrefix("241.0.0.0/8"), "VXLAN devices between gateways"},     // VXLANNet
	{netip.MustParsePrefix("244.0.0.0/6"), "encrypted devices between gateways"}, // WireGuardNet, IPsecNet, VXLANWireGuardNet, VXLANIPsecNet
	{netip.MustParsePrefix("248.0.0.0/8"), "VXLAN devices between gateways"},     // OtherVNINet
}

// Range is an inclusive range of numbers.
type Range struct{ Min, Max uint32 }

// Has reports whether n is in r.
func (r Range) Has(n uint32) bool { return r.Min <= n && n <= r.Max }

// An Owner identifies the kernel objects of one agent, which only that agent may
// remove. The agents of a node share its kernel. Each sees only its own objects, so
// that it never removes objects of other agents or of other programs.
type Owner struct {
	Name       string
	Devices    []string // exact names
	Prefixes   []string // name prefixes of devices of kind vxlan
	Chains     string   // prefix of chains and sets; the owner with the longest matching prefix has them
	NFTable    string   // nftables table of Sources, family ip
	Antispoof  string   // nftables table of Antispoof, family ip
	Tables     Range    // routing tables
	IDs        Range    // next hops and groups
	Priorities Range    // rules that look up a table of any owner
	Protocol   uint8    // of routes: "ip route" shows it as "proto N"
}

// The owners. The first octet of a next hop ID identifies its kind, and the other
// three its node, so that IDs need no allocation.
var (
	GatewayOwner = Owner{
		Name: "gateway", Devices: []string{VXLANDevice, WireGuardDevice, IPsecDevice, VXLANWireGuardDevice, VXLANIPsecDevice},
		Prefixes: []string{VXLANDevicePrefix}, Chains: "SUBMARINER-GW-", NFTable: "submariner-gateway",
		Antispoof: "submariner-gateway-antispoof",
		Tables:    Range{100, 109}, Priorities: Range{100, 109},
		IDs: Range{0x10000000, 0x1fffffff}, Protocol: 170,
	}
	RouteOwner = Owner{
		Name: "route", Devices: []string{IntraDevice}, Chains: "SUBMARINER-", NFTable: "submariner-route",
		Antispoof: "submariner-route-antispoof",
		Tables:    Range{150, 159}, Priorities: Range{150, 159},
		IDs: Range{0x20000000, 0x2fffffff}, Protocol: 171,
	}
)

// Owners returns all owners.
func Owners() []Owner { return []Owner{GatewayOwner, RouteOwner} }

// The first octets of next hop and group IDs.
const (
	VXLANNexthopID          = 0x10 // one per remote gateway, over VXLAN
	WireGuardNexthopID      = 0x11 // over WireGuard
	IPsecNexthopID          = 0x12 // over IPsec
	VXLANWireGuardNexthopID = 0x13 // over VXLAN inside WireGuard
	VXLANIPsecNexthopID     = 0x14 // over VXLAN inside IPsec
	OtherVNINexthopID       = 0x15 // over VXLAN with another VNI than CableVNI
	OtherVNIGroupID         = 0x16 // the group of that next hop alone, for the route to the peer's own address
	CableGroupID            = 0x1f // one per remote cluster
	IntraNexthopID          = 0x20 // one per node of this cluster
	IntraGroupID            = 0x2f // the gateways of this cluster, or one node
)

// OwnsDevice reports whether the device belongs to o.
func (o Owner) OwnsDevice(name string) bool {
	return slices.Contains(o.Devices, name) || slices.ContainsFunc(o.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// OwnsChain reports whether the chain or set belongs to o.
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
