package agent

import (
	"errors"
	"net/netip"
	"time"

	"subctl/dataplane"
)

// How often an address is announced, and the time between. Older kernels ignore an announcement in
// the second after they have learned a MAC address for it, and a switch may drop what a device
// sends just after it is up.
const (
	announcements = 3
	announceGap   = 600 * time.Millisecond
)

// claim is an address that a device has.
type claim struct {
	device string
	index  int
	mac    string
	ip     netip.Addr
	open   bool // the CNF forwards
}

// claims holds the addresses that the pod has, and how they have been announced.
//
// A new pod has the fixed addresses of the one before it, and another MAC address. Its neighbours
// know the old one for half a minute and more, as long as something seems to answer there, so they
// are told. The CNF tells them twice. As soon as it runs: an uplink is online only if the answers
// to pings arrive, and the old pod forwards nothing any more. And when it begins to forward: where
// another pod still has the address, because its node is cut off, neighbours shall use the one that
// has begun to forward last. It does not defend an address against others: two pods with one
// address are a mistake, which fighting for it would make worse.
type claims struct {
	known map[claim]announced
	said  string // the last error
}

type announced struct {
	times int
	next  time.Time
}

// due returns what is to be announced now.
func (c *claims) due(n dataplane.Network, open bool, now time.Time) (out []claim) {
	known := map[claim]announced{} // without what the pod no longer has: it is announced when it is back
	for _, d := range n.Devices {
		if !d.Up {
			continue
		}
		for _, ip := range d.ARP {
			one := claim{d.Name, d.Index, d.MAC, ip, open}
			a := c.known[one]
			if a.times < announcements && !now.Before(a.next) {
				out = append(out, one)
				a = announced{a.times + 1, now.Add(announceGap)}
			}
			known[one] = a
		}
	}
	c.known = known
	return out
}

// next returns the time until something is to be announced again, at most so much.
func (c *claims) next(now time.Time, most time.Duration) time.Duration {
	for _, a := range c.known {
		if a.times < announcements {
			most = max(0, min(most, a.next.Sub(now)))
		}
	}
	return most
}

// announce announces what is due. Failures are logged, each once: the neighbours learn the
// addresses later.
func (a *Agent) announce(n dataplane.Network, open bool) {
	var errs []error
	for _, c := range a.claims.due(n, open, time.Now()) {
		errs = append(errs, a.Kernel.Announce(c.device, c.ip))
	}
	if err := errors.Join(errs...); err != nil && err.Error() != a.claims.said {
		a.claims.said = err.Error()
		a.Log.Warn("neighbours may send to the pod before this one for some time", "err", err)
	}
}
