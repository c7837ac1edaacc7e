package agent

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"subctl/agent/parts"
	"subctl/agent/role"
	"subctl/dataplane"
	"subctl/internal/wake"
)

// reroute makes the node follow what its probes have just found. The loop would do the same, with
// the same result, but it may be waiting for the API server, or for its next turn. It returns how
// long that took.
func (a *agent) reroute(ctx context.Context) time.Duration {
	a.node.Lock()
	defer a.node.Unlock()
	start := time.Now()
	if a.last == nil {
		return 0
	}
	snap := *a.last
	snap.Now = start // the time since when a target is down is compared with it
	for _, p := range a.parts {
		if p, ok := p.(parts.Prober); ok {
			p.Refresh(&snap)
		}
	}
	plan, err := a.Role.Plan(snap)
	if err != nil {
		return time.Since(start) // the loop reports it
	}
	a.scheduleReroute(plan.Again)
	ops := a.moveAhead(ctx, plan)
	more, err := a.syncOwn(ctx, plan)
	a.logOps(append(ops, more...))
	if err != nil {
		a.Log.Debug("following the probes", "err", err) // the loop reports it
	}
	return time.Since(start)
}

// scheduleReroute has the node follow the probes again once a plan is out of date; after 0, never.
// The loop would plan again, too, but not in time while the API server does not answer.
func (a *agent) scheduleReroute(again time.Duration) {
	if a.next != nil {
		a.next.Stop()
		a.next = nil
	}
	if again > 0 && a.ask != nil {
		a.next = time.AfterFunc(again, a.ask)
	}
}

// moveAhead moves packets to the gateways of the plan before Sync reads the kernel, and returns the
// steps that it took.
func (a *agent) moveAhead(ctx context.Context, p role.Plan) (done []dataplane.Op) {
	t, err := a.target(a.Role.Owner)
	if err != nil {
		return nil // syncOwn reports it
	}
	for _, op := range dataplane.Ahead(a.held, p.State) {
		if t.Apply(ctx, op) == nil {
			done = append(done, op)
		}
	}
	return done
}

// After a call of reroute, a multiple of the time that it took passes before the next one, unless
// that is less than rerouteCredit for the last few together: gateways of a member that answer and
// do not answer by turns, several times a second, cannot keep the agent busy. The loop follows them
// in any case.
const (
	reroutePause  = 4
	rerouteCredit = 500 * time.Millisecond
)

// rerouting returns what runs reroute when it is asked to, and the function that asks.
func (a *agent) rerouting() (manager.Runnable, func()) {
	asked := wake.NewSignal()
	a.ask = asked.Send
	var rested time.Time // after what was done until now
	return manager.RunnableFunc(func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-asked:
				took := a.reroute(ctx)
				if now := time.Now(); rested.Before(now) {
					rested = now
				}
				rested = rested.Add(reroutePause * took)
				_ = wake.After(ctx, time.Until(rested)-rerouteCredit) // fails only if ctx is done, which ends the loop
			}
		}
	}), a.ask
}
