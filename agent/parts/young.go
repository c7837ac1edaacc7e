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

// young lets connections come back that have begun since connections were read last: a path that
// fails for a moment moves them, and brings them back before they are read again. See
// dataplane.FlowTolerator.
type young struct {
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
func (y *young) set(networks []netip.Prefix) {
	if y.in.Load() != nil && slices.Equal(networks, y.networks) {
		return
	}
	y.networks = networks
	y.in.Store(new(prefix.ContainsFunc(networks)))
}

// within reports whether an address is in a network of another cluster.
func (y *young) within(a netip.Addr) bool { return (*y.in.Load())(a) }

// follow begins or ends to follow new connections, as f needs it, and begins again if the kernel
// has ended it.
func (y *young) follow(ctx context.Context, f *flows) {
	select {
	case err := <-y.ended:
		y.report(f, err)
		y.end()
	default:
	}
	by := f.tolerates()
	if by == y.by {
		if by != nil && time.Since(y.since) >= endedAfter {
			y.report(f, nil)
		}
		return
	}
	y.end()
	if by == nil {
		return
	}
	following, stop := context.WithCancel(ctx)
	ended, err := by.TolerateNew(following, y.within)
	if err != nil {
		y.report(f, err)
		stop()
		return
	}
	y.by = by
	y.since = time.Now()
	y.stop = stop
	y.ended = ended
}

// end ends to follow new connections.
func (y *young) end() {
	if y.by != nil {
		y.stop()
		y.by = nil
		y.ended = nil
	}
}

func (y *young) report(f *flows, err error) {
	y.failed.Report(f.Log, slog.LevelWarn, "young connections that move to another gateway cannot come back", err)
}
