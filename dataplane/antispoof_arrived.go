package dataplane

import "net/netip"

// arrivedRules are about the packets that VXLAN packets have contained, when they arrive on their
// device: the destination is one of Own, an ICMP error is about a packet to the sender, and the
// source belongs to the sender. cableRules have checked the source at "input", but there the kernel
// may show several VXLAN packets as one: a sender that asks for segmentation (UDP_SEGMENT of
// udp(7)) hands over datagrams of one size as a single packet, and over veth and virtio they arrive
// like this. The rules there see the first one only, and the kernel separates them afterwards,
// before VXLAN removes the headers. No rule can tell such a packet from a segment of TCP that is as
// long, as the length in the header inside is the sender's, too.
//
// cableRules check the source nevertheless: the kernel puts segments of a TCP connection together
// before "prerouting", and the priority of the first one is left. Otherwise a member could add a
// segment to another member's connection at any time.
//
// So the sender's address accompanies each packet as its priority, which VXLAN leaves as it is. The
// priority is not used before the kernel sets it in ip_forward (net/ipv4/ip_forward.c). A packet
// that has not passed the rules at "input" does not carry the address of a sender as its priority,
// and is dropped.
//
// Nothing in this is about IPv6, which cables do not carry: a rule for each device drops what a
// sender has hidden. Nor is it about ARP: see Conf.ARPIgnore.
//
// The kernel of a remote gateway sends ICMP redirects about the node's own echoes, which it sends
// back the way they came. They are dropped, and not reported: see DropReason.
//
// The rules see fragments before these are put together; only the first one of an ICMP error has
// the addresses.
func (a Antispoof) arrivedRules(r *antispoofRules) {
	if !a.checksInside() || len(a.Inside) == 0 {
		return
	}
	var others []Match
	for _, d := range a.Inside {
		others = append(others, Match{IIFNot: d})
		r.drop(AntispoofIPv6, Match{IIF: d})
	}
	r.accept(AntispoofArriving, others...)
	r.jump(AntispoofArrivedICMP, AntispoofArriving, Match{ICMP: true})
	r.back(AntispoofArrivedICMP, Match{Rest: true})
	for _, types := range errorTypes {
		r.jump(AntispoofArrivedErrors, AntispoofArrivedICMP, Match{ICMPTypes: types})
	}
	for _, e := range a.Echoes {
		if !e.Own.IsValid() {
			continue
		}
		own := netip.PrefixFrom(e.Own, 32)
		r.drop(AntispoofArrivedErrors, Match{ICMPTypes: Range{Min: redirect, Max: redirect}}, Match{ErrorTo: e.Own})
		r.jump(AntispoofForged, AntispoofArrivedErrors, Match{ErrorTo: e.Own})
		r.jump(AntispoofArrivedOwn, AntispoofArriving, Match{SAddr: own})
		*r = append(
			*r,
			AntispoofRule{
				Chain:   AntispoofArrivedOwn,
				Matches: []Match{{SAddr: own}},
				Over:    EchoRate,
				Carried: true,
				Jump:    AntispoofForged,
			},
		)
		r.back(AntispoofArrivedOwn, Match{SAddr: own}, Match{DAddr: own}, Match{DPort: e.Port})
	}
	if r.has(AntispoofArrivedOwn) {
		r.jump(AntispoofForged, AntispoofArrivedOwn)
	}
	for _, bits := range a.innerBits() {
		r.back(AntispoofArrivedErrors, Match{SenderErrorBits: bits})
	}
	r.jump(AntispoofForged, AntispoofArrivedErrors)
	if len(a.Own) > 0 {
		var foreign []Match
		for _, n := range a.widest() {
			foreign = append(foreign, Match{DAddrNot: n})
		}
		r.jump(AntispoofArrivedElsewhere, AntispoofArriving, append(foreign, Match{DAddrNotIn: AntispoofSetOwn})...)
		for _, port := range a.echoPorts() {
			r.back(AntispoofArrivedElsewhere, Match{SameIn: AntispoofSetEcho}, Match{DPort: port})
		}
		r.jump(AntispoofForged, AntispoofArrivedElsewhere)
	}
	for _, bits := range a.innerBits() {
		r.accept(AntispoofArriving, Match{SenderBits: bits})
	}
	r.jump(AntispoofForged, AntispoofArriving)
}
