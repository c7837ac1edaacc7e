package dataplane

import (
	"net/netip"
	"time"
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

	// EchoPort is the UDP port to which a gateway sends echoes to itself, through a cable and the
	// other gateway's kernel; IntraEchoPort is that of all nodes, through the VXLAN between them
	// and a gateway of their cluster. They never appear on the wire outside the VXLANs.
	EchoPort      = 4505
	IntraEchoPort = 4801

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

	// Every gateway has an address on every cable device, at which its peers probe it: a first
	// octet for each device, and three octets that the gateway announces: the last three of its own
	// address or, if a gateway of another cluster has these, others. 240/4 is reserved (RFC 1112)
	// and so collides with no other network; 242 and 243 belong to globalnet and to clusterset IPs.
	VXLANNet          = 241
	WireGuardNet      = 244
	IPsecNet          = 245
	VXLANWireGuardNet = 246
	VXLANIPsecNet     = 247
	OtherVNINet       = 248 // all devices with another VNI than CableVNI
	// IntraVTEPNet is the first octet of addresses on IntraDevice. The other three are the last of
	// the node's own address, so nodes of a cluster must not differ in the first one only.
	IntraVTEPNet = 240

	// FirstTable is added to the numbers that the routing tables have in Submariner, 100 and 150:
	// everybody uses table 100, and a route of another program in a table that our rules look up
	// concerns every packet of the node. Nobody is known to use numbers like these: the protocols
	// of our routes, 170 and 171, and then Submariner's number.
	FirstTable = 170171000
	// CableTable is the routing table of gateways: routes to other clusters over the cables.
	CableTable = FirstTable + 100
	// IntraTable is the routing table between the nodes of one cluster: on a worker,
	// routes to other clusters over the gateways; on a gateway, routes to the pods of
	// each worker.
	IntraTable = FirstTable + 150

	// DropTable is the routing table by which a gateway drops the packets to other clusters that
	// no cable carries: the agent may just have lost its role, while other nodes still send to it.
	DropTable = FirstTable + 151

	// NearTable is the routing table of a gateway for packets that another gateway of its cluster
	// hands over, as that one has lost its way to the node of a pod: straight routes to nodes to
	// which this gateway has lost its way, too, so that there is no second detour.
	NearTable = FirstTable + 152

	// CablePriority, IntraPriority and DropPriority are the priorities of the rules that look up
	// the tables: after "local" (0), before "main" (32766). ArrivalPriority is the priority of a
	// gateway's rules that look up IntraTable for what arrives on its devices. NearPriority and
	// HandedPriority are those of the rules for what arrives on IntraDevice: they look up
	// NearTable, and then IntraTable.
	CablePriority   = 100
	ArrivalPriority = 101
	IntraPriority   = 150
	DropPriority    = 151
	NearPriority    = 152
	HandedPriority  = 153
	// FormerPriority is the priority of a gateway's rules that look up FormerIntraTable for what
	// arrives on its devices, while the route agent of the node is still of a version with the
	// former tables.
	FormerPriority = CablePriority
	// FormerCableTable and FormerIntraTable are CableTable and IntraTable of versions before
	// FirstTable.
	FormerCableTable = CableTable - FirstTable
	FormerIntraTable = IntraTable - FirstTable

	// ReturnTable plus the mark of a gateway of this cluster, see ReturnMask, is the routing table
	// that leads to the gateway: the way of connections that arrived through it, or that a worker
	// has sent there.
	ReturnTable = FirstTable + 160
	// ReturnMask has the bits of the connection mark and of the packet mark that tell through which
	// gateway of this cluster a connection arrived, or a worker has sent it: 1 to 62; 0 for none.
	// Nobody else is known to use them: Kubernetes has 0xc000, the portmap plugin 0x2000, the AWS
	// VPC CNI 0x80, Calico 0xffff0000, Weave Net 0x20000, Tailscale 0xff0000 and globalnet 0xc0000
	// (github.com/fwmark/registry and the sources of these programs). Cilium has 0x0f00 for the
	// meaning of the mark. The bits below are then those of a cluster ID, which is 0 without its
	// own multi-cluster networking.
	ReturnMask = 0x3f
	// DirectMark is the value among the bits of ReturnMask that is no gateway's: of connections
	// from other clusters' networks that arrived without us, such as from a pod there to a node
	// port in a network that routes to pods. Answers are routed by MainTable.
	DirectMark = ReturnMask
	// AcceptMask has the bits of the packet mark by which our tables of nftables tell the constant
	// rules of iptables what to accept: AcceptMark before the rules of others, AcceptLastMark after
	// them. The bit of AcceptMark is set in both, and packets have it only from our chains at the
	// hooks "input" and "forward" to those at the end of them. Nobody else is known to use it: see
	// ReturnMask, whose bits have told by then which way to take.
	AcceptMask     = 0x7f
	AcceptMark     = 0x40
	AcceptLastMark = AcceptMask
	// MainTable is the routing table "main" (linux/rtnetlink.h).
	MainTable = 254
	// ReturnPriority is the priority of the rules that look up the tables of the return path, by
	// the mark: before the tables that lead to other clusters.
	ReturnPriority = 99

	// ForwardTable is the nftables table that exists while a node probes what it forwards.
	ForwardTable = "submariner-route-probe"

	// CNFTable is the routing table "cnf" of a CNF: the number is the one of ICN SD-EWAN's image
	// for OpenWrt. The table of uplink N is CNFTable plus N, N from 1 to MaxUplinks. A CNF has a
	// network namespace of its own.
	CNFTable = 40
	// IKEPort is the UDP port of IKE of a CNF (RFC 7296, section 2); the one of ESP in UDP is
	// IPsecPort. Gateways use only the latter.
	IKEPort = 500
	// CNFTunnelDevice is the device of a CNF's IPsec tunnels, like IPsecDevice. The name is the one
	// that strongSwan with userspace ESP gives its device, to which it adds the virtual addresses
	// of the CNF.
	CNFTunnelDevice = "ipsec0"
	// CNFStandInDevice has addresses of networks behind a CNF, which are not the CNF's own:
	// strongSwan with userspace ESP needs them.
	CNFStandInDevice = "ipsec-stand-in"
	// TunnelMark is the bit of the packet mark of what the IPsec daemon of a CNF sends, so that it
	// does not enter the tunnels itself. It is far from UplinkMask, and from the small numbers that
	// people choose.
	TunnelMark = 0x40000000
	// ControlMark is the bit of the packet mark of what the REST API of a CNF answers, and
	// ControlPriority the priority of the rule that has it routed by the main table: no rule that
	// the API has received may cut off who corrects it.
	ControlMark     = 0x20000000
	ControlPriority = 94
	// TunnelTable is the routing table of a CNF that leads into its tunnels. TunnelAllTable is that
	// of tunnels to everything, which take only packets from their own networks. The numbers are
	// those before CNFTable.
	TunnelAllTable = 38
	TunnelTable    = 39
	// TunnelPriority and TunnelAllPriority are the priorities of the rules that look up these
	// tables: before all other rules of a CNF.
	TunnelPriority    = 95
	TunnelAllPriority = 96
	// OpenWrtZoneName and OpenWrtMwan3Name are the longest names on CNFs of others with OpenWrt, in
	// characters: of zones, whose names are parts of names of chains of iptables (firewall3; the
	// REST API refuses longer ones), and of policies and rules of mwan3 2.10, which skips longer
	// ones, and only logs it (mwan3.sh). Our CNF has no such limits.
	OpenWrtZoneName  = 11
	OpenWrtMwan3Name = 15
	// MaxUplinks is the number of uplinks that UplinkMask can tell apart, as in mwan3: three values
	// have a meaning of their own.
	MaxUplinks = 59
	// UplinkMask has the bits of the packet mark and of the connection mark that tell which uplink
	// a connection of a CNF uses: the number of the uplink, 1 to MaxUplinks, in units of 0x100. The
	// mask, and the values that are no number of an uplink, are those of mwan3: UplinkNone is a
	// connection that no uplink is chosen for, so that the main table routes it; UplinkUnreachable
	// and UplinkBlackhole are connections that are refused or dropped.
	UplinkMask        = 0x3f00
	UplinkNone        = 0x3f00
	UplinkUnreachable = 0x3e00
	UplinkBlackhole   = 0x3d00
	// UplinkUnanswered is the bit of the connection mark of connections for which a rule has chosen
	// an uplink, and which have had no reply since.
	UplinkUnanswered = 0x4000
	// UplinkAnew is another bit of the connection mark: where both are set, the next packet chooses
	// an uplink again.
	UplinkAnew = 0x8000
	// UplinkSpread is the bit of those that then choose as a new connection does. Without it, they
	// keep their uplink if they could choose it again.
	UplinkSpread = 0x10000
	// UplinkArrivalPriority itself is the priority of the rule for packets with the mark
	// UplinkNone, which take the main table although they arrive on an uplink.
	// UplinkArrivalPriority, UplinkPriority and UplinkDownPriority plus the number of an uplink are
	// the priorities of the rules for what arrives on it, for what is marked for it, and for what
	// is marked for it while it has no route. UplinkBlackholePriority and UplinkUnreachablePriority
	// are those of the rules for the two marks. All are mwan3's.
	UplinkArrivalPriority     = 1000
	UplinkPriority            = 2000
	UplinkDownPriority        = 3000
	UplinkBlackholePriority   = 2061
	UplinkUnreachablePriority = 2062
	// CNFRulePriority is the priority of the first policy rule of a CNF's REST API that has none of
	// its own; the next ones have the numbers after it, up to ApplicationPriority, which is that of
	// the rules of applications. They come before the rules of uplinks, as the kernel places rules
	// without a priority before all others.
	CNFRulePriority     = 100
	ApplicationPriority = 999

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
	// GlobalnetMetricsPort and GlobalnetProbePort are the same of the globalnet agent, on the
	// addresses of its pod.
	GlobalnetMetricsPort = 32784
	GlobalnetProbePort   = 32785
	// GatewayNodesMetricsPort and GatewayNodesProbePort are the same of the agent that replaces
	// gateway nodes.
	GatewayNodesMetricsPort = 32786
	GatewayNodesProbePort   = 32787
	// DNSMetricsPort and DNSProbePort are the same of the DNS server for imported Services.
	DNSMetricsPort = 32788
	DNSProbePort   = 32789
	// DNSPort is the UDP and TCP port of that server in its pods, which may not use port 53: the
	// ports below 1024 need a capability. Clients use port 53 of its Service.
	DNSPort = 5353
	// ServicesMetricsPort and ServicesProbePort are the ports of metrics and of probes of the agent
	// of service discovery, on the addresses of its pod.
	ServicesMetricsPort = 32790
	ServicesProbePort   = 32791
)

// FixedPorts are the UDP ports that no setting changes, and what uses them.
var FixedPorts = map[int]string{
	NATDiscoveryPort:   "NAT discovery",
	IntraPort:          "VXLAN between the nodes of a cluster",
	EchoPort:           "echoes between gateways",
	IntraEchoPort:      "echoes between the nodes of a cluster",
	VXLANWireGuardPort: "VXLAN inside WireGuard",
	VXLANIPsecPort:     "VXLAN inside IPsec",
}

// EchoDevices are the devices between gateways on which echoes are sent: those that are VXLANs.
var EchoDevices = []string{VXLANDevice, VXLANWireGuardDevice, VXLANIPsecDevice, VXLANDevicePrefix + DeviceAny}

// DeviceNets are the networks of the addresses on our devices, which no cluster can have.
var DeviceNets = []struct {
	Net     netip.Prefix
	Devices string
}{
	{netip.MustParsePrefix("240.0.0.0/8"), "VXLAN devices between nodes"},    // IntraVTEPNet
	{netip.MustParsePrefix("241.0.0.0/8"), "VXLAN devices between gateways"}, // VXLANNet
	// WireGuardNet, IPsecNet, VXLANWireGuardNet, VXLANIPsecNet
	{netip.MustParsePrefix("244.0.0.0/6"), "encrypted devices between gateways"},
	{netip.MustParsePrefix("248.0.0.0/8"), "VXLAN devices between gateways"}, // OtherVNINet
}

// The tables of nftables, besides GlobalnetTable: those that drop forged packets, of the sources of
// packets, of the return path, for all of which see package cable, and of a CNF.
var (
	gatewayAntispoof     = Nftable{"ip", "submariner-gateway-antispoof"}
	gatewayAntispoofIPv6 = Nftable{"ip6", "submariner-gateway-antispoof"}
	routeAntispoof       = Nftable{"ip", "submariner-route-antispoof"}
	SourcesTable         = Nftable{"ip", "submariner-route"}
	ReturnsTable         = Nftable{"ip", "submariner-route-return"}
	CNFRules             = Nftable{"inet", "subctl-cnf"}
)

// The owners. The first octet of a next hop ID identifies its kind, and the other
// three its node, so that IDs need no allocation.
var (
	GatewayOwner = Owner{
		Name:       "gateway",
		Devices:    []string{VXLANDevice, WireGuardDevice, IPsecDevice, VXLANWireGuardDevice, VXLANIPsecDevice},
		Prefixes:   []string{VXLANDevicePrefix},
		Chains:     "SUBMARINER-GW-",
		Antispoof:  gatewayAntispoof.Name,
		Nftables:   []Nftable{gatewayAntispoof, gatewayAntispoofIPv6, GlobalnetTable},
		Tables:     Range{CableTable, CableTable + 9},
		Former:     Range{FormerCableTable, FormerCableTable + 9},
		Priorities: Ranges{{100, 109}},
		IDs:        Ranges{{0x10000000, 0x1fffffff}, {0x30000000, 0x3fffffff}},
		Protocol:   170,
	}
	RouteOwner = Owner{
		Name: "route", Devices: []string{IntraDevice}, Chains: "SUBMARINER-",
		Antispoof:  routeAntispoof.Name,
		Nftables:   []Nftable{routeAntispoof, SourcesTable, ReturnsTable},
		Tables:     Range{IntraTable, ReturnTable + ReturnMask},
		Former:     Range{FormerIntraTable, ReturnTable + ReturnMask - FirstTable},
		Priorities: Ranges{{ReturnPriority, ReturnPriority}, {150, 159}},
		IDs:        Ranges{{0x20000000, 0x2fffffff}}, Protocol: 171,
	}
	CNFOwner = Owner{
		Name:     "cnf",
		Nftables: []Nftable{CNFRules},
		Devices:  []string{CNFTunnelDevice},
		Tables:   Range{TunnelAllTable, CNFTable + MaxUplinks},
		Protocol: 172,
		Main:     true,
	}
)

// NodeOwners returns the owners of what is on the nodes of a cluster.
func NodeOwners() []Owner { return []Owner{GatewayOwner, RouteOwner} }

// Owners returns all owners: those of nodes, and the one in the pods of CNFs. A device that has the
// name of a CNF's on a node is not ours.
func Owners() []Owner { return append(NodeOwners(), CNFOwner) }

// The first octets of next hop and group IDs. Further drivers take octets from 0x30 to 0x37: twins
// have 8 more.
const (
	VXLANNexthopID          = 0x10 // one per remote gateway, over VXLAN
	WireGuardNexthopID      = 0x11 // over WireGuard
	IPsecNexthopID          = 0x12 // over IPsec
	VXLANWireGuardNexthopID = 0x13 // over VXLAN inside WireGuard
	VXLANIPsecNexthopID     = 0x14 // over VXLAN inside IPsec
	OtherVNINexthopID       = 0x15 // over VXLAN with another VNI than CableVNI
	OtherVNIGroupID         = 0x16 // the group of that next hop alone, for the route to the peer's own address
	SiblingNexthopID        = 0x17 // one per other gateway of this cluster
	// is added to the octet of the second next hop to the same gateway, in a resilient group
	TwinNexthop           = 0x08
	ResilientCableGroupID = 0x1e // one per remote cluster, where the kernel has resilient groups
	CableGroupID          = 0x1f // one per remote cluster
	IntraNexthopID        = 0x20 // one per node of this cluster
	NearGroupID           = 0x2c // one node, for what another gateway hands over
	// for replies to connections of a gateway of this cluster: this gateway, or all others when it
	// is not active
	ReturnGroupID         = 0x2d
	ResilientIntraGroupID = 0x2e // the gateways of this cluster, likewise
	IntraGroupID          = 0x2f // the gateways of this cluster, or one node
)

// The numbers of buckets of resilient groups (Linux ≥ 5.13,
// Documentation/networking/nexthop-group-resilient.rst), and the time without packets after which a
// bucket may move to another gateway. Flows that share a bucket move together, and a bucket with
// packets never moves to a gateway that returns. So there must be many more buckets than flows.
const (
	IntraBuckets = 16384             // of the only group of a worker
	CableBuckets = 1024              // of each group of a gateway, one for each other cluster: about 32 KiB
	BucketIdle   = 120 * time.Second // the kernel's default
)
