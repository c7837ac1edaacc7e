package natdiscovery

import "net/netip"

// Path is the result of discovering the path to a remote gateway.
type Path struct {
	// Address is the address at which the gateway answered; the zero Addr if it did not
	// answer, or has not been asked yet.
	Address netip.Addr
	// NAT reports whether the path has an address translation.
	NAT bool
	// InboundOnly reports whether the gateway answers only at the address from which its
	// own questions arrive: packets that it did not ask for do not reach it.
	InboundOnly bool
	// MTU is the MTU of the path, in bytes; 0 if unknown.
	MTU int
	// Done reports whether discovery has ended, with or without an answer.
	Done bool
	// Lost reports whether the gateway has answered, but not in the last two searches: its agent
	// does not run, or nothing reaches it. Its kernel may still forward packets.
	Lost bool
	// Attempts lists the addresses that were tried and their results, one per line.
	Attempts []string
}
