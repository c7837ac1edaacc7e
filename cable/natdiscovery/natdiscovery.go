// Package natdiscovery is the protocol by which gateways find the way to each other,
// and what a gateway concludes from it. It is pure: sockets and clocks are in package
// agent.
//
// Each gateway asks every other one, by UDP, at every address where it might be:
// the private one of its Endpoint, the public one, and, with one side behind an
// address translator that nobody configured, the one from which its own questions
// arrive. A question names the addresses it was sent between; the answer says
// whether they arrived like that. Cables are then made to the addresses that answer, and
// as the translations on the way demand.
//
// Messages are those of Submariner (SubmarinerNATDiscoveryMessage, protobuf), which
// are not authenticated, so an answer can only choose among addresses that the
// Endpoint announces. Three fields are ours, and Submariner skips them as unknown:
// padding, which makes a question as large as the size to be tried; the size at which a
// question arrived; and a message authentication code under a key that only the two
// clusters have. Without that code, no gateway is believed to be at an address that its
// Endpoint does not announce.
package natdiscovery

import (
	"net/netip"

	"subctl/dataplane"
)

// KeyPurpose is what a pair key (keys.PairKey) authenticates messages for.
const KeyPurpose = "nat-discovery"

// Headers is what a datagram has around a message, in bytes: IPv4 20 (RFC 791,
// without options) and UDP 8 (RFC 768).
const Headers = 28

// MaxSize is the largest message, in bytes: what fits into an IPv4 packet.
const MaxSize = 65535 - Headers

// Endpoint names a gateway.
type Endpoint struct {
	Cluster string // ID
	Cable   string // Endpoint.spec.cable_name
}

// Request is a question. Fields that were missing are zero.
type Request struct {
	Number           uint64 // random; its answer has the same
	Sender, Receiver Endpoint
	// Src and Dst are what the sender sent it from and to. An invalid Src.Addr is
	// unknown to it.
	Src, Dst netip.AddrPort
}

// Response is the answer to a Request.
type Response struct {
	Number           uint64
	Type             Type
	Sender, Receiver Endpoint
	// SrcIPNAT, SrcPortNAT and DstIPNAT say what was translated on the way of the
	// question.
	SrcIPNAT, SrcPortNAT, DstIPNAT bool
	// ReceivedSrc is where the question came from, as its receiver saw it.
	ReceivedSrc netip.AddrPort
	// Size is that of the question as it arrived, in bytes; 0 from gateways that do
	// not say.
	Size int
}

// Type is the verdict of a Response, with Submariner's numbers.
type Type int

// The verdicts.
const (
	OK Type = iota
	NATDetected
	UnknownCluster
	UnknownEndpoint
	Malformed
)

var typeNames = []string{"OK", "NAT_DETECTED", "UNKNOWN_DST_CLUSTER", "UNKNOWN_DST_ENDPOINT", "MALFORMED"}

// String returns the name in Submariner's protocol.
func (t Type) String() string { return typeNames[t] }

// Reached reports whether the gateway that was asked for has answered.
func (t Type) Reached() bool { return t == OK || t == NATDetected }

// Self is the gateway that answers.
type Self struct {
	Endpoint
	PrivateIP netip.Addr
}

// Answer is what self says to a question that came from an address in size bytes.
// An answer to somebody who asked for another repeats whom, so that who scans for
// gateways learns no name.
func Answer(self Self, r Request, from netip.AddrPort, size int) Response {
	a := Response{Number: r.Number, Sender: r.Receiver, Receiver: r.Sender, ReceivedSrc: from, Size: size}
	switch {
	case r.Sender == (Endpoint{}) || r.Receiver == (Endpoint{}) || r.Src.Port() == 0 || !r.Dst.IsValid() || r.Dst.Port() == 0:
		a.Type = Malformed
	case r.Receiver.Cluster != self.Cluster:
		a.Type = UnknownCluster
	case r.Receiver.Cable != self.Cable:
		a.Type = UnknownEndpoint
	default:
		a.DstIPNAT = r.Dst.Addr() != self.PrivateIP
		a.SrcIPNAT = r.Src.Addr().IsValid() && r.Src.Addr() != from.Addr()
		a.SrcPortNAT = r.Src.Port() != from.Port()
		if a.DstIPNAT || a.SrcIPNAT || a.SrcPortNAT {
			a.Type = NATDetected
		}
	}
	return a
}

// Key authenticates the messages of two clusters; the zero Key none.
type Key = dataplane.Secret
