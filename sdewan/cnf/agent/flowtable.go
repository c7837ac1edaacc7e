package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"subctl/dataplane"
	"subctl/sdewan/cnf"
	"subctl/sdewan/rest"
)

const (
	// resetsInterval is the interval of calls of Kernel.AcceptResets, which reads all connections: within that time, a connection must not carry more than
	// 2 GiB in one direction, or 1.7 Gbit/s, if it is then reset. A call takes half of it at most.
	resetsInterval = 10 * time.Second
	// flowsAgain is how long there is no flow table after the kernel has refused the rules with one: a device of it may just have gone.
	flowsAgain = 30 * time.Second
)

// flows is what an Agent knows of flow tables.
type flows struct {
	usable atomic.Bool // one is wanted, and the kernel handles them
	held   atomic.Bool // the kernel may hold one
	until  time.Time   // before this time, no plan has one; is used by passes alone
	reason string      // why the kernel refuses it, as the log has it; empty if it does not; likewise
}

// wanted reports whether a plan may have a flow table.
func (f *flows) wanted(now time.Time) bool { return f.usable.Load() && !now.Before(f.until) }

// followFlows asks the kernel whether it handles flow tables, and makes it accept resets of connections in them while there is one.
func (a *Agent) followFlows(ctx context.Context) {
	err := a.Kernel.FlowTables(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		a.Log.Warn("no flow table: each packet of a connection passes the rules", "err", err)
		return
	}
	a.flows.usable.Store(true)
	a.Changed()
	tick := time.NewTicker(resetsInterval)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			said = a.acceptResets(ctx, said)
		}
	}
}

// acceptResets calls Kernel.AcceptResets if there is a flow table. It logs an error that is not the one that was said last, and returns the error.
func (a *Agent) acceptResets(ctx context.Context, said string) string {
	if !a.flows.held.Load() {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, resetsInterval/2)
	defer cancel()
	err := a.Kernel.AcceptResets(ctx)
	if err == nil {
		return ""
	}
	if err.Error() != said {
		a.Log.Warn("resets of connections in the flow table may be lost", "err", err)
	}
	return err.Error()
}

// hold plans, and makes the kernel hold the plan: one without a flow table if it refuses the rules with it.
func (a *Agent) hold(ctx context.Context, target dataplane.Target, config rest.Config, world cnf.World) (dataplane.State, cnf.Report, []dataplane.Op, error) {
	state, report := cnf.Plan(config, world)
	ops, err := dataplane.Sync(ctx, target, state)
	rules := flowRules(state)
	if rules != nil || err == nil {
		a.flows.held.Store(rules != nil)
	}
	if failed(err, rules) { // or another program has changed them meanwhile
		var more []dataplane.Op
		more, err = dataplane.Sync(ctx, target, state)
		ops = append(ops, more...)
	}
	if !failed(err, rules) || ctx.Err() != nil {
		if rules != nil && err == nil {
			a.flows.reason = ""
		}
		return state, report, ops, err
	}
	world.FlowTables = false
	state, report, more, without := a.hold(ctx, target, config, world)
	if !failed(without, rules) { // otherwise, the flow table is not the reason
		a.flows.refused(world.Now, err, a.Log)
	}
	return state, report, append(ops, more...), without
}

// refused takes that the kernel holds the rules only without a flow table.
func (f *flows) refused(now time.Time, err error, log *slog.Logger) {
	f.until = now.Add(flowsAgain)
	if reason := err.Error(); reason != f.reason {
		f.reason = reason
		log.Warn("no flow table: the kernel refuses the rules with one", "err", err)
	}
}

// failed reports whether a Sync that returned err could not make the kernel hold rules; nil never fails.
func failed(err error, rules dataplane.Object) bool {
	var drift *dataplane.DriftError
	if rules == nil || !errors.As(err, &drift) {
		return false
	}
	_, affected := drift.Affected[rules.Key()]
	return affected
}

// flowRules returns the rules of a plan if they have a flow table, or nil.
func flowRules(s dataplane.State) dataplane.Object {
	for _, o := range s {
		if r, is := o.(dataplane.Ruleset); is && len(r.FlowTables) > 0 {
			return r
		}
	}
	return nil
}
