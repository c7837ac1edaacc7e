package parts

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"subctl/dataplane"
	"subctl/internal/alarm"
	"subctl/internal/prefix"
)

// newFlowWatch follows connections that began after connections were last read, so that they can
// return to their gateway. A short failure of a path moves a connection away and back before
// connections are read again. See dataplane.FlowTolerator.
type newFlowWatch struct {
	failed   alarm.Alarm
	by       dataplane.FlowTolerator // that follows new connections; nil if nobody does
	since    time.Time               // when by began
	stop     context.CancelFunc
	ended    <-chan error   // receives the reason when by follows them no longer
	networks []netip.Prefix // of other clusters
	in       atomic.Pointer[func(netip.Addr) bool]
}

// endedAfter is the time for which new connections must have been followed until a fault has ended.
// A fault that stays may end it each time only after a while, and would be logged each time.
const endedAfter = time.Minute

// set takes the networks of other clusters.
func (w *newFlowWatch) set(networks []netip.Prefix) {
	if w.in.Load() != nil && slices.Equal(networks, w.networks) {
		return
	}
	w.networks = networks
	w.in.Store(new(prefix.ContainsFunc(networks)))
}

// within reports whether an address is in a network of another cluster.
func (w *newFlowWatch) within(a netip.Addr) bool { return (*w.in.Load())(a) }

// follow begins or ends to follow new connections, as f needs it, and begins again if the kernel
// has ended it.
func (w *newFlowWatch) follow(ctx context.Context, f *flows) {
	select {
	case err := <-w.ended:
		w.report(f, err)
		w.end()
	default:
	}
	by := f.tolerator()
	if by == w.by {
		if by != nil && time.Since(w.since) >= endedAfter {
			w.report(f, nil)
		}
		return
	}
	w.end()
	if by == nil {
		return
	}
	following, stop := context.WithCancel(ctx)
	ended, err := by.TolerateNew(following, w.within)
	if err != nil {
		w.report(f, err)
		stop()
		return
	}
	w.by = by
	w.since = time.Now()
	w.stop = stop
	w.ended = ended
}

// end ends to follow new connections.
func (w *newFlowWatch) end() {
	if w.by != nil {
		w.stop()
		w.by = nil
		w.ended = nil
	}
}

func (w *newFlowWatch) report(f *flows, err error) {
	w.failed.Report(f.Log, slog.LevelWarn, "young connections that move to another gateway cannot come back", err)
}
