package cable

import (
	"net"
	"net/netip"
)

// VTEPOf returns the address of a node on one of our VXLAN devices: the first octet of the
// device's network, and the last three octets of the node's own address (the same as
// upstream, for its tools). Nodes whose addresses differ only in the first octet
// collide; plans refuse the second one.
func VTEPOf(network byte, node netip.Addr) netip.Addr {
	b := node.As4()
	b[0] = network
	return netip.AddrFrom4(b)
}

// VTEP returns the address of a node on one of our VXLAN devices, as VTEPOf, and the MAC
// address of the device. The MAC address is derived from the address and not random. So
// peers need no ARP: they hold it as a permanent neighbor entry, which stays valid if the
// device is recreated.
func VTEP(network byte, node netip.Addr) (netip.Addr, string) {
	ip := VTEPOf(network, node)
	b := ip.As4()
	// 0x02 in the first octet: locally administered, unicast (IEEE 802, section 8.4).
	return ip, net.HardwareAddr{0x02, 0x73, b[0], b[1], b[2], b[3]}.String()
}

// NexthopID returns the ID of the next hop to a VTEP: the kind of next hop in the first
// octet, and the last three octets of the VTEP. The ID needs no allocation and never changes.
func NexthopID(kind uint32, vtep netip.Addr) uint32 {
	b := vtep.As4()
	return kind<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}
