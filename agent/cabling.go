package agent

import (
	"net/netip"
	"time"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
)

// Using is what carries the traffic to one remote gateway, and since when. It is
// what one plan hands to the next: a pair changes its cable only once the new one
// is seen to work.
type Using struct {
	Driver string
	Device string
	Config cable.Config
	Shared cable.Config
	Policy string
	// Since is when it took over from Before; zero if there was none.
	Since time.Time
	// Before is kept up for a while, for what the other side still sends through it.
	Before *Using
}

// keptFor is for how long the old cable of a pair stays up after the new one took
// over: the other side, which saw the new one work when we did (a ping and its
// answer need both directions), takes no longer than that to move.
const keptFor = 10 * time.Second

// probeName names the probe of one of a pair's cables.
func probeName(peer, device string) string { return peer + " over " + device }

// cablings says which cables the gateway holds: for each peer the one that policy
// wants, and while that is not known to work, or has only just taken over, the one
// before. It returns what carries the traffic from now on.
//
// The old cable is given up at once if either side does not offer it any more:
// then somebody wants it gone.
func (v *view) cablings() ([]cable.Cable, map[string]Using) {
	var out []cable.Cable
	next := map[string]Using{}
	for _, want := range v.peers {
		using, had := v.snap.Using[want.Name]
		u := Using{Driver: want.Driver.Name(), Device: want.Device(), Config: want.Config, Shared: want.Shared, Policy: want.Policy}
		old, oldOK := v.revive(want.Peer, using, had)
		switch {
		case !oldOK || using.Device == want.Device():
			// Nothing before, or nothing that could be up beside it. What was kept stays.
			u.Since, u.Before = using.Since, using.Before
		case v.proven(want):
			before := using
			before.Before = nil
			u.Since, u.Before = v.snap.Now, &before
		default:
			want.Idle, using.Before = true, nil
			out = append(out, old, want)
			next[want.Name] = using
			continue
		}
		if u.Before != nil {
			kept, ok := v.revive(want.Peer, *u.Before, true)
			if ok && kept.Device() != want.Device() && v.snap.Now.Sub(u.Since) < keptFor {
				kept.Idle = true
				out = append(out, kept)
			} else {
				u.Before = nil
			}
		}
		out = append(out, want)
		next[want.Name] = u
	}
	return out, next
}

// revive returns the cable that was in use, if it is still possible.
func (v *view) revive(p cable.Peer, u Using, had bool) (cable.Cable, bool) {
	if !had {
		return cable.Cable{}, false
	}
	d := drivers.Find(u.Driver)
	if d == nil || !v.offers(d.Name()) || !p.Offers(d.Name()) {
		return cable.Cable{}, false
	}
	p.Config, p.Shared, p.Policy = u.Config, u.Shared, u.Policy
	if d.Refuses(v.local(), p) != nil {
		return cable.Cable{}, false
	}
	c := cable.Cable{Peer: p, Driver: d}
	return c, c.Device() == u.Device // else its settings are not known any more
}

// proven says that a cable answers pings.
func (v *view) proven(c cable.Cable) bool {
	return v.snap.Health[probeName(c.Name, c.Device())].Status == submarinerv1.Connected
}

// usingFromReport is what an agent that has just started takes over: what this
// gateway's last report says is in use, if it was the active one.
func usingFromReport(g *submarinerv1.Gateway) map[string]Using {
	out := map[string]Using{}
	if g == nil || g.Status.HAStatus != submarinerv1.HAStatusActive {
		return out
	}
	for _, c := range g.Status.Connections {
		if c.Device != "" && c.Status == submarinerv1.Connected {
			out[c.Endpoint.CableName] = Using{Driver: c.Driver, Device: c.Device, Policy: c.Policy}
		}
	}
	return out
}

// pathsFromReport is what a gateway found out about the ways to others, for those who
// look from afar.
func pathsFromReport(g *submarinerv1.Gateway) map[string]Path {
	out := map[string]Path{}
	for _, c := range g.Status.Connections {
		if ip, err := netip.ParseAddr(c.UsingIP); err == nil {
			out[c.Endpoint.CableName] = Path{Address: ip, NAT: c.UsingNAT, Unreachable: ip.String() != c.Endpoint.PrivateIP && ip.String() != c.Endpoint.PublicIP, MTU: c.PathMTU, Done: true, Attempts: c.Attempts}
		}
	}
	return out
}

// next is the cable that a pair is changing to from c; nil if it stays.
func (p Plan) next(c cable.Cable) *cable.Cable {
	if p.Using[c.Name].Before != nil {
		return nil // the idle one is what came before
	}
	for i, other := range p.cables {
		if other.Idle && other.Name == c.Name {
			return &p.cables[i]
		}
	}
	return nil
}
