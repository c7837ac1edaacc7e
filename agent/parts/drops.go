package parts

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"subctl/agent/mesh"
	"subctl/dataplane"
	"subctl/internal/alarm"
)

// drops adds to snapshots the packets that the kernel has dropped between clusters, and counts them.
type drops struct {
	Options
	counts dropCounts
	readAt time.Time
	failed alarm.Alarm
}

// dropsEvery is the shortest time between two readings of the counters: with 1,000 clusters there are
// thousands.
const dropsEvery = 4 * time.Second

func newDrops(o Options) *drops { return &drops{Options: o} }

// Start waits until ctx is done: the counters are read with each snapshot.
func (d *drops) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Observe implements Observer.
func (d *drops) Observe(s *mesh.Snapshot) error {
	counter, ok := d.Cabler().(dataplane.DropCounter)
	if !ok {
		return nil
	}
	if s.Now.Sub(d.readAt) >= dropsEvery {
		now, err := counter.Drops()
		if err == nil {
			d.readAt = s.Now
			d.Dropped(d.counts.add(now))
		}
		d.failed.Report(d.Log, slog.LevelWarn, "counting the packets that were dropped between clusters", err)
	}
	s.Drops = maps.Clone(d.counts.total)
	return nil
}

// dropCounts adds up counters of the kernel, by cluster, which may start again from 0.
type dropCounts struct{ last, total map[string]uint64 }

// add returns how much has been added for each cluster since the last call. Clusters without a counter are
// forgotten.
func (d *dropCounts) add(now map[string]uint64) (more map[string]uint64) {
	more = make(map[string]uint64, len(now))
	total := make(map[string]uint64, len(now))
	for cluster, n := range now {
		more[cluster] = n
		if last := d.last[cluster]; last <= n {
			more[cluster] = n - last
		}
		total[cluster] = d.total[cluster] + more[cluster]
	}
	d.last, d.total = now, total
	return more
}
