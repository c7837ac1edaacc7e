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
	// OwnAddrs are the IPv4 addresses of our own devices, sorted.
	OwnAddrs []netip.Addr
	// CableDevices are the devices of cables with VNIs of their own (VXLANDevicePrefix) that
	// there are, sorted: which of them carry traffic, only the gateway's agent knows.
	CableDevices []string
	// WireGuard and IPsec say what handles such packets on this node.
	WireGuard, IPsec Engine
}

// Engine is what handles the packets of encrypted cables on a node.
type Engine struct {
	// Name is "kernel", or the program or plugin that does it in userspace; empty if
	// there is nothing.
	Name string
	// Missing is what there would have to be, if Name is empty.
	Missing string
}

// EngineKernel is the Name of the kernel as an Engine.
const EngineKernel = "kernel"

// HostAddr is an address that somebody else put on a device of the node.
type HostAddr struct {
	Dev    string
	MTU    int // of Dev, in bytes
	Prefix netip.Prefix
}
