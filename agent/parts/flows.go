package parts

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"subctl/agent/mesh"
	"subctl/agent/role"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/alarm"
	"subctl/internal/wake"
)

// flowsIdle is the time between looks for networks to count while there are none; new ones do not
// wait for it.
const flowsIdle = time.Hour

// flows adds to snapshots how many connections of pods pass this gateway, and the use of the
// addresses to which it translates their sources. If the cluster has other gateways, it also lets
// connections come back that one of them has carried.
//
// Only Start's goroutine reads connections: that can take seconds, in which the loop must be able
// to take a gateway that has failed out of use.
type flows struct {
	Options
	wake   wake.Signal // the time of the next reading may have changed
	young  newFlowWatch
	failed alarm.Alarm // to count
	rigid  alarm.Alarm // to let connections come back

	mu       sync.Mutex            // held for moments only
	kernel   dataplane.FlowCounter // nil while this gateway carries no connections of others
	query    dataplane.FlowQuery   // as of the last plan; its prefixes are never changed in place
	draining bool
	begun    []netip.Prefix // the networks when draining began
	changes  changes
	last     role.Flows
	readAt   time.Time     // when the last reading began
	took     time.Duration // the last reading
	dropped  bool          // there is no result, because what is counted is another
	version  int           // of what is counted
}

// Counting reads all conntrack entries of the node, of which there may be hundreds of thousands. So
// it is done this often, and takes at most 1 / flowsShare of the time, unless it would then be done
// less often than flowsAtLeast: whoever runs out of ports must know. While the gateway is draining,
// it is done more often.
const (
	flowsEvery    = 15 * time.Second
	flowsAtLeast  = time.Minute
	drainingEvery = 4 * time.Second
	flowsShare    = 250
	drainingShare = 25
)

// afterFailure is the time after which connections are read once a target has failed, or has
// answered again: a reading keeps a processor busy that programs which follow the failure need, and
// what moves to another gateway has begun to move by then.
const afterFailure = time.Second

func newFlows(o Options) *flows { return &flows{Options: o, wake: wake.NewSignal()} }

// Start reads connections until ctx is done.
func (f *flows) Start(ctx context.Context) error {
	timer := time.NewTimer(flowsIdle)
	defer timer.Stop()
	for ctx.Err() == nil {
		f.young.follow(ctx, f)
		at := f.next()
		if !at.IsZero() && !at.After(time.Now()) {
			f.read()
			continue
		}
		timer.Reset(flowsIdle)
		if !at.IsZero() {
			timer.Reset(time.Until(at))
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-f.wake:
		}
	}
	return nil
}

// isNeeded reports whether there is something to count.
func (f *flows) isNeeded() bool { return f.kernel != nil && len(f.query.Networks) > 0 }

// next returns when connections are to be read; the zero time if they are not.
func (f *flows) next() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.isNeeded() {
		return time.Time{}
	}
	regular := f.readAt.Add(f.pause())
	rested := f.readAt.Add(drainingShare * f.took)
	switch {
	case f.dropped:
		return earlier(regular, rested)
	case f.query.Tolerate && !f.changes.first.IsZero():
		return earlier(regular, later(f.changes.first.Add(afterFailure), rested))
	}
	return regular
}

// pause returns the time between two counts.
func (f *flows) pause() time.Duration {
	if f.draining {
		return max(drainingEvery, drainingShare*f.took)
	}
	return max(flowsEvery, min(flowsAtLeast, flowsShare*f.took))
}

// read reads connections. The loop learns of the result with its next snapshot; it runs soon if
// somebody waits for the result.
func (f *flows) read() {
	start := time.Now()
	f.mu.Lock()
	kernel := f.kernel
	query := f.query
	version := f.version
	unknown := !f.last.Known
	if !f.isNeeded() {
		f.mu.Unlock()
		return
	}
	f.readAt = start
	f.dropped = false
	f.changes.removeFollowed(start)
	f.mu.Unlock()

	now, err := kernel.Flows(query)
	f.failed.Report(f.Log, slog.LevelWarn, "counting the connections to other clusters", err)
	if err == nil {
		f.rigid.Report(f.Log, slog.LevelWarn, "connections that move to another gateway cannot come back", now.Rigid)
	}

	f.mu.Lock()
	f.took = time.Since(start)
	valid := version == f.version
	if valid {
		f.last = counted(now, err, start)
	}
	awaited := valid && f.last.Known && (unknown || f.draining)
	f.mu.Unlock()
	if awaited {
		f.Trigger()
	}
}

// counted returns the result of a reading.
func counted(now dataplane.Flows, err error, at time.Time) role.Flows {
	if err != nil {
		return role.Flows{}
	}
	out := role.Flows{Known: true, Count: now.Count, Sources: now.Sources, At: at}
	for _, flow := range now.Some {
		out.Some = append(out.Some, flow.String())
	}
	return out
}

// tolerator returns what lets new connections come back; nil if nothing has to, or can.
func (f *flows) tolerator() dataplane.FlowTolerator {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.isNeeded() || !f.query.Tolerate {
		return nil
	}
	t, _ := f.kernel.(dataplane.FlowTolerator)
	return t
}

// forgetResult forgets the result, also of a reading that has begun.
func (f *flows) forgetResult() { f.last, f.dropped, f.version = role.Flows{}, true, f.version+1 }

// Observe implements Observer. It follows the prober's.
func (f *flows) Observe(s *role.Snapshot) error {
	kernel, _ := f.Cabler().(dataplane.FlowCounter)
	if !s.Standing.Active || s.Standing.Standby() {
		kernel = nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kernel != nil && kernel == nil {
		f.forgetResult()
	}
	f.kernel = kernel
	f.noteHealth(s)
	s.Flows = f.last
	return nil
}

// Refresh implements Prober: connections are read after a failure also while the loop waits for the
// API server.
func (f *flows) Refresh(s *role.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noteHealth(s)
}

// noteHealth takes what probes have found.
func (f *flows) noteHealth(s *role.Snapshot) {
	for _, h := range s.Health {
		f.changes.add(h.Since, f.readAt)
		f.changes.add(h.Back, f.readAt)
	}
	f.wake.Send()
}

// Act implements Actor.
func (f *flows) Act(_ role.Snapshot, p role.Plan, _ *role.Outcome) {
	m := mesh.PlanOf(p).Mesh
	if m == nil {
		return
	}
	remote, own := m.FlowsBetween()
	f.setQuery(dataplane.FlowQuery{
		Networks: remote, Except: own, Sources: slices.Clone(m.Membership.Own.Global),
		Tolerate: len(m.Membership.Labelled) > 1,
	}, m.Offer.Local.Drain == cable.Draining)
}

// setQuery takes what is to be counted from now on. A result that may lack connections is dropped;
// one that has some too many, because a cluster has left, is used until the next reading.
//
// A gateway that is draining gets no new connections once the others know that, and the drain
// depends only on what is counted from then on. So networks that are new drop no result then, and
// those that there were when it began are counted as long as it lasts: a cluster that changes its
// networks all the time does not keep the drain from ending.
func (f *flows) setQuery(q dataplane.FlowQuery, draining bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.young.set(q.Networks)
	if draining && !f.draining {
		f.begun = q.Networks
	}
	more := dataplane.Without(q.Networks, f.query.Networks)
	if draining && len(q.Networks) > 0 {
		q.Networks = union(q.Networks, f.begun)
		if f.draining {
			more = nil
		}
	}
	if len(q.Networks) == 0 || len(more) > 0 || !slices.Equal(q.Except, f.query.Except) ||
		!slices.Equal(q.Sources, f.query.Sources) {
		f.forgetResult()
	}
	f.query = q
	f.draining = draining
	f.wake.Send()
}

// changes are the failures and recoveries of targets that no reading has followed: the first and
// the last of them, so that one that fails all the time does not put off the reading.
type changes struct{ first, last time.Time }

// add adds a change at a time, unless it is the zero time, or a reading that began at readAt has
// followed it.
func (c *changes) add(at, readAt time.Time) {
	if at.IsZero() || !at.Add(afterFailure).After(readAt) {
		return
	}
	c.first, c.last = earlier(c.first, at), later(c.last, at)
}

// removeFollowed removes what a reading follows that begins at a time.
func (c *changes) removeFollowed(start time.Time) {
	rest := changes{}
	rest.add(c.last, start)
	*c = rest
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// union returns the networks that are in one of two sorted lists, sorted.
func union(a, b []netip.Prefix) []netip.Prefix {
	out := append(slices.Clone(a), dataplane.Without(b, a)...)
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// earlier returns the earlier of two times. The zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
