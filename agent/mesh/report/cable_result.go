package report

import (
	"cmp"
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
)

// cableResult is what has become of a cable of a plan, for its connection in Gateway.status.
type cableResult struct {
	plan    mesh.Plan
	outcome role.Outcome
	number  int // of the cable in the plan
	cable   cable.Cable
	link    cable.Link
	broken  error // why the node does not hold the cable; nil if it does
	// state is what the kernel says of the cable. stateful is false if its driver keeps no state.
	state    dataplane.CableState
	stateful bool
}

// result returns what has become of a cable, by its number.
func result(p mesh.Plan, o role.Outcome, number int) cableResult {
	r := cableResult{
		plan:    p,
		outcome: o,
		number:  number,
		cable:   p.Installed[number],
		link:    p.Links[number],
		broken:  o.Broken[p.OutcomeName(number)],
	}
	r.state, r.stateful = p.Mesh.Snapshot.StateOf(r.link)
	return r
}

// fastProbeName returns the name of the frequent probe of the cable, which decides whether packets
// take it where there are several ways to its cluster; false if there is one way.
func (r cableResult) fastProbeName() (probe string, ok bool) {
	probe = role.ProbeName(r.cable.Name, r.cable.Device())
	return probe, r.plan.Probes.Targets[probe].Fast
}

// health returns the result of the health check. Where there is none, as the user has turned it off
// or an address is missing, the result of the frequent probe counts; probed is false if there is
// neither.
func (r cableResult) health() (h role.Health, probed, answered bool) {
	name := r.cable.Name
	if _, probed = r.plan.Probes.Targets[name]; !probed {
		if frequent, ok := r.fastProbeName(); ok {
			name = frequent
			probed = true
		}
	}
	h, answered = r.outcome.Health[name]
	return h, probed, answered
}

// status returns the state of the cable. A ping counts most, as it takes the path of the
// traffic. Where no ping is answered, the cable's own state tells why.
func (r cableResult) status() (submarinerv1.ConnectionStatus, string, *submarinerv1.LatencyRTT) {
	state := r.state
	h, probed, answered := r.health()
	switch {
	case r.broken != nil:
		return submarinerv1.ConnectionError, role.Clip(r.broken.Error()), h.RTT.Reported()
	case probed && answered && h.Status == submarinerv1.Connected:
		if state.Up && state.Message != "" { // the previous keys carry the traffic
			return h.Status, role.Clip("still with the previous settings: " + state.Message), h.RTT.Reported()
		}
		return h.Status, h.Message, h.RTT.Reported()
	case r.stateful && !state.Up:
		status := submarinerv1.Connecting
		if answered && h.Status == submarinerv1.ConnectionError {
			status = submarinerv1.ConnectionError
		}
		return status, role.Clip(cmp.Or(state.Message,
			"no keys were agreed on with the other side yet")), h.RTT.Reported()
	case !probed && r.stateful:
		return submarinerv1.Connected, "not probed, judged by its keys and counters: the health check is off, or one of the gateways has no address in its pod network", nil
	case !probed:
		return submarinerv1.Connected, "not probed: the health check is off, or one of the gateways has no address in its pod network", nil
	case !answered:
		return submarinerv1.Connecting, waitingForPing, nil
	}
	return h.Status, h.Message, h.RTT.Reported()
}

// waitingForPing is the message of a path whose first ping was not answered yet.
const waitingForPing = "waiting for the first answer to a ping"

// nothingSent is the message of a cable that carries nothing because it does not answer.
const nothingSent = "no traffic is sent until the cable answers, as the other end may use another one"

// firstCableStatus returns the state of a pair whose first cable has not answered yet.
func (r cableResult) firstCableStatus() (submarinerv1.ConnectionStatus, string) {
	health := r.outcome.Health[r.plan.OutcomeName(r.number)]
	if r.broken == nil && r.stateful && !r.state.Up && r.state.Message != "" {
		return cmp.Or(health.Status, submarinerv1.Connecting), role.Clip(r.state.Message)
	}
	if r.broken == nil && health.Status != submarinerv1.ConnectionError {
		return submarinerv1.Connecting, nothingSent
	}
	return submarinerv1.ConnectionError, role.Clip(nothingSent + ". Likely cause: " + r.likelyCause())
}

// addDetection adds to a connection what the frequent probes have found, where there are several
// ways to its cluster: the cable does not carry packets, although the other gateway may answer
// pings; or when that was so last. old is the connection as it was reported before; nil if it was
// not.
func (r cableResult) addDetection(conn, old *submarinerv1.Connection) {
	probe, ok := r.fastProbeName()
	if !ok || r.broken != nil {
		return
	}
	second := func(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
	switch h := r.outcome.Health[probe]; {
	case h.Status == submarinerv1.ConnectionError:
		conn.Status = h.Status
		conn.StatusMessage = role.Clip(h.Message)
		conn.DetectedBy = h.By
		if !h.Since.IsZero() {
			conn.DetectedAt = new(second(h.Since))
		}
	case !h.Since.IsZero() && !h.Back.IsZero():
		conn.LastFailure = &submarinerv1.CableFailure{
			DetectedBy:  h.By,
			DetectedAt:  second(h.Since),
			RecoveredAt: second(h.Back),
		}
	case old != nil:
		conn.LastFailure = old.LastFailure // which an agent before this one has found
	}
}

// addChange adds the change of cables that is under way to a connection.
func (r cableResult) addChange(conn *submarinerv1.Connection) {
	c := r.cable
	if t := r.plan.ChangeOf(c); t != nil {
		at := metav1.NewTime(t.Since.Truncate(time.Second))
		conn.ChangingSince = &at
	}
	stuck := r.stuckChange()
	switch next := r.plan.Next(c); {
	case next >= 0:
		conn.DesiredDriver = r.plan.Installed[next].Driver.Name()
		if conn.Status == submarinerv1.Connected {
			conn.Status = submarinerv1.Connecting
			conn.StatusMessage = cmp.Or(
				role.Clip(stuck),
				role.Clip(r.describeImpossibleChange(next)),
				fmt.Sprintf("changing to %s, which does not answer yet: traffic stays with %s until it does",
					conn.DesiredDriver, conn.Driver),
			)
		} else if stuck != "" {
			conn.StatusMessage = role.Clip(stuck)
		}
	case stuck != "":
		conn.StatusMessage = role.Clip(stuck)
	}
}

// describeImpossibleChange describes a change of a pair from the cable to another, number next of
// the plan, that cannot be set up; empty if it can.
func (r cableResult) describeImpossibleChange(next int) string {
	to := result(r.plan, r.outcome, next)
	if to.broken == nil {
		return ""
	}
	return fmt.Sprintf("traffic stays with %s: changing to %s is not possible: %v", r.cable.Driver.Name(),
		to.cable.Driver.Name(), to.broken)
}

// addCounters adds to a connection the counters and the time of the last handshake of an encrypted
// cable.
func (r cableResult) addCounters(c *submarinerv1.Connection) {
	state := r.state
	if state.Device == "" {
		return // not encrypted, or not known to the kernel yet
	}
	rx := int64(min(state.Rx, math.MaxInt64))
	tx := int64(min(state.Tx, math.MaxInt64))
	c.ReceivedBytes = &rx
	c.SentBytes = &tx
	if !state.Handshake.IsZero() {
		at := metav1.NewTime(state.Handshake.Truncate(time.Second))
		c.LastHandshake = &at
	}
}
