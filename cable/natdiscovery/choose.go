package natdiscovery

import (
	"fmt"
	"net/netip"
	"time"

	"subctl/cable"
)

// Kind is the kind of a gateway's address. Lower kinds are preferred.
type Kind int

// The kinds of addresses.
const (
	Private Kind = iota // Endpoint.spec.private_ip
	Public              // Endpoint.spec.public_ip
	Learned             // the source of its own requests
)

// String returns the name of the kind, such as "private".
func (k Kind) String() string { return [...]string{"private", "public", "learned"}[k] }

// Candidate is an address to which requests for a gateway may be sent.
type Candidate struct {
	Kind Kind
	To   netip.AddrPort
}

// Candidates returns the candidate addresses of a gateway that listens on a UDP port, the
// preferred address first, without duplicates. learned is the source of the gateway's own
// requests; the zero AddrPort if unknown.
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

// At reports whether a is an address that a gateway announces, with the port on which the
// gateway listens. Other ports of an announced address may belong to another host behind
// the same NAT router.
func At(g cable.Gateway, port uint16, a netip.AddrPort) bool {
	return Announced(g, a.Addr()) && a.Port() == port
}

// Announced reports whether a is the private or public address of a gateway's Endpoint.
func Announced(g cable.Gateway, a netip.Addr) bool {
	return a.IsValid() && (a == g.PrivateIP || a == g.PublicIP)
}

// Unasked returns the address to use for a gateway that has not answered (yet), as Submariner
// does: the public address if the gateway expects NAT and has one, and otherwise the private
// address. translated reports whether NAT is expected.
func Unasked(g cable.Gateway) (to netip.Addr, translated bool) {
	if g.NAT && g.PublicIP.IsValid() {
		return g.PublicIP, true
	}
	return g.PrivateIP, false
}

// Attempt is a candidate with the result of the requests to it.
type Attempt struct {
	Candidate
	Answered   bool // by the intended gateway
	Translated bool // an address or a port was translated on the path
	RTT        time.Duration
	// Authentic reports whether the answer was authenticated with the key of the pair.
	Authentic bool
	// SeenAs is the translated source address of the request as the gateway saw it; the zero
	// Addr if it was not translated or the answer is not authentic.
	SeenAs netip.Addr
	// Size is the size of the request as it arrived, in bytes; 0 if the gateway does not
	// report it, so that the MTU of the path cannot be measured.
	Size int
	// Barred is the reason why no request may be sent to the address; empty if there is none.
	Barred string
	// Problem is an error, such as an invalid answer; empty if there is none.
	Problem string
}

// Choose returns the answered attempt with the most preferred kind; false if none was answered.
func Choose(attempts []Attempt) (Attempt, bool) {
	var best Attempt
	found := false
	for _, a := range attempts {
		if a.Answered && (!found || a.Kind < best.Kind) {
			best = a
			found = true
		}
	}
	return best, found
}

// Line formats the attempt, such as "192.0.2.7:4490 public: answered in 12 ms, address
// translated". waited is the time spent waiting for an answer; 0 if a preferred address
// answered at once.
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

// spell formats a duration with about two digits.
func spell(d time.Duration) string {
	switch ms := d.Seconds() * 1000; {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.2g s", d.Seconds())
}
