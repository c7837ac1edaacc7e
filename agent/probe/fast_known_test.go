package probe

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// An agent that cannot open a socket for echoes leaves to pings what an echo of its predecessor had
// found, and not what it has found itself.
func TestKnownWithoutEchoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFastWorld(time.Millisecond)
		down := role.Health{
			Status:  submarinerv1.ConnectionError,
			Message: "lost",
			By:      role.ByLargeEcho,
			Since:   time.Now(),
		}
		target := role.Target{IP: w.ip, From: w.ip, Fast: true, Echo: role.Echo{Device: "d", MAC: "m", MTU: 1400}}
		w.setTargets(role.Probes{Targets: map[string]role.Target{"west": target}, Known: role.Healths{"west": down}}, nil)
		w.lose = func(_ role.Target, a asked) bool { return a.kind != pinging }
		w.listen = func(context.Context, int, int) (Echoes, error) { return nil, errors.New("not permitted") }
		w.run(after(10 * time.Second))
		require.Equal(t, submarinerv1.ConnectionError, w.status())
		var socket echoSocket
		send := func(at time.Time) {
			t.Helper()
			a := newAsked(w.next+1, at)
			w.byOrder[a.seq] = sentTo{"west", a.nonce}
			require.Error(t, socket.send(t.Context(), w.Prober, target, a))
		}
		send(time.Now())
		w.run(after(5 * time.Second))
		require.Equal(t, submarinerv1.Connected, w.status())

		w.setTargets(role.Probes{}, nil)
		w.setTargets(role.Probes{Targets: map[string]role.Target{"west": target}, Known: role.Healths{"west": down}}, nil)
		w.run(after(5 * time.Second))
		require.Equal(t, submarinerv1.ConnectionError, w.status())
		send(time.Now()) // the socket is not opened again yet
		w.run(after(5 * time.Second))
		require.Equal(t, submarinerv1.Connected, w.status())

		w.lose = func(role.Target, asked) bool { return false }
		w.run(after(5 * time.Second))
		w.lose = func(_ role.Target, a asked) bool { return a.kind != pinging }
		send(time.Now().Add(time.Hour))
		w.run(after(5 * time.Second))
		require.Equal(t, submarinerv1.ConnectionError, w.status())
	})
}

// A target that the agent's predecessor had found to be down stays down until it has answered five
// probes in a row, of the kind that had found it.
func TestFastAndKnown(t *testing.T) {
	echo := role.Echo{Device: "d", MAC: "m", MTU: 1400}
	for name, test := range map[string]struct {
		by       string
		echo     role.Echo
		down, up [kinds]bool // which probes are answered while the target is down, and when it is up
	}{
		"it does not answer": {"ping", echo, [kinds]bool{}, [kinds]bool{true, false, false}},
		"it forwards nothing": {
			"echo",
			echo,
			[kinds]bool{true, false, false},
			[kinds]bool{true, true, false},
		},
		"large packets are lost": {
			"large echo",
			echo,
			[kinds]bool{true, true, false},
			[kinds]bool{true, true, true},
		},
		"this node cannot send it echoes":  {"ping", role.Echo{}, [kinds]bool{}, [kinds]bool{true, false, false}},
		"this node sends it no echoes now": {"echo", role.Echo{}, [kinds]bool{}, [kinds]bool{true, false, false}},
	} {
		begin := func() (*fastWorld, role.Health) {
			w := newFastWorld(time.Millisecond)
			known := role.Health{
				Status:  submarinerv1.ConnectionError,
				Message: "lost",
				By:      test.by,
				Since:   time.Now().Add(-time.Hour),
			}
			target := role.Target{IP: w.ip, From: w.ip, Fast: true, Echo: test.echo}
			w.setTargets(role.Probes{Targets: map[string]role.Target{"west": target}, Known: role.Healths{"west": known}}, nil)
			return w, known
		}
		returns := func(t *testing.T, w *fastWorld) time.Duration {
			w.lose = func(_ role.Target, a asked) bool { return !test.up[a.kind] }
			late := after(10 * time.Second)
			took := w.run(func() bool { return w.status() == submarinerv1.Connected || late() })
			require.Equal(t, 1, w.changes, name)
			require.Equal(t, test.by, w.health()["west"].By, name)
			require.WithinDuration(t, time.Now(), w.health()["west"].Back, time.Second, name)
			return took
		}
		synctest.Test(t, func(t *testing.T) {
			w, _ := begin()
			require.InDelta(t, 400, returns(t, w).Milliseconds(), 50, name)
		})
		synctest.Test(t, func(t *testing.T) {
			w, known := begin()
			w.lose = func(_ role.Target, a asked) bool { return !test.down[a.kind] }
			w.run(after(time.Minute))
			got := w.health()["west"]
			got.RTT = role.RTT{}
			require.Equal(t, known, got, name)
			require.Zero(t, w.changes, name)
			require.Less(t, returns(t, w), 3*time.Second, name)
		})
	}
}
