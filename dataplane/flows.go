package dataplane

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"subctl/internal/prefix"
)

// FlowCounter counts connections, as the kernel tracks them.
type FlowCounter interface {
	// Flows reads all connections once. It may run beside all other methods of a Target, which do
	// not wait for it; only one call of it may run at a time.
	Flows(q FlowQuery) (Flows, error)
}

// FlowTolerator lets connections come back that have just begun: FlowQuery.Tolerate comes too late
// for them.
type FlowTolerator interface {
	// TolerateNew does what FlowQuery.Tolerate does with each connection as it begins, in the
	// calling thread's network namespace, until ctx is done: with those from and to the addresses
	// for which in is true. It returns at once. The channel receives the reason when that ends; nil
	// if ctx is done. Where connections begin faster than it may follow, or the sysctl
	// nf_conntrack_events is 0, the next reading with FlowQuery.Tolerate has to do.
	TolerateNew(ctx context.Context, in func(netip.Addr) bool) (ended <-chan error, err error)
}

// FlowQuery specifies which connections Flows returns: those from and to addresses in Networks,
// whose other end is not in Except, and the use of the addresses in Sources to which the sources of
// connections are translated.
type FlowQuery struct {
	Networks, Except, Sources []netip.Prefix
	// Tolerate lets connections come back to a gateway after another one has carried a part of
	// them: it makes connection tracking accept all packets of the TCP connections from and to
	// addresses in Networks that this node translates. Otherwise it considers those invalid, and
	// does not translate them, that acknowledge bytes which another gateway has carried. Both ends
	// check what they receive, as always.
	Tolerate bool
}

// MaxFlows is the maximum number of connections that Flows lists.
const MaxFlows = 20

// Flows are connections that are open, and that have had a packet within BucketIdle: others take
// another gateway if theirs leaves. ICMP is not counted: any gateway can carry it.
type Flows struct {
	Count   int
	Some    []Flow      // sorted, at most MaxFlows
	Sources []SourceUse // the fullest first, at most MaxSources
	// Rigid is the reason why FlowQuery.Tolerate had no effect on some connections; nil if it had.
	Rigid error
}

// Flow is a connection as its first packet had it.
type Flow struct {
	Proto    string // "tcp", "udp" or the number of the protocol
	Src, Dst netip.AddrPort
}

// String returns the connection as "tcp 10.1.0.5:40000 → 10.2.0.9:80".
func (f Flow) String() string {
	if f.Src.Port() == 0 && f.Dst.Port() == 0 {
		return fmt.Sprintf("%s %v → %v", f.Proto, f.Src.Addr(), f.Dst.Addr())
	}
	return fmt.Sprintf("%s %v → %v", f.Proto, f.Src, f.Dst)
}

// Tracked is an entry of the kernel's connection tracking.
type Tracked struct {
	Flow
	// Replies is the source of its replies: the destination, unless it is translated. Returns is
	// their destination: the source, unless it is translated.
	Replies, Returns netip.AddrPort
	// State is the TCP state: a TCPState.
	State uint8
	// Left is the time after which the entry is deleted if there is no packet.
	Left time.Duration
}

// TCP states of connection tracking (linux/netfilter/nf_conntrack_tcp.h).
const (
	TCPEstablished = 3
	TCPFinWait     = 4 // one side has closed the connection
	TCPCloseWait   = 5 // and the other has acknowledged it
	TCPLastAck     = 6
	TCPClose       = 8 // TIME_WAIT is 7
)

// unacknowledged is the time after which the kernel deletes an entry in state TCPEstablished one
// side of which has not acknowledged what the other has sent
// (nf_conntrack_tcp_timeout_unacknowledged).
const unacknowledged = 300 * time.Second

// The times after which the kernel deletes an entry in state TCPFinWait or TCPCloseWait, unless
// somebody has changed them. A gateway that sees one direction of a connection only never sees its
// end. So such a connection counts as closed if it had no packet for the time halfClosed.
const (
	finWait    = 120 * time.Second
	closeWait  = 60 * time.Second
	halfClosed = 10 * time.Second
)

// Live reports whether a connection is open and in use. established is the time after which the
// kernel deletes an entry in state TCPEstablished (nf_conntrack_tcp_timeout_established).
func (t Tracked) Live(established time.Duration) bool {
	switch {
	case t.Proto == "icmp":
		return false
	case t.Proto != "tcp":
		return true // such entries are deleted soon
	case t.State >= TCPLastAck && t.State <= TCPClose:
		return false
	case t.State == TCPFinWait:
		return finWait-t.Left < halfClosed
	case t.State == TCPCloseWait:
		return closeWait-t.Left < halfClosed
	case t.State != TCPEstablished:
		return true
	}
	full := established
	if t.Left <= unacknowledged {
		full = min(full, unacknowledged)
	}
	return full-t.Left < BucketIdle
}

// Between returns whether connections are from or to an address in networks, and their other end is
// not in except.
func Between(networks, except []netip.Prefix) func(Tracked) bool {
	remote := prefix.ContainsFunc(networks)
	own := prefix.ContainsFunc(except)
	return func(t Tracked) bool {
		switch {
		case remote(t.Dst.Addr()):
			return !own(t.Src.Addr())
		case remote(t.Src.Addr()):
			return !own(t.Replies.Addr())
		}
		return false
	}
}
