package dataplane

import (
	"cmp"
	"net/netip"
)

// PeerNet is a network of another cluster, and an address that stands for the cluster: the same one
// for all its networks.
type PeerNet struct {
	Net  netip.Prefix // masked
	Peer netip.Addr
}

// errorTypes are the types of ICMP messages that contain the beginning of a packet, to whose
// connection connection tracking adds them (RFC 792): destination unreachable, source quench and
// redirect; time exceeded and parameter problem.
var errorTypes = []Range{{Min: 3, Max: redirect}, {Min: 11, Max: 12}}

// redirect is the type of ICMP redirects.
const redirect = 5

// errorRules are about ICMP errors that arrive on a device of Out: the packet inside was sent to
// the cluster that sends the error. A member could otherwise lower the path MTU of connections
// between two others, or end them: connection tracking finds the connection by the packet inside.
// The rules come before all translation, so both addresses are as they were in the cable. nft(8)
// cannot list a rule that looks up what another lookup has found, so the priority of the packet is
// the cluster of its source meanwhile: the kernel sets the priority of what it forwards afterwards
// (ip_forward in net/ipv4/ip_forward.c), and does not use it for what it delivers.
func (a Antispoof) errorRules(r *antispoofRules) {
	if len(a.Behind) == 0 || len(a.Out) == 0 {
		return
	}
	r.jump(AntispoofICMP, AntispoofIn, Match{ICMP: true})
	for _, types := range errorTypes {
		r.jump(AntispoofErrors, AntispoofICMP, Match{ICMPTypes: types})
	}
	var others []Match
	for _, d := range a.Out {
		others = append(others, Match{IIFNot: d})
	}
	r.back(AntispoofErrors, others...)
	*r = append(*r, AntispoofRule{Chain: AntispoofErrors, Mark: true})
	nets := make([]netip.Prefix, len(a.Behind))
	for i, n := range a.Behind {
		nets[i] = n.Net
	}
	for _, bits := range masks(nets) {
		r.back(AntispoofErrors, Match{ErrorBits: bits})
	}
	r.jump(AntispoofSource, AntispoofErrors)
}

// Compare orders PeerNets by Net, then by Peer.
func (n PeerNet) Compare(other PeerNet) int {
	return cmp.Or(n.Net.Compare(other.Net), n.Peer.Compare(other.Peer))
}
