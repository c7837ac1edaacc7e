//go:build linux

package kernel

import (
	"strings"

	"github.com/strongswan/govici/vici"
)

// listen hears what charon logs, and keeps what keeps a connection from coming up.
func (k *keeper) listen() {
	s, err := k.charon.dial(0)
	if err != nil {
		return
	}
	events := make(chan vici.Event, 64)
	s.NotifyEvents(events)
	if err := s.Subscribe("log"); err != nil {
		return
	}
	defer s.Close()
	for {
		select {
		case <-k.stop:
			return
		case e, ok := <-events:
			if !ok {
				return
			}
			if why := complaint(str(e.Message, "msg")); why != "" {
				k.mu.Lock()
				k.problems[str(e.Message, "ikesa-name")] = why
				k.mu.Unlock()
			}
		}
	}
}

// complaints are what charon logs when a tunnel does not come up, and what to tell
// people.
var complaints = []struct{ log, tell string }{
	{"received AUTHENTICATION_FAILED", badKey},
	{"MAC mismatched", badKey},
	{"no shared key found", "AUTHENTICATION_FAILED: the other side says it is a gateway that this one has no key for"},
	{"received NO_PROPOSAL_CHOSEN", "NO_PROPOSAL_CHOSEN: the other side does not know this gateway yet, or accepts none of its proposals: both need one in common in ikeProposals and espProposals"},
	{"no acceptable proposal found", "NO_PROPOSAL_CHOSEN: none of the other side's proposals is accepted here: both need one in common in ikeProposals and espProposals"},
	{"IPsec SA (SAD) in kernel", "this node cannot encrypt as was agreed on: it needs other ones in espProposals, such as the default"},
	{"received TS_UNACCEPTABLE", "TS_UNACCEPTABLE: the other side has other networks in mind for this tunnel"},
	{"giving up after", "no answer from the other side: is its UDP port reachable, and its IPsec running?"},
}

const badKey = "AUTHENTICATION_FAILED: the pair key differs"

// complaint makes of a line of charon's log what to tell people; nothing of most.
func complaint(log string) string {
	for _, c := range complaints {
		if strings.Contains(log, c.log) {
			return c.tell
		}
	}
	return ""
}
