package mesh

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cable/keys"
	"subctl/cable/natdiscovery"
)

// This file reads back, from the reports of gateways, what package report writes there: nothing
// else of a Memory outlives an agent.

// RecallRoute returns what the route agent of a node takes over: the cables of all gateways.
func RecallRoute(_ string, _ bool, reports []*submarinerv1.Gateway, now time.Time) role.Memory {
	return recall(reports, reports, now)
}

// recall returns what an agent that starts at a time takes over from the reports of
// gateways: all of them hold claims, those in from carry traffic.
func recall(all, from []*submarinerv1.Gateway, now time.Time) role.Memory {
	m := role.Memory{
		Incumbents: incumbentsIn(all),
		Using:      map[string]role.Using{},
		First:      map[string]role.CableChange{},
		Paths:      map[string]natdiscovery.Path{},
	}
	for _, g := range from {
		maps.Copy(m.Paths, pathsIn(g))
		maps.Copy(m.First, firstCablesIn(g))
		maps.Copy(m.Using, usingIn(g, now))
	}
	return m
}

// HoldsNoneOf reports whether the node's kernel holds nothing of what the node's gateway has last
// reported: the node has booted since, or there is no report. A report of an older version does not
// tell.
func HoldsNoneOf(s role.Snapshot, reports []*submarinerv1.Gateway) bool {
	i := slices.IndexFunc(reports, func(g *submarinerv1.Gateway) bool { return g.Name == s.Node })
	if i < 0 {
		return true
	}
	was := reports[i].Status.BootID
	return was != "" && s.BootID != "" && was != s.BootID
}

// RecallGateway takes over the cables of this node's gateway only: a gateway's cables are
// its own. A node that holds none has to find out whether the other ends still do.
func RecallGateway(node string, bare bool, reports []*submarinerv1.Gateway, now time.Time) role.Memory {
	own := slices.DeleteFunc(slices.Clone(reports), func(g *submarinerv1.Gateway) bool { return g.Name != node })
	m := recall(reports, own, now)
	m.Down = role.Healths{}
	m.Former = map[string]role.Using{}
	for _, g := range own {
		maps.Copy(m.Down, downIn(g))
		maps.Copy(m.Former, idleIn(g, now))
		m.Drain, m.DrainingSince = drainingIn(g)
	}
	if m.FreshBoot = bare; bare {
		maps.Copy(m.Former, m.Using)
		m.Using = map[string]role.Using{}
	}
	return m
}

// incumbentsIn returns the gateways of other clusters to which the reports have a cable,
// or the cable that they should have. It is not nil.
func incumbentsIn(reports []*submarinerv1.Gateway) []cable.Gateway {
	held := []cable.Gateway{}
	for _, r := range reports {
		for _, c := range r.Status.Connections {
			if g, err := cable.Parse(c.Endpoint); err == nil && c.Driver != "" {
				held = append(held, g)
			}
		}
	}
	return held
}

// usingIn returns what carries the traffic according to the last report of a gateway,
// whether it answers or not; nothing if there is no report. What is kept up
// beside it stays for as long as after a change.
func usingIn(g *submarinerv1.Gateway, now time.Time) map[string]role.Using {
	return cablesIn(g, false, now)
}

// idleIn returns the cables that carry nothing until they answer, of pairs that use no other,
// according to the last report of a gateway. It is all that a report has of Memory.Former.
func idleIn(g *submarinerv1.Gateway, now time.Time) map[string]role.Using {
	return cablesIn(g, true, now)
}

// cablesIn returns the idle cables of a gateway's last report, or those that carry the traffic. If
// there is no report, it returns none.
func cablesIn(g *submarinerv1.Gateway, idle bool, now time.Time) map[string]role.Using {
	out := map[string]role.Using{}
	if g == nil {
		return out
	}
	for _, c := range g.Status.Connections {
		if c.Idle != idle {
			continue
		}
		u, ok := usingOf(c.Endpoint.ClusterID, submarinerv1.PreviousCable{
			Driver:         c.Driver,
			Device:         c.Device,
			Policy:         c.Policy,
			Rule:           c.Rule,
			Settings:       c.Settings,
			PolicySettings: c.PolicySettings,
		})
		if !ok {
			continue // refused
		}
		u.PublicKey, _ = keys.ParsePublic(c.PublicKey) // the zero key: none
		if c.Before != nil {
			if before, ok := usingOf(u.Cluster, *c.Before); ok {
				u.Since = now
				u.Before = &before
			}
		}
		if c.ChangingSince != nil {
			u.Change = &role.CableChange{Driver: c.DesiredDriver, Since: c.ChangingSince.Time}
		}
		u.Silent = c.Silent
		out[c.Endpoint.CableName] = u
	}
	return out
}

// firstCablesIn returns since when pairs wait for their first cable, according to the last report
// of a gateway.
func firstCablesIn(g *submarinerv1.Gateway) map[string]role.CableChange {
	out := map[string]role.CableChange{}
	for _, c := range g.Status.Connections {
		if c.Idle && c.ChangingSince != nil {
			out[c.Endpoint.CableName] = role.CableChange{Driver: c.DesiredDriver, Since: c.ChangingSince.Time}
		}
	}
	return out
}

// drainingIn returns how far a gateway that leaves the service has got, and since when, according
// to its last report; the zero Time if it does not leave.
func drainingIn(g *submarinerv1.Gateway) (cable.Drain, time.Time) {
	if g.Status.DrainingSince == nil {
		return cable.InService, time.Time{}
	}
	if g.Status.Drain == submarinerv1.Drained {
		return cable.Drained, g.Status.DrainingSince.Time
	}
	return cable.Draining, g.Status.DrainingSince.Time
}

// downIn returns what frequent probes had found of the cables that were down according to the last
// report of a gateway, by name of the probe: see cableResult.detected.
func downIn(g *submarinerv1.Gateway) role.Healths {
	out := role.Healths{}
	for _, c := range g.Status.Connections {
		if c.DetectedBy == "" {
			continue
		}
		h := role.Health{Status: submarinerv1.ConnectionError, Message: c.StatusMessage, By: c.DetectedBy}
		if c.DetectedAt != nil {
			h.Since = c.DetectedAt.Time
		}
		out[role.ProbeName(c.Endpoint.CableName, c.Device)] = h
	}
	return out
}

// usingOf reads how a cable was made. It returns false if there was no cable, or one
// that this version cannot make.
func usingOf(cluster string, c submarinerv1.PreviousCable) (role.Using, bool) {
	d := drivers.Find(c.Driver)
	if d == nil || c.Device == "" ||
		errors.Join(cable.Config(c.Settings).Check(d), cable.Config(c.PolicySettings).Check(d)) != nil {
		return role.Using{}, false
	}
	return role.Using{
		Cluster: cluster,
		Driver:  d.Name(),
		Device:  c.Device,
		Policy:  c.Policy,
		Rule:    c.Rule,
		Config:  c.Settings,
		Shared:  c.PolicySettings,
	}, true
}

// pathsIn returns the paths to other gateways that a gateway reports.
func pathsIn(g *submarinerv1.Gateway) map[string]natdiscovery.Path {
	out := map[string]natdiscovery.Path{}
	for _, c := range g.Status.Connections {
		if ip, err := netip.ParseAddr(c.UsingIP); err == nil {
			out[c.Endpoint.CableName] = natdiscovery.Path{
				Address:     ip,
				NAT:         c.UsingNAT,
				InboundOnly: ip.String() != c.Endpoint.PrivateIP && ip.String() != c.Endpoint.PublicIP,
				MTU:         c.PathMTU,
				Done:        true,
				Attempts:    c.Attempts,
			}
		}
	}
	return out
}
