package cable

import (
	"fmt"
	"net/netip"
)

// VTEPOf is the address of a node on one of our VXLAN devices: the device's first
// octet and three octets of the node's own address (upstream's scheme, kept so
// that its tools find their way). Nodes that differ only in the first octet
// collide; plans refuse the second.
func VTEPOf(net byte, node netip.Addr) netip.Addr {
	b := node.As4()
	b[0] = net
	return netip.AddrFrom4(b)
}

// VTEP is the address on the VXLAN device between gateways of the gateway with
// the given private IP, and with it the device's MAC address. The MAC is derived
// rather than random so that nobody has to ask for it: peers hold it as a
// permanent neighbour, and a device that is made again answers to it.
func VTEP(net byte, node netip.Addr) (netip.Addr, string) {
	ip := VTEPOf(net, node)
	b := ip.As4()
	// 0x02 in the first octet: locally administered, unicast (IEEE 802, section 8.4).
	return ip, fmt.Sprintf("02:73:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}

// NexthopID is the ID of the next hop to a VTEP: the kind of next hop in the
// first octet, the three octets that tell VTEPs of one device apart in the
// others. It needs no allocation and never moves.
func NexthopID(kind uint32, vtep netip.Addr) uint32 {
	b := vtep.As4()
	return kind<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}
