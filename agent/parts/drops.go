package parts

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"subctl/agent/role"
	"subctl/dataplane"
	"subctl/internal/alarm"
)

// drops adds to snapshots the packets that the kernel has dropped between clusters, and counts
// them.
type drops struct {
	Options
	counts, reasons dropCounts
	going           map[string]dropping // by reason, and by cluster with clusterDrops before its ID
	readAt          time.Time
	failed          alarm.Alarm
}

// clusterDrops begins the keys of clusters in drops.going.
const clusterDrops = "cluster "

// dropping is what has been dropped for a reason, or for a cluster, since there was nothing for
// dropsRest.
type dropping struct {
	packets uint64
	last    time.Time
}

// Packets that are dropped count as going on once there are dropsMany, until there have been none
// for dropsRest. So single packets are not reported, and whoever sends packets makes an agent write
// its report no more often than that.
const (
	dropsMany = 3
	dropsRest = 2 * time.Minute
)

// dropsEvery is the shortest time between two readings of the counters: with 1,000 clusters there
// are thousands.
const dropsEvery = 4 * time.Second

func newDrops(o Options) *drops { return &drops{Options: o} }

// Start waits until ctx is done: the counters are read with each snapshot.
func (d *drops) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Observe implements Observer.
func (d *drops) Observe(s *role.Snapshot) error {
	counter, ok := d.Cabler().(dataplane.DropCounter)
	if !ok {
		return nil
	}
	if s.Now.Sub(d.readAt) >= dropsEvery {
		now, err := counter.Drops()
		reasons, also := counter.DropReasons()
		if err = errors.Join(err, also); err == nil {
			more := d.counts.increase(now)
			moreReasons := d.reasons.increase(reasons)
			if !d.readAt.IsZero() { // or they are from before this agent
				d.notePackets(s.Now, more, moreReasons)
			}
			d.readAt = s.Now
			d.Dropped(more, moreReasons)
		}
		d.failed.Report(d.Log, slog.LevelWarn, "counting the packets that were dropped between clusters", err)
	}
	s.Drops = maps.Clone(d.counts.total)
	s.Dropping = d.ongoing(s.Now)
	return nil
}

// notePackets notes how many packets have been dropped since the last reading.
func (d *drops) notePackets(now time.Time, clusters, reasons map[string]uint64) {
	maps.DeleteFunc(d.going, func(_ string, g dropping) bool { return now.Sub(g.last) >= dropsRest })
	if d.going == nil {
		d.going = map[string]dropping{}
	}
	add := func(key string, n uint64) {
		if n > 0 {
			d.going[key] = dropping{packets: d.going[key].packets + n, last: now}
		}
	}
	for cluster, n := range clusters {
		add(clusterDrops+cluster, n)
	}
	for reason, n := range reasons {
		add(reason, n)
	}
}

// ongoing returns the reasons and the clusters for which packets are being dropped, sorted.
func (d *drops) ongoing(now time.Time) (out role.Dropping) {
	for _, key := range slices.Sorted(maps.Keys(d.going)) {
		if g := d.going[key]; g.packets < dropsMany || now.Sub(g.last) >= dropsRest {
			continue
		}
		if cluster, is := strings.CutPrefix(key, clusterDrops); is {
			out.Clusters = append(out.Clusters, cluster)
		} else {
			out.Reasons = append(out.Reasons, key)
		}
	}
	return out
}

// dropCounts adds up counters of the kernel, by cluster, which may start again from 0.
type dropCounts struct{ last, total map[string]uint64 }

// increase returns how much has been added for each cluster since the last call. Clusters without a
// counter are forgotten.
func (d *dropCounts) increase(now map[string]uint64) (more map[string]uint64) {
	more = make(map[string]uint64, len(now))
	total := make(map[string]uint64, len(now))
	for cluster, n := range now {
		more[cluster] = n
		if last := d.last[cluster]; last <= n {
			more[cluster] = n - last
		}
		total[cluster] = d.total[cluster] + more[cluster]
	}
	d.last = now
	d.total = total
	return more
}
