package exchange

import (
	"context"
	"fmt"
	"time"
)

// pass compares both sides and writes the difference. It returns false if another pass
// should follow soon.
func (e *Exchange) pass(ctx context.Context, local side, sets []side) bool {
	snap := Snapshot{ClusterID: e.config.ClusterID, Namespace: e.config.Namespace}
	status := Status{Connected: true}
	note := func(from side, err error) {
		if err != nil {
			status.Errors = append(status.Errors, fmt.Sprintf("watching %s: %v", from, withoutQuery(err)))
			status.Connected = status.Connected && from.set.Name == ""
		}
	}
	objects, known, err := local.read()
	note(local, err)
	snap.Local = objects
	all := known
	for _, set := range sets {
		objects, known, err := set.read()
		note(set, err)
		snap.Sets = append(snap.Sets, SetSnapshot{Set: set.set, Known: known, Objects: objects, Reserved: set.reserved()})
		all = all && known
		status.Connected = status.Connected && known
	}
	var stale bool
	var writes []Write
	if known { // otherwise everything would look new
		writes, stale = e.exchange(ctx, snap, all, &status, local, sets)
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

// exchange plans and carries out the plan. all reports whether everything was read. It returns
// what was planned, and whether another pass should follow soon.
func (e *Exchange) exchange(ctx context.Context, snap Snapshot, all bool, status *Status, local side, sets []side) (writes []Write, stale bool) {
	fail := func(errs ...error) {
		for _, err := range errs {
			status.Errors = append(status.Errors, err.Error())
		}
	}
	var err error
	if snap.Identity, err = e.identity(); err != nil {
		fail(err)
		return nil, false
	}
	if err := e.recall(ctx, local.client); err != nil {
		fail(err)
		return nil, true
	}
	e.memos.turn()
	snap.Memory, snap.Now, snap.memos = e.memory, time.Now(), &e.memos
	writes, refused, memory := Plan(e.config.Kinds, snap)
	if err := e.remember(ctx, local.client, memory); err != nil {
		fail(err)
	}
	now, held := e.paces.admit(writes, time.Now())
	refused = append(held, e.waiting.ripe(refused, time.Now())...)
	status.Refused, status.RefusedMore = refused[:min(len(refused), maxRefused)], max(0, len(refused)-maxRefused)
	n, again, errs := e.write(ctx, now, local, sets)
	fail(errs...)
	if all {
		status.Digest = e.digest.of(e.config.Kinds, snap.Local, now)
	}
	status.Writes = n
	return writes, again || len(held) > 0
}

// identity returns the identity of the cluster, if it is complete and its grant is valid.
func (e *Exchange) identity() (Identity, error) {
	id, err := e.config.Identity()
	if err == nil {
		_, err = id.check(e.config.ClusterID)
	}
	if err != nil {
		return id, fmt.Errorf("nothing is exchanged with the broker: %w: join again with subctl join", err)
	}
	return id, nil
}
