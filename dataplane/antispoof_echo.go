package dataplane

import (
	"net/netip"
	"slices"
)

// Echo is a device on which nodes send each other echoes: datagrams that the other node's kernel
// forwards back. Source and destination are the sender's own address on the device, and the
// Ethernet frame is for the other node.
type Echo struct {
	Dev  string // one that ends in DeviceAny stands for all devices with the prefix
	Port int    // UDP port of the destination
	// Own is the node's own address on the device; the zero Addr if the table of another owner has
	// it, and decides whose echoes are forwarded.
	Own netip.Addr
}

// Returned returns the source that an echo gets when it has come back. The kernel accepts no packet
// from another node that has an address of its own as source.
func (e Echo) Returned() netip.Addr {
	return netip.AddrFrom4([4]byte{e.Own.As4()[0], 255, 255, 254})
}

// Net returns the network of the addresses on the device.
func (e Echo) Net() netip.Prefix { return netip.PrefixFrom(e.Own, 8).Masked() }

// checksInside reports whether arrivedRules check the packets inside VXLAN packets, as other rules
// check what arrives on the devices of Out. Then they decide about echoes, too, and the devices of
// Echoes accept the node's own address as source.
func (a Antispoof) checksInside() bool { return len(a.Ports) > 0 && len(a.Inner) > 0 }

// returnedInside calls pass with the matches of the VXLAN packets that contain an echo of a node in
// Echoing.
func (a Antispoof) returnedInside(pass func(...Match)) {
	for _, port := range a.echoPorts() {
		pass(Match{InnerSameIn: AntispoofSetEcho}, Match{InnerPort: port})
	}
}

// echoPorts returns the ports of the echoes of nodes in Echoing, if there are any.
func (a Antispoof) echoPorts() (ports []int) {
	for _, e := range a.Echoes {
		if e.Own.IsValid() && len(a.Echoing) > 0 && !slices.Contains(ports, e.Port) {
			ports = append(ports, e.Port)
		}
	}
	return ports
}

// echoRules let echoes pass: those of the nodes in Echoing are forwarded back on the device on
// which they arrived, and the node's own arrive, with another source. Other packets with the node's
// own address as source are dropped.
func (a Antispoof) echoRules(r *antispoofRules) {
	if a.checksInside() {
		return
	}
	for _, e := range a.Echoes {
		if !e.Own.IsValid() {
			continue
		}
		own := netip.PrefixFrom(e.Own, 32)
		r.jump(AntispoofReturned, AntispoofIn, Match{SAddr: own}, Match{IIF: e.Dev})
		*r = append(*r, AntispoofRule{
			Chain:   AntispoofReturned,
			Matches: []Match{{IIF: e.Dev}, {DPort: e.Port}, {DAddr: own}},
			Source:  e.Returned(),
			Accept:  true,
		})
	}
	if r.has(AntispoofReturned) {
		r.drop(AntispoofReturned)
	}
}

// returnedRules are the exceptions from a chain that drops packets: echoes of the nodes in Echoing.
// dev is the match of their device.
func (a Antispoof) returnedRules(r *antispoofRules, chain string, dev func(string) []Match) {
	for _, e := range a.Echoes {
		switch {
		case !e.Own.IsValid():
			r.accept(chain, append(dev(e.Dev), Match{DPort: e.Port})...)
		case len(a.Echoing) > 0:
			r.accept(
				chain,
				append(dev(e.Dev), Match{DPort: e.Port}, Match{DAddr: e.Net()}, Match{SameIn: AntispoofSetEcho})...)
		}
	}
}
