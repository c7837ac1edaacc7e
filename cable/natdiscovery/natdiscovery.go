// Package natdiscovery implements the protocol with which gateways discover the path to
// each other: its messages, and the conclusions from them. It is pure: sockets and clocks are
// in package discovery.
//
// Each gateway sends requests to every other one over UDP, to all candidate addresses: the
// private and the public address of its Endpoint, and the learned address, which is the
// source of the other gateway's own requests if that gateway is behind a NAT router without
// port forwarding. A request contains its source and destination as sent; the response
// reports whether they were translated. Cables then use the addresses that answered, and
// take NAT into account.
//
// Messages have Submariner's format (SubmarinerNATDiscoveryMessage, protobuf). Four fields are our
// additions, which Submariner ignores: padding, which gives a request the size to test; the
// size at which a request arrived; a message authentication code under a key that only the two
// clusters have; and a cookie, by which a request that is sent again is recognized. Between
// clusters that have a key, only responses with the code count. A response without it can only
// choose among addresses that the Endpoint announces.
package natdiscovery

import (
	"net/netip"

	"subctl/dataplane"
)

// KeyPurpose is the purpose of the pair key (keys.PairKey) that authenticates messages.
const KeyPurpose = "nat-discovery"

// Headers is the size of the headers of a datagram, in bytes: IPv4 20 (RFC 791,
// without options) and UDP 8 (RFC 768).
const Headers = 28

// MaxSize is the maximum size of a message in an IPv4 packet, in bytes.
const MaxSize = 65535 - Headers

// Endpoint identifies a gateway.
type Endpoint struct {
	Cluster string // cluster ID
	Cable   string // Endpoint.spec.cable_name
}

// Request asks a gateway to answer. Missing fields are zero.
type Request struct {
	Number           uint64 // random; the response has the same number
	Sender, Receiver Endpoint
	// Src and Dst are the source and destination as sent. Src.Addr is invalid if the sender
	// does not know it.
	Src, Dst netip.AddrPort
	// Cookie is the Cookie of the receiver's last response. It shows that the request is not an old
	// one that somebody else sends again.
	Cookie uint64
}

// Response is the answer to a Request.
type Response struct {
	Number           uint64
	Type             Type
	Sender, Receiver Endpoint
	// SrcIPNAT, SrcPortNAT and DstIPNAT report what was translated on the path of the
	// request.
	SrcIPNAT, SrcPortNAT, DstIPNAT bool
	// ReceivedSrc is the source of the request as the receiver saw it.
	ReceivedSrc netip.AddrPort
	// Size is the size of the request as it arrived, in bytes; 0 if the gateway does
	// not report it.
	Size int
	// Cookie is to be in the next requests to the gateway; 0 if the response is not authenticated.
	Cookie uint64
}

// NoCookie is the largest cookie, which no response has. An authenticated request has it if no
// cookie is known, so that the request is not smaller than its response.
const NoCookie = 1<<56 - 1

// Type is the result in a Response, with Submariner's numbers.
type Type int

// The results.
const (
	OK Type = iota
	NATDetected
	UnknownCluster
	UnknownEndpoint
	Malformed
)

var typeNames = []string{"OK", "NAT_DETECTED", "UNKNOWN_DST_CLUSTER", "UNKNOWN_DST_ENDPOINT", "MALFORMED"}

// String returns the name of the result in Submariner's protocol.
func (t Type) String() string { return typeNames[t] }

// Reached reports whether the intended gateway has answered.
func (t Type) Reached() bool { return t == OK || t == NATDetected }

// Self is the gateway that answers.
type Self struct {
	Endpoint
	PrivateIP netip.Addr
}

// Answer returns the response of self to a request of size bytes from an address. The
// response to a request for another gateway contains the names in the request, so that
// a scanner does not learn the name of self.
func Answer(self Self, r Request, from netip.AddrPort, size int) Response {
	a := Response{Number: r.Number, Sender: r.Receiver, Receiver: r.Sender, ReceivedSrc: from, Size: size}
	switch {
	case r.Sender == (Endpoint{}) || r.Receiver == (Endpoint{}) || r.Src.Port() == 0 || !r.Dst.IsValid() ||
		r.Dst.Port() == 0:
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

// Key authenticates the messages of two clusters. The zero Key means no authentication.
type Key = dataplane.Secret
