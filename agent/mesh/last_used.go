package mesh

import (
	"maps"
	"slices"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// asUsing returns how a cable is made.
func asUsing(c cable.Cable) role.Using {
	return role.Using{
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
	snapshot role.Snapshot
	of       map[string]role.Using // by cluster; nil until it is needed
}

// by returns what carries the traffic to a gateway. If the gateway is new, or this one is, it
// returns what carries, or last carried, the traffic between other gateways of the two clusters; it
// is silent if the cable to one of them is. What this gateway has reported does not count: it is in
// Memory.Using, or in Memory.Former.
func (l *lastUsed) by(g cable.Gateway) (role.Using, bool) {
	using := l.snapshot.Memory.Using
	if u, ok := using[g.Name]; ok {
		return u, true
	}
	if l.of == nil {
		l.of = map[string]role.Using{}
		add := func(using map[string]role.Using) {
			for _, name := range slices.Sorted(maps.Keys(using)) {
				u := using[name]
				u.Silent = u.Silent || l.of[u.Cluster].Silent
				l.of[u.Cluster] = u
			}
		}
		for _, report := range role.List[*submarinerv1.Gateway](l.snapshot) {
			if report.Name != l.snapshot.Node {
				add(usingIn(report, l.snapshot.Now))
			}
		}
		add(using)
	}
	u, ok := l.of[g.Cluster]
	return u, ok
}
