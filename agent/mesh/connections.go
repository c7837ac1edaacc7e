package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/keys"
	"subctl/dataplane"
)

// connections returns the state of the cable to each remote gateway, for Gateway.status.
func (m *Mesh) connections(p Plan, o Outcome) []submarinerv1.Connection {
	out := []submarinerv1.Connection{}
	before := lastContacts(List[*submarinerv1.Gateway](m.Snapshot))
	reported := m.reportedConnections()
	for i, c := range p.Held {
		_, used := p.Using[c.Name]
		if c.Idle && used {
			continue
		}
		conn := submarinerv1.Connection{
			Endpoint: bounded(m.Cables.Endpoints[c.Name]), UsingIP: c.Address.String(), UsingNAT: c.NATed,
			Driver: c.Driver.Name(), Device: c.Device(), Policy: c.Policy, Rule: c.Rule, Implementation: m.Offer.Local.Engine(c.Driver.Properties().Engine).Name, MTU: c.MTU(m.Offer.Local),
			PathMTU: c.Peer.MTU, Attempts: m.Snapshot.Paths[c.Name].Attempts,
			Settings: settingsReported(c.Config), PolicySettings: settingsReported(c.Shared), Before: p.Using[c.Name].Before.reported(),
		}
		conn.Endpoint.Backend, conn.DesiredDriver, conn.DriverReason = conn.Driver, conn.Driver, clip(m.Cables.InPlace[c.Name])
		conn.Status, conn.StatusMessage, conn.LatencyRTT = m.status(p, o, c, p.links[i])
		p.detected(&conn, o, i)
		m.count(&conn, p.links[i])
		if n, ok := m.Snapshot.Drops[c.Cluster]; ok {
			conn.IsolationDrops = new(int64(min(n, math.MaxInt64)))
		}
		conn.LastContact = contact(before[c.Name], conn, o, o.Health[c.Name])
		if c.PublicKey != (keys.PublicKey{}) {
			conn.PublicKey = c.PublicKey.String()
		}
		switch conn.Idle, conn.Silent = c.Idle, c.Silent; {
		case c.Idle:
			conn.Status, conn.StatusMessage = m.unanswered(p, o, i)
		case c.Silent && o.Broken[c.Name] == nil:
			conn.StatusMessage = clip(fmt.Sprintf("%s. Likely cause: gateway %s of cluster %s is down; or %s", nothingSent, c.Host, c.Cluster, m.likelyCause(nil, c, p.links[i])))
		}
		if why := m.Cables.Kept[c.Name]; why != "" && conn.StatusMessage == "" {
			conn.StatusMessage = clip(why)
		}
		m.changing(&conn, p, o, i)
		is, reason := m.member(p, o, i, reported[c.Name])
		conn.Member, conn.MemberReason = &is, reason
		out = append(out, conn)
	}
	for _, w := range m.Cables.Waiting[:min(len(m.Cables.Waiting), maxRefused)] {
		conn := submarinerv1.Connection{
			Status: submarinerv1.Connecting, StatusMessage: clip(w.Err.Error()), Endpoint: bounded(w.Spec),
			Attempts: m.Snapshot.Paths[w.Spec.CableName].Attempts, LastContact: before[w.Spec.CableName],
		}
		conn.Endpoint.Backend = "" // not decided
		out = append(out, conn)
	}
	refused := m.Cables.Refused
	for _, r := range refused[:min(len(refused), maxRefused)] {
		var wanted noCable
		errors.As(r.Err, &wanted)
		out = append(out, submarinerv1.Connection{
			Driver: wanted.driver, DesiredDriver: wanted.driver, Policy: wanted.policy, Rule: wanted.rule,
			Status: submarinerv1.ConnectionError, StatusMessage: clip("refused: " + r.Err.Error()), Endpoint: bounded(r.Spec),
			Attempts: m.Snapshot.Paths[r.Spec.CableName].Attempts, LastContact: before[r.Spec.CableName],
		})
	}
	return out
}

// detected adds what the frequent probes have found to the connection of cable number i, where there are several ways to its
// cluster: the cable does not carry packets, although the other gateway may answer pings.
func (p Plan) detected(conn *submarinerv1.Connection, o Outcome, i int) {
	probe := probeName(p.Held[i].Name, p.Held[i].Device())
	h := o.Health[probe]
	if !p.Probes.Targets[probe].Fast || h.Status != submarinerv1.ConnectionError || o.Broken[p.nameOf(i)] != nil {
		return
	}
	conn.Status, conn.StatusMessage, conn.DetectedBy = h.Status, clip(h.Message), h.By
	if !h.Since.IsZero() {
		conn.DetectedAt = &metav1.Time{Time: h.Since.Truncate(time.Second)}
	}
}

// changing adds the change of cables that is under way to the connection of cable number i.
func (m *Mesh) changing(conn *submarinerv1.Connection, p Plan, o Outcome, i int) {
	c := p.Held[i]
	if t := p.turn(c); t != nil {
		at := metav1.NewTime(t.Since.Truncate(time.Second))
		conn.ChangingSince = &at
	}
	stuck := m.stuck(p, o, i)
	switch next := p.next(c); {
	case next >= 0:
		conn.DesiredDriver = p.Held[next].Driver.Name()
		if conn.Status == submarinerv1.Connected {
			conn.Status = submarinerv1.Connecting
			conn.StatusMessage = cmp.Or(clip(stuck), clip(p.impossible(o, c, next)), fmt.Sprintf("changing to %s, which does not answer yet: traffic stays with %s until it does", conn.DesiredDriver, conn.Driver))
		} else if stuck != "" {
			conn.StatusMessage = clip(stuck)
		}
	case stuck != "":
		conn.StatusMessage = clip(stuck)
	}
}

// impossible describes a change of a pair from a cable to another, number next of the plan, that
// cannot be set up; empty if it can.
func (p Plan) impossible(o Outcome, from cable.Cable, next int) string {
	why := o.Broken[p.nameOf(next)]
	if why == nil {
		return ""
	}
	return fmt.Sprintf("traffic stays with %s: changing to %s is not possible: %v", from.Driver.Name(), p.Held[next].Driver.Name(), why)
}

// status returns the state of one cable. A ping counts most, as it takes the path of the
// traffic. Where no ping is answered, the cable's own state tells why.
func (m *Mesh) status(p Plan, o Outcome, c cable.Cable, l cable.Link) (submarinerv1.ConnectionStatus, string, *submarinerv1.LatencyRTT) {
	state, stateful := m.Snapshot.stateOf(l)
	_, probed := p.Probes.Targets[c.Name]
	h, answered := o.Health[c.Name]
	broken := o.Broken[c.Name]
	switch {
	case broken != nil:
		return submarinerv1.ConnectionError, clip(broken.Error()), h.RTT.reported()
	case probed && answered && h.Status == submarinerv1.Connected:
		if state.Up && state.Message != "" { // keys of before carry the traffic
			return h.Status, clip("still with the previous settings: " + state.Message), h.RTT.reported()
		}
		return h.Status, h.Message, h.RTT.reported()
	case stateful && !state.Up:
		status := submarinerv1.Connecting
		if answered && h.Status == submarinerv1.ConnectionError {
			status = submarinerv1.ConnectionError
		}
		return status, clip(cmp.Or(state.Message, "no keys were agreed on with the other side yet")), h.RTT.reported()
	case !probed && stateful:
		return submarinerv1.Connected, "not probed, judged by its keys and counters: the health check is off, or one of the gateways has no address in its pod network", nil
	case !probed:
		return submarinerv1.Connected, "not probed: the health check is off, or one of the gateways has no address in its pod network", nil
	case !answered:
		return submarinerv1.Connecting, waitingForPing, nil
	}
	return h.Status, h.Message, h.RTT.reported()
}

// waitingForPing is the message of a path whose first ping was not answered yet.
const waitingForPing = "waiting for the first answer to a ping"

// nothingSent is the message of a cable that carries nothing because it does not answer.
const nothingSent = "no traffic is sent until the cable answers, as the other end may use another one"

// unanswered returns the state of a pair whose first cable has not answered yet.
func (m *Mesh) unanswered(p Plan, o Outcome, i int) (submarinerv1.ConnectionStatus, string) {
	name := p.nameOf(i)
	broken := o.Broken[name]
	if state, stateful := m.Snapshot.stateOf(p.links[i]); broken == nil && stateful && !state.Up && state.Message != "" {
		return cmp.Or(o.Health[name].Status, submarinerv1.Connecting), clip(state.Message)
	}
	if broken == nil && o.Health[name].Status != submarinerv1.ConnectionError {
		return submarinerv1.Connecting, nothingSent
	}
	return submarinerv1.ConnectionError, clip(nothingSent + ". Likely cause: " + m.likelyCause(broken, p.Held[i], p.links[i]))
}

// stateOf returns what the kernel says of a cable; false if its driver keeps no state.
func (s Snapshot) stateOf(l cable.Link) (dataplane.CableState, bool) {
	for _, c := range s.Cables {
		if c.Device == l.StateDevice && c.Peer == l.State {
			return c, true
		}
	}
	return dataplane.CableState{}, l.State != ""
}

// count adds the counters and the time of the last handshake of an encrypted cable.
func (m *Mesh) count(c *submarinerv1.Connection, l cable.Link) {
	state, _ := m.Snapshot.stateOf(l)
	if state.Device == "" {
		return // not encrypted, or not known to the kernel yet
	}
	rx, tx := int64(min(state.Rx, math.MaxInt64)), int64(min(state.Tx, math.MaxInt64))
	c.ReceivedBytes, c.SentBytes = &rx, &tx
	if !state.Handshake.IsZero() {
		at := metav1.NewTime(state.Handshake.Truncate(time.Second))
		c.LastHandshake = &at
	}
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

// contact returns when the remote gateway of a connection last answered: now if it answers
// pings, otherwise the last handshake or the last contact that was reported before; nil if
// never.
func contact(before *metav1.Time, c submarinerv1.Connection, o Outcome, h Health) *metav1.Time {
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

// bounded reduces what another cluster announces of its endpoint to what a report
// repeats: a Gateway must stay small enough to be written.
func bounded(s submarinerv1.EndpointSpec) submarinerv1.EndpointSpec {
	config := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(s.BackendConfig)) {
		if v := s.BackendConfig[k]; len(k) <= maxConfig && len(v) <= maxConfig && len(config) < maxConfigs {
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
