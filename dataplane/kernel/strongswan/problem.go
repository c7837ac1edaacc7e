//go:build linux

package strongswan

import "strings"

// Problem is the reason why a tunnel does not come up.
type Problem string

// The problems. The text before the colon is the name of the IKEv2 notification (RFC
// 7296, section 3.10.1), where there is one.
const (
	WrongKey      Problem = "AUTHENTICATION_FAILED: the key differs"
	NoKey         Problem = "AUTHENTICATION_FAILED: no key for the identity of the other end"
	WrongCert     Problem = "AUTHENTICATION_FAILED: the other end does not accept the certificate of this end: it has expired, is of an authority that the other end does not trust, or lacks the name that the other end expects"
	Untrusted     Problem = "AUTHENTICATION_FAILED: this end does not accept the certificate of the other end: it has expired, is of an authority that is not in shared_ca, or lacks the name that this end expects"
	Refused       Problem = "NO_PROPOSAL_CHOSEN: refused by the other end"
	NoProposal    Problem = "NO_PROPOSAL_CHOSEN: refused by this end"
	OtherNetworks Problem = "TS_UNACCEPTABLE: the other end has other traffic selectors, or cannot use these: its own status says so"
	NoAddress     Problem = "TS_UNACCEPTABLE: the other end selects a part of a local network in which this end has no address, which ESP in userspace needs: give both ends the same networks"
	NoCipher      Problem = "the kernel lacks the cipher"
	NoAnswer      Problem = "no answer from the other end"
)

// signs are texts in the daemon's log, and the problems that they are signs of.
var signs = []struct {
	log     string
	problem Problem
}{
	{"received AUTHENTICATION_FAILED", WrongKey},
	{"MAC mismatched", WrongKey},
	{"no shared key found", NoKey},
	{"no trusted ", Untrusted},
	{"signature validation failed", Untrusted},
	{"constraint checking failed", Untrusted},
	{"received NO_PROPOSAL_CHOSEN", Refused},
	{"no acceptable proposal found", NoProposal},
	{"IPsec SA (SAD) in kernel", NoCipher},
	{"received TS_UNACCEPTABLE", OtherNetworks},
	{"error installing route with policy", NoAddress},
	{"giving up after", NoAnswer},
}

// problem returns the problem that a line of the daemon's log is a sign of, or "" if it is
// a sign of none, as most lines are.
func problem(line string) Problem {
	for _, s := range signs {
		if strings.Contains(line, s.log) {
			return s.problem
		}
	}
	return ""
}
