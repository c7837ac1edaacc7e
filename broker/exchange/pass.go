package exchange

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"subctl/broker/trust"
)

// pass compares both sides and writes the difference. It returns false if another pass
// should follow soon.
func (e *Exchange) pass(ctx context.Context, watches *sync.WaitGroup) bool {
	snap := Snapshot{ClusterID: e.config.ClusterID, Namespace: e.config.Namespace}
	status := Status{Connected: true}
	faults := faults{}
	note := func(from string, err error) {
		if err != nil {
			faults.add(from, withoutQuery(err).Error())
			status.Connected = status.Connected && from == here
		}
	}
	grant, renewed, err := e.readIdentity(ctx, &snap)
	if err != nil {
		status.Errors = append(status.Errors, err.Error())
	} else {
		e.follow(ctx, grant.Sets, watches)
	}
	e.leaveDenied(time.Now())
	ready := err == nil
	known, err := e.local.add(&snap.Local)
	note(here, err)
	all := known && renewed
	reading := false
	status.NotRead = len(e.sets) > 0
	note("the identity of this cluster on the broker", e.renewal.fault())
	for _, set := range e.sets {
		there := SetSnapshot{Set: set.set, Reserved: set.reserved()}
		there.Known, err = set.add(&there.Objects)
		note(set.String(), err)
		status.NotRead = status.NotRead && set.unread()
		snap.Sets = append(snap.Sets, there)
		all = all && there.Known
		reading = reading || !there.Known && err == nil
		status.Connected = status.Connected && there.Known
	}
	status.NotRead = status.NotRead || !ready // what is read is not copied
	e.fitting.fit(e.sets, &snap, e.config.Kinds)
	status.Errors = append(status.Errors, faults.texts()...)
	var stale bool
	var writes []Write
	reading = reading && time.Since(e.began) < firstReading
	if known && ready && !reading { // otherwise everything would look new
		writes, stale = e.exchange(ctx, snap, all, &status)
	}
	status.Reading = !all && len(status.Errors) == 0
	if ctx.Err() != nil {
		return true
	}
	if len(writes) == 0 && status.problem() == nil {
		status.LastSync = time.Now()
	}
	e.report(status)
	return !stale && (len(writes) == 0 || status.problem() == nil)
}

// firstReading is the time after the start for which nothing is written while there are clustersets
// that answer but were not read: a copy that was made earlier would have to note all of them.
const firstReading = time.Minute

// readIdentity completes a snapshot with the cluster's identity and memory. It returns the grant
// that is in force, and whether it is known to be the newest.
func (e *Exchange) readIdentity(ctx context.Context, snap *Snapshot) (grant trust.Grant, known bool, err error) {
	if err := e.recall(ctx, e.local.client); err != nil {
		return grant, false, err
	}
	id, err := e.config.Identity()
	if err != nil {
		return grant, false, notJoined(err)
	}
	token, known := e.renewal.read()
	if e.memory.renew(id, e.config.ClusterID, token) {
		e.unstored = true
	}
	id = e.memory.newest(id, e.config.ClusterID)
	if grant, err = id.check(e.config.ClusterID); err != nil {
		return grant, known, notJoined(err)
	}
	snap.Identity = id
	return grant, known, nil
}

func notJoined(err error) error {
	return fmt.Errorf("nothing is exchanged with the broker: %w: join again with subctl join", err)
}

// exchange plans and carries out the plan. all reports whether everything was read. It returns
// what was planned, and whether another pass should follow soon.
func (e *Exchange) exchange(ctx context.Context, snap Snapshot, all bool, status *Status) (writes []Write, stale bool) {
	fail := func(errs ...error) {
		for _, err := range errs {
			status.Errors = append(status.Errors, err.Error())
		}
	}
	e.memos.turn()
	snap.Memory = e.memory
	snap.Now = time.Now()
	snap.memos = &e.memos
	writes, refused, memory := Plan(e.config.Kinds, snap)
	// What is deleted here is remembered before, if that is possible: a memory that cannot be
	// written delays no deletion.
	forgets := slices.ContainsFunc(writes, func(w Write) bool { return w.Set == "" && w.Op == Delete })
	if err := e.remember(ctx, e.local.client, memory, forgets); err != nil {
		fail(err)
	}
	now, held := e.paces.admit(writes, snap.shared(e.config.Kinds), time.Now())
	now, more := atATime(now, !all)
	if more {
		e.trigger.Send()
	}
	refused = append(held, e.waiting.ripe(refused, time.Now())...)
	status.Refused, status.RefusedMore = fairSelection(refused)
	n, again, errs := e.write(ctx, now)
	fail(errs...)
	if all {
		status.Digest = e.digest.of(e.config.Kinds, snap.Local, now)
		status.Sets = []string{}
		for _, set := range snap.Sets {
			status.Sets = append(status.Sets, set.Name)
		}
	}
	status.Writes = n
	return writes, again || len(held) > 0 || e.unstored
}
