package parts

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"subctl/agent/role"
	"subctl/dataplane"
	"subctl/internal/alarm"
	"subctl/internal/wake"
)

// forwarding probes whether the node forwards packets of other clusters to pods: after the rules of
// nftables have changed, and now and then, as pods come, and other things than these rules decide
// about packets, too.
type forwarding struct {
	Options
	failed alarm.Alarm

	mu     sync.Mutex
	probe  dataplane.ForwardProbe
	result dataplane.Forwarded
}

// lookEvery is how often the part looks whether the rules have changed, which costs one message to
// the kernel. A program that changes them all the time, as kube-proxy may, causes a probe as often:
// some 3 ms.
const (
	lookEvery    = 10 * time.Second
	forwardEvery = 5 * time.Minute
)

func newForwarding(o Options) *forwarding { return &forwarding{Options: o} }

// Start probes until ctx is done.
func (f *forwarding) Start(ctx context.Context) error {
	var last time.Time
	wake.Every(ctx, lookEvery, nil, func() {
		now := time.Now()
		if f.probeIfChanged(now.Sub(last) >= forwardEvery) {
			last = now
		}
	})
	return nil
}

// probeIfChanged probes if the rules have changed, or again is set. It reports whether it has
// probed.
func (f *forwarding) probeIfChanged(again bool) bool {
	f.mu.Lock()
	probe := f.probe
	was := f.result
	f.mu.Unlock()
	if f.ProbeForwarding == nil || !probe.From.IsValid() {
		return false
	}
	generation := was.Generation
	if again {
		generation = 0
	}
	got, err := f.ProbeForwarding(probe, generation)
	f.failed.Report(f.Log, slog.LevelWarn, "finding out whether the node forwards packets of other clusters to pods",
		err)
	if err != nil || !again && got.Generation == generation {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !reflect.DeepEqual(f.probe, probe) {
		return false // the result is of another one
	}
	f.result = got
	if got.By != was.By || got.Known != was.Known {
		f.Trigger()
	}
	return true
}

// Observe implements Observer.
func (f *forwarding) Observe(s *role.Snapshot) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Forwarded = f.result
	return nil
}

// Act implements Actor.
func (f *forwarding) Act(_ role.Snapshot, p role.Plan, _ *role.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.Decisions != nil && !reflect.DeepEqual(f.probe, p.Forward) {
		f.probe = p.Forward
		f.result = dataplane.Forwarded{}
	}
}
