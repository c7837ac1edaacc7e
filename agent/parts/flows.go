package parts

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"subctl/agent/mesh"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/alarm"
)

// flows adds to snapshots how many connections of pods pass this gateway, and the use of the addresses to which it translates their sources.
type flows struct {
	Options
	remote, own, global []netip.Prefix // as of the last plan
	draining, several   bool

	last   mesh.Flows
	readAt time.Time
	took   time.Duration // the last count
	failed alarm.Alarm   // to count
	rigid  alarm.Alarm   // to tolerate
}

// Counting reads all conntrack entries of the node, of which there may be hundreds of thousands. So it is done this often,
// and takes at most 1 / flowsShare of the time, unless it would then be done less often than flowsAtLeast: whoever runs out of ports
// must know. While the gateway is draining, it is done more often.
const (
	flowsEvery    = 15 * time.Second
	flowsAtLeast  = time.Minute
	drainingEvery = 4 * time.Second
	flowsShare    = 250
	drainingShare = 25
)

func newFlows(o Options) *flows { return &flows{Options: o} }

// Start waits until ctx is done: the connections are counted with a snapshot.
func (f *flows) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Observe implements Observer. It follows the prober's: when something has failed, connections take other gateways.
func (f *flows) Observe(s *mesh.Snapshot) error {
	counter, ok := f.Cabler().(dataplane.FlowCounter)
	if !ok || !s.Standing.Active || s.Standing.Standby() || len(f.remote) == 0 {
		f.last = mesh.Flows{}
		return nil
	}
	if since := s.Now.Sub(f.readAt); since >= f.pause() || f.several && since >= drainingShare*f.took && f.failedSince(s) {
		start := time.Now()
		f.tolerate()
		now, err := counter.Flows(f.remote, f.own, f.global)
		f.readAt, f.took, f.last = s.Now, time.Since(start), mesh.Flows{}
		if err == nil {
			f.last = mesh.Flows{Known: true, Count: now.Count, Sources: now.Sources, At: s.Now}
			for _, flow := range now.Some {
				f.last.Some = append(f.last.Some, flow.String())
			}
		}
		f.failed.Report(f.Log, slog.LevelWarn, "counting the connections to other clusters", err)
	}
	s.Flows = f.last
	return nil
}

// tolerate lets connections come back that another gateway of the cluster is about to carry on.
func (f *flows) tolerate() {
	if t, ok := f.Cabler().(dataplane.FlowTolerator); ok && f.several {
		f.rigid.Report(f.Log, slog.LevelWarn, "connections that move to another gateway cannot come back", t.Tolerate(f.remote))
	}
}

// afterFailure is the time after a failure after which connections are read again: to read them takes tens of milliseconds, for which other
// failures, such as the other cables of the same gateway, would have to wait.
const afterFailure = time.Second

// failedSince reports whether a target has failed since the last count, afterFailure ago or earlier, and is still down.
func (f *flows) failedSince(s *mesh.Snapshot) bool {
	for _, h := range s.Health {
		if at := h.Since.Add(afterFailure); !h.Since.IsZero() && at.After(f.readAt) && !at.After(s.Now) {
			return true
		}
	}
	return false
}

// pause returns the time between two counts.
func (f *flows) pause() time.Duration {
	if f.draining {
		return max(drainingEvery, drainingShare*f.took)
	}
	return max(flowsEvery, min(flowsAtLeast, flowsShare*f.took))
}

// Act implements Actor.
func (f *flows) Act(_ mesh.Snapshot, p mesh.Plan, _ *mesh.Outcome) {
	if p.Mesh == nil {
		return
	}
	f.remote, f.own = p.Mesh.FlowsBetween()
	f.global = p.Mesh.Membership.Own.Global
	f.several = len(p.Mesh.Membership.Labelled) > 1
	f.draining = p.Mesh.Offer.Local.Drain == cable.Draining
}
