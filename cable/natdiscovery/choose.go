package natdiscovery

import (
	"fmt"
	"net/netip"
	"time"

	"subctl/cable"
)

// Kind is how we know of an address of a gateway. A lower one is preferred.
type Kind int

// The kinds of addresses.
const (
	Private Kind = iota // Endpoint.spec.private_ip
	Public              // Endpoint.spec.public_ip
	Learned             // where its own questions come from
)

// String returns the name for people.
func (k Kind) String() string { return [...]string{"private", "public", "learned"}[k] }

// Candidate is where a gateway may be asked.
type Candidate struct {
	Kind Kind
	To   netip.AddrPort
}

// Candidates lists where to ask a gateway that listens on a UDP port, the preferred
// first and each address once. learned is where its questions come from, if that is
// none of the others; else the zero AddrPort.
func Candidates(g cable.Gateway, port uint16, learned netip.AddrPort) []Candidate {
	out := []Candidate{{Private, netip.AddrPortFrom(g.PrivateIP, port)}}
	if g.PublicIP.IsValid() && g.PublicIP != g.PrivateIP {
		out = append(out, Candidate{Public, netip.AddrPortFrom(g.PublicIP, port)})
	}
	if learned.IsValid() && !At(g, port, learned) {
		out = append(out, Candidate{Learned, learned})
	}
	return out
}

// At reports whether somewhere is an address that a gateway announces, with the port
// on which it listens. A translator's address may be announced, and its ports still
// lead elsewhere.
func At(g cable.Gateway, port uint16, somewhere netip.AddrPort) bool {
	return Announced(g, somewhere.Addr()) && somewhere.Port() == port
}

// Announced reports whether a gateway's Endpoint names an address.
func Announced(g cable.Gateway, a netip.Addr) bool {
	return a.IsValid() && (a == g.PrivateIP || a == g.PublicIP)
}

// Unasked is the address of a gateway that answered nowhere, or was not asked yet, as
// Submariner has it: the private one, unless it expects a translation and has a
// public one.
func Unasked(g cable.Gateway) (to netip.Addr, translated bool) {
	if g.NAT && g.PublicIP.IsValid() {
		return g.PublicIP, true
	}
	return g.PrivateIP, false
}

// Attempt is a candidate and what came of it.
type Attempt struct {
	Candidate
	Answered   bool // by the gateway that was asked for
	Translated bool // an address or a port, on the way
	RTT        time.Duration
	// Authentic says that the answer was made with the key of the pair.
	Authentic bool
	// SeenAs is where the gateway saw the question come from, if translated; only who is
	// authentic is asked for that.
	SeenAs netip.Addr
	// Size is that of the question as it arrived, in bytes; 0 if the gateway does not
	// say: then it cannot tell what else arrives.
	Size int
	// Barred is why the address must not be asked; empty if it may be.
	Barred string
	// Problem is what happened instead of an answer; empty if nothing did.
	Problem string
}

// Choose returns the best of the attempts that were answered; false if none was.
func Choose(attempts []Attempt) (Attempt, bool) {
	var best Attempt
	found := false
	for _, a := range attempts {
		if a.Answered && (!found || a.Kind < best.Kind) {
			best, found = a, true
		}
	}
	return best, found
}

// Line is the attempt for people: "192.0.2.7:4490 public: answered in 12 ms, address
// translated". waited is for how long an answer was waited for; 0 if a better one came
// at once.
func (a Attempt) Line(waited time.Duration) string {
	where := fmt.Sprintf("%v %v: ", a.To, a.Kind)
	switch {
	case a.Answered && a.Translated:
		return where + "answered in " + spell(a.RTT) + ", address translated"
	case a.Answered:
		return where + "answered in " + spell(a.RTT)
	case a.Barred != "":
		return where + "not asked: " + a.Barred
	case a.Problem != "":
		return where + a.Problem
	}
	if waited == 0 {
		return where + "not waited for"
	}
	return where + "no answer in " + spell(waited)
}

// spell prints a duration with about two digits.
func spell(d time.Duration) string {
	switch ms := d.Seconds() * 1000; {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.2g s", d.Seconds())
}
