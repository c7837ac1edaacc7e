package mesh

import (
	"maps"
	"slices"
	"time"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/keys"
)

// Using is the cable that carries the traffic to one remote gateway. One plan hands it to the
// next: a pair changes its cable only once the new one is known to work.
type Using struct {
	Cluster string // of the remote gateway
	Driver  string
	Device  string
	Config  cable.Config
	Shared  cable.Config
	Policy  string
	Rule    int // of the policy, counted from 1
	// PublicKey is the public key of the other cluster; the zero PublicKey if it has none.
	PublicKey keys.PublicKey
	// Since is the time when the cable took over from Before; zero if there was none.
	Since time.Time
	// Before is kept up for a while, for packets that the other end still sends
	// through it.
	Before *Using
	// Turn is the change of the cable that is under way; nil if there is none.
	Turn *Turn
	// Silent reports whether the cable has stopped answering: see silent.
	Silent bool
}

// using returns how a cable is made.
func using(c cable.Cable) Using {
	return Using{
		Cluster:   c.Cluster,
		Driver:    c.Driver.Name(),
		Device:    c.Device(),
		Config:    c.Config,
		Shared:    c.Shared,
		Policy:    c.Policy,
		Rule:      c.Rule,
		PublicKey: c.PublicKey,
	}
}

// lastUsed finds what carries, or last carried, the traffic to other gateways.
type lastUsed struct {
	snapshot Snapshot
	of       map[string]Using // by cluster; nil until it is needed
}

// by returns what carries the traffic to a gateway. If the gateway is new, or this one is, it
// returns what carries, or last carried, the traffic between other gateways of the two clusters; it
// is silent if the cable to one of them is. What this gateway has reported does not count: it is in
// Memory.Using, or in Memory.Former.
func (l *lastUsed) by(g cable.Gateway) (Using, bool) {
	using := l.snapshot.Memory.Using
	if u, ok := using[g.Name]; ok {
		return u, true
	}
	if l.of == nil {
		l.of = map[string]Using{}
		add := func(using map[string]Using) {
			for _, name := range slices.Sorted(maps.Keys(using)) {
				u := using[name]
				u.Silent = u.Silent || l.of[u.Cluster].Silent
				l.of[u.Cluster] = u
			}
		}
		for _, report := range List[*submarinerv1.Gateway](l.snapshot) {
			if report.Name != l.snapshot.Node {
				add(usingIn(report, l.snapshot.Now))
			}
		}
		add(using)
	}
	u, ok := l.of[g.Cluster]
	return u, ok
}
