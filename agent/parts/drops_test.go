package parts

import (
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/role"
	"subctl/dataplane"
)

// counter is a kernel that counts.
type counter struct {
	mortal
	drops, reasons map[string]uint64
}

func (c counter) Drops() (map[string]uint64, error)       { return maps.Clone(c.drops), nil }
func (c counter) DropReasons() (map[string]uint64, error) { return maps.Clone(c.reasons), nil }

// Before the agent has made anything, nothing is counted.
func TestDropsOfNothing(t *testing.T) {
	d := newDrops(Options{Cabler: func() dataplane.Cabler { return nil }})
	s := role.NewSnapshot[client.Object]("worker")
	require.NoError(t, d.Observe(&s))
	require.Nil(t, s.Drops)
}

// Drops are added up, every few seconds, whatever becomes of the kernel's counters. A cluster that
// has left has none.
func TestDropsAreAddedUp(t *testing.T) {
	kernel := counter{drops: map[string]uint64{}}
	sums := map[string]uint64{}
	d := newDrops(Options{
		Log: slog.New(slog.DiscardHandler), Cabler: func() dataplane.Cabler { return kernel },
		Dropped: func(more, _ map[string]uint64) {
			for c, n := range more {
				sums[c] += n
			}
		},
	})
	s := role.NewSnapshot[client.Object]("worker")
	s.Now = time.Unix(1000, 0)
	for _, step := range []struct {
		after       time.Duration
		west, north uint64 // of the kernel
		want        uint64
	}{
		{0, 3, 0, 3},
		{time.Second, 4, 0, 3},
		{4 * time.Second, 9, 1, 9},
		{4 * time.Second, 2, 1, 11},
		{4 * time.Second, 2, 1, 11},
	} {
		kernel.drops["west"] = step.west
		kernel.drops["north"] = step.north
		s.Now = s.Now.Add(step.after)
		require.NoError(t, d.Observe(&s))
		require.Equal(t, step.want, s.Drops["west"])
		require.Equal(t, step.want, sums["west"])
	}
	require.EqualValues(t, 1, sums["north"])
	delete(kernel.drops, "west")
	s.Now = s.Now.Add(dropsEvery)
	require.NoError(t, d.Observe(&s))
	require.Equal(t, map[string]uint64{"north": 1}, s.Drops)
}

// What is dropped is reported while it goes on: not for a few packets, and not by turns.
func TestDropsGoOn(t *testing.T) {
	kernel := counter{drops: map[string]uint64{"west": 100}, reasons: map[string]uint64{
		dataplane.DropBeside: 100, dataplane.DropPort: 7,
	}}
	d := newDrops(Options{
		Log: slog.New(slog.DiscardHandler), Cabler: func() dataplane.Cabler { return kernel },
		Dropped: func(_, _ map[string]uint64) {},
	})
	s := role.NewSnapshot[client.Object]("worker")
	s.Now = time.Unix(1000, 0)
	goesOn := role.Dropping{Reasons: []string{dataplane.DropBeside}, Clusters: []string{"west"}}
	for _, step := range []struct {
		what  string
		after time.Duration
		more  uint64
		want  role.Dropping
	}{
		{"what was dropped before the agent started", 0, 0, role.Dropping{}},
		{"a few packets", dropsEvery, dropsMany - 1, role.Dropping{}},
		{"more", dropsEvery, 1, goesOn},
		{"a pause", dropsRest - time.Second, 0, goesOn},
		{"one packet", 0, 1, goesOn},
		{"none for long", dropsRest + dropsEvery, 0, role.Dropping{}},
		{"one packet, after that", dropsEvery, 1, role.Dropping{}},
	} {
		s.Now = s.Now.Add(step.after)
		if step.after == 0 && !d.readAt.IsZero() {
			d.readAt = d.readAt.Add(-dropsEvery)
		}
		kernel.drops["west"] += step.more
		kernel.reasons[dataplane.DropBeside] += step.more
		require.NoError(t, d.Observe(&s))
		require.Equal(t, step.want, s.Dropping, step.what)
	}
}
