package parts

import (
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// mortal is a kernel whose programs die.
type mortal map[string]int

func (mortal) CableStates() ([]dataplane.CableState, error) {
	return []dataplane.CableState{{Device: "submariner", Peer: "west"}}, nil
}
func (m mortal) Restarts() map[string]int { return map[string]int(m) }

// counter is a kernel that counts.
type counter struct {
	mortal
	drops map[string]uint64
}

func (c counter) Drops() (map[string]uint64, error) { return maps.Clone(c.drops), nil }

// Drops are added up, every few seconds, whatever becomes of the kernel's counters. A cluster that has left has none.
func TestDropsAreAddedUp(t *testing.T) {
	kernel := counter{drops: map[string]uint64{}}
	sums := map[string]uint64{}
	k := newKernelView(Options{
		Log: slog.New(slog.DiscardHandler), Cabler: func() dataplane.Cabler { return kernel },
		Dropped: func(more map[string]uint64) {
			for c, n := range more {
				sums[c] += n
			}
		},
	})
	s := mesh.NewSnapshot[client.Object]("gw")
	s.Standing.Active, s.Now = true, time.Unix(1000, 0)
	for _, step := range []struct {
		after       time.Duration
		west, north uint64 // of the kernel
		want        uint64
	}{{0, 3, 0, 3}, {time.Second, 4, 0, 3}, {4 * time.Second, 9, 1, 9}, {4 * time.Second, 2, 1, 11}, {4 * time.Second, 2, 1, 11}} {
		kernel.drops["west"], kernel.drops["north"] = step.west, step.north
		s.Now = s.Now.Add(step.after)
		require.NoError(t, k.Observe(&s))
		require.Equal(t, step.want, s.Drops["west"])
		require.Equal(t, step.want, sums["west"])
	}
	require.EqualValues(t, 1, sums["north"])
	delete(kernel.drops, "west")
	s.Now = s.Now.Add(dropsEvery)
	require.NoError(t, k.Observe(&s))
	require.Equal(t, map[string]uint64{"north": 1}, s.Drops)
}

// A program that was found dead is counted, and there is an Event about it, once.
func TestRestartsAreReported(t *testing.T) {
	var kernel dataplane.Cabler
	var events []string
	counts := map[string]int{}
	k := newKernelView(Options{
		Log: slog.New(slog.DiscardHandler), Cabler: func() dataplane.Cabler { return kernel },
		Restarted: func(program string, n int) { counts[program] += n },
		Warn: func(about client.Object, c metav1.Condition) {
			events = append(events, about.GetName()+" "+c.Reason+": "+c.Message)
		},
	})
	s := mesh.NewSnapshot("gw", &submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "gw"}})
	look := func() {
		t.Helper()
		require.NoError(t, k.Observe(&s))
		k.Act(s, mesh.Plan{}, &mesh.Outcome{})
	}
	look()
	require.Empty(t, s.Cables, "nothing was made yet")
	kernel = mortal{}
	look()
	require.Empty(t, events)
	require.Empty(t, s.Cables, "a standby gateway has no cables")
	s.Standing.Active = true
	kernel = mortal{"charon": 2, "wireguard-go": 1}
	look()
	look()
	require.Len(t, s.Cables, 1)
	require.Equal(t, map[string]int{"charon": 2, "wireguard-go": 1}, counts)
	require.Len(t, events, 2)
	require.Contains(t, events[0], "gw CableProgramRestarted: charon was found dead")
	require.Contains(t, events[1], "gw CableProgramRestarted: wireguard-go was found dead")
}
