package dataplane

import "net/netip"

// Network holds the devices, routes and rules of a network namespace, whoever made them, for the
// plan and the status of a CNF.
type Network struct {
	Devices []NetDevice // sorted by name
	Routes  []NetRoute  // of IPv4, of all tables except "local", in the order of the kernel
	Rules   []NetRule   // of IPv4, in the order of the kernel
	IPsec   Engine      // what handles IPsec packets
}

// NetDevice is a device.
type NetDevice struct {
	Name     string
	Index    int
	MAC      string
	Up       bool           // it is up, and has a carrier
	Loopback bool           // it is lo
	Addrs    []netip.Prefix // IPv4 and IPv6, with the host's bits, in the order of the kernel
	ARP      []netip.Addr   // the IPv4 addresses that neighbours find by ARP: none on tunnels
	// Received and Sent are numbers of packets.
	Received, Sent uint64
}

// NetRoute is a route.
type NetRoute struct {
	Table    int
	Type     string       // unicast, blackhole, unreachable, throw or prohibit
	Dst      netip.Prefix // length 0 for the default route
	Via      netip.Addr   // the zero Addr if there is no router
	Dev      string
	Src      netip.Addr
	Metric   int
	Protocol int
	Scope    string // global, link or host
}

// NetRule is a policy rule.
type NetRule struct {
	Priority   int
	Not        bool
	Src, Dst   netip.Prefix
	IIF        string
	Mark, Mask uint32
	Table      int // 0 if the rule has an action
}

// NetNeighbour is a neighbour that ARP or NDP knows, or has asked for.
type NetNeighbour struct {
	Dev   string
	IP    netip.Addr
	MAC   string // "" if it is not known
	State string // reachable, stale, delay, probe, incomplete, failed or permanent
}

// Connection is a connection that connection tracking knows.
type Connection struct {
	Protocol string // tcp, udp, icmp or a number
	State    string // of TCP, as conntrack(8) has it: ESTABLISHED; "" of other protocols
	Request  Tuple  // as the first packet came
	Response Tuple  // as replies come
	Mark     uint32
}

// Tuple is a direction of a Connection.
type Tuple struct {
	Src, Dst netip.AddrPort
	// Packets and Bytes are what passed in this direction; 0 of a connection that began while
	// net.netfilter.nf_conntrack_acct was 0.
	Packets, Bytes uint64
}
