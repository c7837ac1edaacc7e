package cable

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// VTEPOf returns the address of a node on the VXLAN device between the nodes of its cluster: the
// first octet of the device's network, and the last three octets of the node's own address (the
// same as upstream, for its tools). Nodes whose addresses differ only in the first octet collide;
// plans refuse the second one.
func VTEPOf(network byte, node netip.Addr) netip.Addr { return OctetsOf(node).in(network) }

// VTEP returns the address of a node, as VTEPOf, and the MAC address of the device.
func VTEP(network byte, node netip.Addr) (netip.Addr, string) {
	ip := VTEPOf(network, node)
	return ip, MAC(ip)
}

// MAC returns the MAC address of our VXLAN device with an address. It is derived from the address
// and not random. So peers need no ARP: they hold it as a permanent neighbor entry, which stays
// valid if the device is recreated.
func MAC(vtep netip.Addr) string {
	b := vtep.As4()
	// 0x02 in the first octet: locally administered, unicast (IEEE 802, section 8.4).
	return net.HardwareAddr{0x02, 0x73, b[0], b[1], b[2], b[3]}.String()
}

// NexthopID returns the ID of the next hop to a VTEP: the kind of next hop in the first
// octet, and the last three octets of the VTEP. The ID needs no allocation.
func NexthopID(kind uint32, vtep netip.Addr) uint32 {
	b := vtep.As4()
	return kind<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// Octets are the last three octets of the addresses of a gateway on the devices of cables. Each
// gateway chooses its own (see ChooseOctets) and announces them, so that no two gateways that a
// third one connects have the same.
type Octets [3]byte

// OctetsOf returns the last three octets of an IPv4 address.
func OctetsOf(ip netip.Addr) Octets {
	b := ip.As4()
	return Octets{b[1], b[2], b[3]}
}

// ParseOctets parses what String returns. It returns an error for octets that no gateway can have.
func ParseOctets(text string) (o Octets, err error) {
	fields := strings.Split(text, ".")
	for i, field := range fields[:min(len(fields), len(o))] {
		n, atoiErr := strconv.ParseUint(field, 10, 8)
		o[i] = byte(n)
		err = errors.Join(err, atoiErr)
	}
	if err != nil || o.String() != text || !o.usable() {
		return Octets{}, fmt.Errorf("%.80q is not like 1.2.3, from 0.0.1 to 255.255.254", text)
	}
	return o, nil
}

// usable reports whether a device can have an address with the octets: 0.0.0 and 255.255.255 stand
// for its network.
func (o Octets) usable() bool { return o != Octets{} && o != Octets{255, 255, 255} }

// String returns the octets as in an address: "16.1.11".
func (o Octets) String() string { return fmt.Sprintf("%d.%d.%d", o[0], o[1], o[2]) }

func (o Octets) in(network byte) netip.Addr {
	return netip.AddrFrom4([4]byte{network, o[0], o[1], o[2]})
}

// ChooseOctets returns octets that are not taken, for a gateway of a cluster on a node: the last
// three of its private IP, which older versions expect, or else the first free ones of a sequence
// that depends only on the names.
func ChooseOctets(cluster, node string, privateIP netip.Addr, taken map[Octets]bool) Octets {
	o := OctetsOf(privateIP)
	for n := 1; taken[o] || !o.usable(); n++ {
		h := fnv.New32a()
		fmt.Fprintf(h, "%d %s %s", n, cluster, node) // never fails
		sum := h.Sum32()
		o = Octets{byte(sum >> 16), byte(sum >> 8), byte(sum)}
	}
	return o
}

// VTEP returns the address of the gateway on a device of cables, whose network has the given first
// octet.
func (g Gateway) VTEP(network byte) netip.Addr {
	if g.Octets == (Octets{}) {
		return VTEPOf(network, g.PrivateIP)
	}
	return g.Octets.in(network)
}
