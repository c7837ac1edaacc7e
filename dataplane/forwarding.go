package dataplane

import "net/netip"

// ForwardProbe is a packet that arrives on a device of ours as if another cluster had sent it to a
// pod: the first packet of a TCP connection. It passes the rules of all programs, and is dropped
// before it leaves the node.
type ForwardProbe struct {
	Dev, MAC string     // the device, a VXLAN, and its own address, which an FDB entry leads back to this node
	From     netip.Addr // an address of the other cluster
	Pods     []netip.Prefix
	// Far is the address that the packet is sent to if the node has no pods; the zero Addr if there
	// is none.
	Far netip.Addr
}

// Forwarded is the result of a ForwardProbe.
type Forwarded struct {
	// Generation is the generation of nftables' rules to which the result applies.
	Generation uint32
	// To is where the packet was sent; the zero Addr if there is nothing to send it to.
	To netip.Addr
	// Known specifies that either the packet was forwarded, or By has dropped it. Otherwise, no
	// firewall is known to be in the way.
	Known bool
	By    Dropper // the zero value if the packet was forwarded
}

// Dropper is what has dropped a packet: a rule of a chain, or its policy.
type Dropper struct {
	Family, Table, Chain string // empty for what is not nftables' own
	Rule                 uint64 // the handle of the rule; 0 for the policy of the chain
	Legacy               bool   // a rule of iptables-legacy, which is not known
}
