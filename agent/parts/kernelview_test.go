package parts

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// mortal is a kernel whose programs die.
type mortal map[string]int

func (mortal) CableStates() ([]dataplane.CableState, error) {
	return []dataplane.CableState{{Device: "submariner", Peer: "west"}}, nil
}
func (m mortal) Restarts() map[string]int { return map[string]int(m) }

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
	s := role.NewSnapshot("gw", &submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "gw"}})
	look := func() {
		t.Helper()
		require.NoError(t, k.Observe(&s))
		k.Act(s, role.Plan{}, &role.Outcome{})
	}
	look()
	require.Nil(t, s.Cables, "it is not known")
	kernel = mortal{}
	look()
	require.Empty(t, events)
	require.Nil(t, s.Cables, "a gateway without a role has no cables")
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

// states is a kernel whose cables are as given.
type states []dataplane.CableState

func (s states) CableStates() ([]dataplane.CableState, error) { return s, nil }
func (states) Restarts() map[string]int                       { return nil }

// A kernel without cables is something else than one that cannot be asked.
func TestKernelWithoutCables(t *testing.T) {
	k := newKernelView(
		Options{Log: slog.New(slog.DiscardHandler), Cabler: func() dataplane.Cabler { return states(nil) }})
	s := role.Snapshot{Standing: role.Standing{Active: true}}
	require.NoError(t, k.Observe(&s))
	require.NotNil(t, s.Cables)
	require.Empty(t, s.Cables)
}

// While a cable of the last plan waits for keys, what the node follows at once includes the keys.
// Otherwise the kernel is not asked.
func TestKeysAreFollowedAtOnce(t *testing.T) {
	kernel := states{{Device: "submariner", Peer: "west"}}
	asked := 0
	k := newKernelView(
		Options{Log: slog.New(slog.DiscardHandler), Cabler: func() dataplane.Cabler { asked++; return kernel }})
	s := role.Snapshot{Standing: role.Standing{Active: true}}
	require.NoError(t, k.Observe(&s))
	for _, keyless := range []bool{true, false} {
		k.Act(s, role.Plan{Decisions: &mesh.Plan{Traffic: mesh.Traffic{Keyless: keyless}}}, &role.Outcome{})
		asked = 0
		kernel = states{{Device: "submariner", Peer: "west", Handshake: time.Now()}}
		var follows Prober = k
		again := s
		follows.Refresh(&again)
		require.Equal(t, keyless, !again.Cables[0].Handshake.IsZero())
		require.Equal(t, keyless, asked > 0)
	}
}
