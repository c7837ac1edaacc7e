package dataplane

import "net/netip"

// Facts holds the information about a node that plans need: what its kernel reports apart from
// our own objects.
type Facts struct {
	// Device is the device of the default route (of the lowest metric).
	Device string
	// MTU of Device, in bytes.
	MTU int
	// PrivateIP is the source address of packets that leave through Device (IPv4).
	PrivateIP netip.Addr
	// Addrs are the IPv4 addresses of all devices except our own and loopback, sorted.
	Addrs []HostAddr
	// OwnAddrs are the IPv4 addresses of our own devices, sorted.
	OwnAddrs []netip.Addr
	// Networks are the IPv4 networks that the node reaches without a router, through devices
	// that are neither our own nor loopback, sorted.
	Networks []HostNetwork
	// Routers are the next hops of the default routes (IPv4), sorted.
	Routers []netip.Addr
	// Resolvers are the DNS servers of the node (IPv4), sorted.
	Resolvers []netip.Addr
	// WireGuard and IPsec are the engines that handle such packets on this node.
	WireGuard, IPsec Engine
	// NoNexthops reports that the kernel has no next hop objects (Linux < 5.3).
	NoNexthops bool
	// NoIPv6Tables reports that the kernel has IPv6, and nftables has no tables for it: the rules
	// against forged packets do without.
	NoIPv6Tables bool
	// Resilient reports whether the kernel has resilient next hop groups (Linux ≥ 5.13).
	Resilient bool
	// NoCableRule reports that the node has no rule that looks up packets in the table of cables:
	// since it has booted, or since the rule was removed, no gateway agent has set up what it
	// needs. There may be nothing but the rule: the cluster may be alone, or all networks of others
	// refused.
	NoCableRule bool
	// FormerRoutes reports that the route agent of the node is of a version before FirstTable: it
	// has routes in FormerIntraTable.
	FormerRoutes bool
	// FormerRules reports that the gateway agent of the node is of such a version: it has rules
	// that look up FormerIntraTable.
	FormerRules bool
	// BootID identifies the time since the node has booted: the kernel has another one after each
	// boot. It is empty if it cannot be read.
	BootID string
	// HashPolicy is net.ipv4.fib_multipath_hash_policy; nil if it cannot be read.
	HashPolicy *int
}

// Engine is the part of a node that handles the packets of encrypted cables.
type Engine struct {
	// Name is "kernel", or the name of the program or plugin that handles the packets in
	// userspace. It is empty if the node has neither.
	Name string
	// Missing is what the node lacks, if Name is empty.
	Missing string
}

// EngineKernel is the Name of an Engine that is the kernel.
const EngineKernel = "kernel"

// HostAddr is an address, not ours, on a device of the node.
type HostAddr struct {
	Dev    string
	MTU    int // of Dev, in bytes
	Prefix netip.Prefix
}

// HostNetwork is a network of a device, not ours, of the node.
type HostNetwork struct {
	Dev    string
	Prefix netip.Prefix
}
