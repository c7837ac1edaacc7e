package mesh

import (
	"fmt"
	"maps"

	"subctl/agent/role"
	"subctl/cable"
	"subctl/dataplane"
)

// PlanGateway returns the plan of a gateway. The gateway holds the cables while it is active or a
// standby.
func PlanGateway(s role.Snapshot) (Plan, error) {
	var down role.Healths
	s.Health, down = s.Health.Recalling(s.Memory.Down)
	m, err := ofGateway(s)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Plan: role.Plan{State: dataplane.State{}}, Mesh: m, FreshBoot: freshBoot(s)}
	if !s.Standing.Active || m.Membership.Leaving() {
		return p, nil
	}
	p.Traffic = directTraffic(m)
	p.Again = p.Traffic.again
	p.acceptAgain()
	cabling := cable.Cabling{
		Local: m.Offer.Local, Peers: p.Installed, Blackholed: p.Blackholed, Siblings: p.Siblings, Detours: p.Detours,
		Globalnet: m.Offer.Translates.Elements, Clusters: m.Accepted.clusters(), FormerRoutes: s.FormerRoutes,
		Carried: m.Membership.Carried(), Here: m.Membership.Self.Pods,
	}
	if p.State, p.Links, err = cable.Plan(cabling); err != nil {
		return Plan{}, err
	}
	p.GroupMembers = groupMembers(p.State)
	if s.Facts.NoNextHopObjects {
		p.State = p.State.WithoutNexthops()
	}
	p.Probes = p.probes()
	maps.DeleteFunc(down, func(name string, _ role.Health) bool { return !p.Probes.Targets[name].Fast })
	p.leaveToPings(down)
	p.Probes.Known = down
	return p, nil
}

// groupMembers returns the next hops that the groups of a plan have for the networks of other
// clusters.
func groupMembers(state dataplane.State) map[uint32]bool {
	out := map[uint32]bool{}
	for _, o := range state {
		if g, ok := o.(dataplane.Group); ok &&
			(g.ID>>24 == dataplane.CableGroupID || g.ID>>24 == dataplane.ResilientCableGroupID) {
			for _, m := range g.Members {
				out[m.ID] = true
			}
		}
	}
	return out
}

// probes returns the addresses to ping: the other end of both cables of each pair that is changing
// its cable, and the health check IP of each gateway. If that does not answer any more, the other
// end of the cable is pinged, too, unless the cable encrypts: see silent. A cable without health
// checks is pinged until the gateways have agreed on keys, as WireGuard does so only if it has
// something to send. The other gateways of this cluster that may get packets are pinged all the
// time, as the API server may not answer when they get some; not often, as each ping costs, and
// only a second failure makes them get any.
func (p Plan) probes() role.Probes {
	m := p.Mesh
	hc := m.Membership.Submariner.Spec.HealthCheck()
	out := role.Probes{
		Interval: hc.Interval(),
		MaxLost:  int(hc.MaxPacketLossCount),
		Targets:  map[string]role.Target{},
		Echo:     dataplane.EchoPort,
	}
	for _, siblings := range p.Siblings {
		for _, n := range siblings {
			out.Targets[role.SiblingProbe(n)] = role.Target{
				IP:   cable.VTEPOf(dataplane.IntraVTEPNet, n.IP),
				From: cable.VTEPOf(dataplane.IntraVTEPNet, m.Membership.Self.IP),
			}
		}
	}
	from := m.Offer.Local.PodIP
	for i, c := range p.Installed {
		if p.IsRetiring(c) {
			continue
		}
		if c.Idle {
			t := role.Target{IP: p.Links[i].IP, From: p.Links[i].From, Eager: true}
			if turn := p.ChangeOf(c); turn.LeadsTo(asUsing(c)) {
				t.First = turn.ProbeAfter
			}
			out.Targets[role.ProbeName(c.Name, c.Device())] = t
			continue
		}
		if p.several[c.Cluster] {
			out.Targets[role.ProbeName(c.Name, c.Device())] = fastTarget(c, p.Links[i], c.MTU(m.Offer.Local))
			if c.HealthIP.IsValid() && from.IsValid() && hc.Enabled {
				out.Targets[c.Name] = role.Target{IP: c.HealthIP, From: from}
			}
			continue
		}
		if c.Silent || m.Snapshot.Health.Fails(c) && !c.Driver.Properties().Encrypts {
			out.Targets[role.ProbeName(c.Name, c.Device())] = role.Target{
				IP:    p.Links[i].IP,
				From:  p.Links[i].From,
				Eager: c.Silent,
			}
		}
		state, stateful := m.Snapshot.StateOf(p.Links[i])
		switch {
		case c.HealthIP.IsValid() && from.IsValid() && hc.Enabled:
			out.Targets[c.Name] = role.Target{IP: c.HealthIP, From: from}
		case stateful && state.Handshake.IsZero():
			out.Targets[role.ProbeName(c.Name, c.Device())] = role.Target{IP: p.Links[i].IP, From: p.Links[i].From}
		}
	}
	return out
}

// leaveToPings has pings decide whether a cable is up again, whatever has found that it is down, if
// the other gateway's version may be older than echoes: it announces no siblings, as newer ones do.
func (p Plan) leaveToPings(down role.Healths) {
	for _, c := range p.Installed {
		name := role.ProbeName(c.Name, c.Device())
		if h, known := down[name]; known && !c.TellsSiblings {
			h.By = role.ByPing
			down[name] = h
		}
	}
}

// fastTarget returns the other end of a cable to a cluster to which there are several ways, given
// the link and the MTU of the cable.
func fastTarget(c cable.Cable, l cable.Link, mtu int) role.Target {
	t := role.Target{
		IP:   l.IP,
		From: l.From,
		Who:  fmt.Sprintf("gateway %s of cluster %s", c.Host, c.Cluster),
		Fast: true,
	}
	if l.MAC != "" {
		t.Echo = role.Echo{Device: l.Device, MAC: l.MAC, MTU: mtu}
	}
	return t
}
