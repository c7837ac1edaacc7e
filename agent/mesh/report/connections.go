package report

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/keys"
)

// Connections returns the state of the cable to each remote gateway, for Gateway.status: see fit.
func Connections(p mesh.Plan, o role.Outcome) []submarinerv1.Connection {
	m := p.Mesh
	out := []submarinerv1.Connection{}
	before := lastContacts(role.List[*submarinerv1.Gateway](m.Snapshot))
	reported := reportedConnections(m.Snapshot)
	for i, c := range p.Installed {
		_, used := p.Using[c.Name]
		if c.Idle && used || p.IsRetiring(c) {
			continue
		}
		conn := submarinerv1.Connection{
			Endpoint:       boundedEndpoint(m.Cables.Endpoints[c.Name]),
			UsingIP:        c.Address.String(),
			UsingNAT:       c.NATed,
			Driver:         c.Driver.Name(),
			Device:         c.Device(),
			Policy:         c.Policy,
			Rule:           c.Rule,
			Implementation: m.Offer.Local.Engine(c.Driver.Properties().Engine).Name,
			MTU:            c.MTU(m.Offer.Local),
			PathMTU:        c.Peer.MTU,
			Attempts:       m.Snapshot.Paths[c.Name].Attempts,
			Settings:       settingsReported(c.Config),
			PolicySettings: settingsReported(c.Shared),
			Before:         previousCable(p.Using[c.Name].Before),
		}
		conn.Endpoint.Backend = conn.Driver
		conn.DesiredDriver = conn.Driver
		conn.DriverReason = role.Clip(m.Cables.StandInReasons[c.Name])
		r := result(p, o, i)
		conn.Status, conn.StatusMessage, conn.LatencyRTT = r.status()
		r.addCause(&conn)
		r.addDetection(&conn, reported[c.Name])
		r.addCounters(&conn)
		if n, ok := m.Snapshot.Drops[c.Cluster]; ok {
			conn.IsolationDrops = new(int64(min(n, math.MaxInt64)))
		}
		health, _, _ := r.health()
		conn.LastContact = lastContact(before[c.Name], conn, o, health)
		if c.PublicKey != (keys.PublicKey{}) {
			conn.PublicKey = c.PublicKey.String()
		}
		switch conn.Idle, conn.Silent = c.Idle, c.Silent; {
		case c.Idle:
			conn.Status, conn.StatusMessage = r.firstCableStatus()
		case c.Silent && o.Broken[c.Name] == nil:
			conn.StatusMessage = role.Clip(nothingSent + ". Likely cause: " + r.whySilent())
		}
		if why := m.Cables.KeptReasons[c.Name]; why != "" && conn.StatusMessage == "" {
			conn.StatusMessage = role.Clip(why)
		}
		r.addChange(&conn)
		r.setStayReason(&conn)
		is, reason := r.member(reported[c.Name])
		conn.Member = &is
		conn.MemberReason = reason
		out = append(out, conn)
	}
	for _, w := range m.Cables.Pending[:min(len(m.Cables.Pending), maxRefused)] {
		conn := submarinerv1.Connection{
			Status: submarinerv1.Connecting, StatusMessage: role.Clip(w.Err.Error()), Endpoint: boundedEndpoint(w.Spec),
			Attempts: m.Snapshot.Paths[w.Spec.CableName].Attempts, LastContact: before[w.Spec.CableName],
		}
		conn.Endpoint.Backend = "" // not decided
		out = append(out, conn)
	}
	refused := slices.DeleteFunc(slices.Clone(m.Cables.Refused),
		func(r mesh.Refusal) bool { return staysWithoutSlot(p, r.Spec) })
	for _, r := range refused[:min(len(refused), maxRefused)] {
		var wanted mesh.NoCable
		errors.As(r.Err, &wanted)
		out = append(out, submarinerv1.Connection{
			Driver:        wanted.Driver,
			DesiredDriver: wanted.Driver,
			Policy:        wanted.Policy,
			Rule:          wanted.Rule,
			Status:        submarinerv1.ConnectionError,
			StatusMessage: role.Clip("refused: " + r.Err.Error()),
			Endpoint:      boundedEndpoint(r.Spec),
			Attempts:      m.Snapshot.Paths[r.Spec.CableName].Attempts,
			LastContact:   before[r.Spec.CableName],
		})
	}
	return out
}

// lastContacts returns when remote gateways last answered according to the reports of this
// cluster's gateways, by cable name.
func lastContacts(reports []*submarinerv1.Gateway) map[string]*metav1.Time {
	out := map[string]*metav1.Time{}
	for _, g := range reports {
		for _, c := range g.Status.Connections {
			name := c.Endpoint.CableName
			out[name] = later(out[name], c.LastContact)
		}
	}
	return out
}

// lastContact returns when the remote gateway of a connection last answered: now if it answers
// probes, otherwise the last handshake or the last contact that was reported before; nil if
// never.
func lastContact(before *metav1.Time, c submarinerv1.Connection, o role.Outcome, h role.Health) *metav1.Time {
	if o.Broken[c.Endpoint.CableName] == nil && h.Status == submarinerv1.Connected {
		now := metav1.NewTime(o.Now.Truncate(time.Second))
		return &now
	}
	return later(before, c.LastHandshake)
}

// later returns the later of two times, of which nil is the earliest.
func later(a, b *metav1.Time) *metav1.Time {
	if a == nil || a.Before(b) {
		return b
	}
	return a
}

// How much of an endpoint's backend_config a report repeats.
const (
	maxConfig  = 100 // bytes of a key or a value
	maxConfigs = 20
)

// boundedEndpoint reduces what another cluster announces of its endpoint to what a report
// repeats: a Gateway must stay small enough to be written.
func boundedEndpoint(s submarinerv1.EndpointSpec) submarinerv1.EndpointSpec {
	var config map[string]string // nil if empty, as it is read back
	for _, k := range slices.Sorted(maps.Keys(s.BackendConfig)) {
		if v := s.BackendConfig[k]; len(k) <= maxConfig && len(v) <= maxConfig && len(config) < maxConfigs {
			if config == nil {
				config = map[string]string{}
			}
			config[k] = v
		}
	}
	s.BackendConfig = config
	if len(s.Subnets) > cable.MaxSubnets {
		s.Subnets = s.Subnets[:cable.MaxSubnets]
	}
	if s.Subnets == nil {
		s.Subnets = []string{}
	}
	return s
}

// previousCable returns what mesh.RecallGateway reads; nil if u is nil.
func previousCable(u *role.Using) *submarinerv1.PreviousCable {
	if u == nil {
		return nil
	}
	return &submarinerv1.PreviousCable{
		Driver:         u.Driver,
		Device:         u.Device,
		Policy:         u.Policy,
		Rule:           u.Rule,
		Settings:       settingsReported(u.Config),
		PolicySettings: settingsReported(u.Shared),
	}
}

// settingsReported returns settings as they are read back: nil if there are none.
func settingsReported(c cable.Config) map[string]string {
	if len(c) == 0 {
		return nil
	}
	return c
}

// staysWithoutSlot reports whether the pair with a gateway has no place for the cable that policy
// decides on, and uses the one from before.
func staysWithoutSlot(p mesh.Plan, e submarinerv1.EndpointSpec) bool {
	_, used := p.Using[e.CableName]
	return used &&
		slices.ContainsFunc(p.Mesh.Cables.NoSlot,
			func(c cable.Cable) bool { return c.Name == e.CableName && c.Cluster == e.ClusterID })
}

// setStayReason adds to a connection, whose pair has no place for the cable that policy decides on,
// that it stays until others work.
func (r cableResult) setStayReason(conn *submarinerv1.Connection) {
	noSlot := r.plan.Mesh.Cables.NoSlot
	i := slices.IndexFunc(noSlot, func(c cable.Cable) bool { return c.Name == r.cable.Name })
	if i < 0 {
		return
	}
	conn.DesiredDriver = noSlot[i].Driver.Name()
	if conn.Status == submarinerv1.Connected {
		conn.Status = submarinerv1.Connecting
		conn.StatusMessage = fmt.Sprintf(
			"changing to %s, which connects other gateways of the two clusters, but not these: traffic stays with %s until theirs works",
			conn.DesiredDriver, conn.Driver)
	}
}
