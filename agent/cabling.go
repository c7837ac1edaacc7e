package agent

import (
	"errors"
	"net/netip"
	"time"

	"subctl/agent/discovery"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
)

// Using is what carries the traffic to one remote gateway, and since when. It is
// what one plan hands to the next: a pair changes its cable only once the new one
// is seen to work.
type Using struct {
	Cluster string // of the remote gateway
	Driver  string
	Device  string
	Config  cable.Config
	Shared  cable.Config
	Policy  string
	// Since is when it took over from Before; zero if there was none.
	Since time.Time
	// Before is kept up for a while, for what the other side still sends through it.
	Before *Using
}

// using is how a cable is made.
func using(c cable.Cable) Using {
	return Using{Cluster: c.Cluster, Driver: c.Driver.Name(), Device: c.Device(), Config: c.Config, Shared: c.Shared, Policy: c.Policy}
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
		was, had := v.snap.Using[want.Name]
		u := using(want)
		old, oldOK := v.revive(want.Peer, was, had)
		switch {
		case !oldOK || was.Device == u.Device:
			// Nothing before, or nothing that could be up beside it. What was kept stays.
			u.Since, u.Before = was.Since, was.Before
		case v.proven(want):
			before := was
			before.Before = nil
			u.Since, u.Before = v.snap.Now, &before
		default:
			want.Idle, was.Before = true, nil
			out = append(out, old, want)
			next[want.Name] = was
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

// usingFromReport is what an agent that starts at a time takes over: what this
// gateway's last report says carries the traffic, whether it answers or not, if it was
// the active one. What is kept up beside it stays for as long as after a change.
func usingFromReport(g *submarinerv1.Gateway, now time.Time) map[string]Using {
	out := map[string]Using{}
	if g == nil || g.Status.HAStatus != submarinerv1.HAStatusActive {
		return out
	}
	for _, c := range g.Status.Connections {
		u, ok := usingFrom(c.Endpoint.ClusterID, submarinerv1.PreviousCable{
			Driver: c.Driver, Device: c.Device, Policy: c.Policy, Settings: c.Settings, PolicySettings: c.PolicySettings,
		})
		if !ok {
			continue // refused
		}
		if c.Before != nil {
			if before, ok := usingFrom(u.Cluster, *c.Before); ok {
				u.Since, u.Before = now, &before
			}
		}
		out[c.Endpoint.CableName] = u
	}
	return out
}

// usingFrom reads how a cable was made; false if there was none, or none that this
// version can make.
func usingFrom(cluster string, c submarinerv1.PreviousCable) (Using, bool) {
	d := drivers.Find(c.Driver)
	if d == nil || c.Device == "" || errors.Join(cable.Config(c.Settings).Check(d), cable.Config(c.PolicySettings).Check(d)) != nil {
		return Using{}, false
	}
	return Using{Cluster: cluster, Driver: d.Name(), Device: c.Device, Policy: c.Policy, Config: c.Settings, Shared: c.PolicySettings}, true
}

// reported is what usingFrom reads; nil of nothing.
func (u *Using) reported() *submarinerv1.PreviousCable {
	if u == nil {
		return nil
	}
	return &submarinerv1.PreviousCable{
		Driver: u.Driver, Device: u.Device, Policy: u.Policy, Settings: settingsReported(u.Config), PolicySettings: settingsReported(u.Shared),
	}
}

// settingsReported are settings as they are read back: nil if there are none.
func settingsReported(c cable.Config) map[string]string {
	if len(c) == 0 {
		return nil
	}
	return c
}

// pathsFromReport is what a gateway found out about the paths to others, for those who
// look from afar.
func pathsFromReport(g *submarinerv1.Gateway) map[string]discovery.Path {
	out := map[string]discovery.Path{}
	for _, c := range g.Status.Connections {
		if ip, err := netip.ParseAddr(c.UsingIP); err == nil {
			out[c.Endpoint.CableName] = discovery.Path{Address: ip, NAT: c.UsingNAT, InboundOnly: ip.String() != c.Endpoint.PrivateIP && ip.String() != c.Endpoint.PublicIP, MTU: c.PathMTU, Done: true, Attempts: c.Attempts}
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
