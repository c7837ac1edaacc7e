package dataplane

import "net/netip"

// Facts is what a kernel says about a node before we have done anything: what
// plans start from.
type Facts struct {
	// Device is the device of the default route (of the lowest metric).
	Device string
	// MTU of Device, in bytes.
	MTU int
	// PrivateIP is the IPv4 address that packets leaving by Device are sent from.
	PrivateIP netip.Addr
	// Addrs are the IPv4 addresses of all devices but our own and loopback, sorted.
	Addrs []HostAddr
}

// HostAddr is an address that somebody else put on a device of the node.
type HostAddr struct {
	Dev    string
	Prefix netip.Prefix
}
