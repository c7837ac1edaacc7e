package probe

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// A prober that runs late takes no target for down whose answer waits in its socket, or arrives as
// soon as the machine runs again. It still finds out what is down, also if it is always late.
func TestFastAndLate(t *testing.T) {
	for name, slept := range map[string]time.Duration{
		"an answer waits in the socket": 0,
		"the machine has slept":         100 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFastWorld(time.Millisecond)
				w.run(after(time.Second))
				n := 0
				answered := asked{}
				w.lose = func(_ role.Target, a asked) bool {
					n++
					switch {
					case n == role.FastLost && slept == 0:
						w.behind = 60 * time.Millisecond
						w.rtt = func() time.Duration { return 20 * time.Millisecond }
						return false
					case n == role.FastLost:
						answered = a
						w.stall = func() time.Duration { return slept }
					case n == role.FastLost+1 && slept > 0: // when it runs again
						w.stall = func() time.Duration { return 0 }
						time.AfterFunc(3*time.Millisecond,
							func() { w.answered(answered.seq, w.ip, answered.nonce[:], time.Now()) })
					}
					return n < role.FastLost+4
				}
				w.run(after(10 * time.Second))
				require.Equal(t, 1, w.changes, "connected, and never removed")
				require.Greater(t, n, role.FastLost+50)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newFastWorld(time.Millisecond)
		w.run(after(time.Second))
		w.lose = func(role.Target, asked) bool { return true }
		w.stall = func() time.Duration { return 15 * time.Millisecond }
		require.Less(t, w.run(func() bool { return w.status() == submarinerv1.ConnectionError }), 500*time.Millisecond)
	})
}

// Reading what has arrived may take a while. The round trip times of the probes that are sent then
// do not include it.
func TestRTTWithoutReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFastWorld(time.Millisecond)
		w.run(after(time.Second))
		reads := 0
		w.drains = append(w.drains, func() { reads++; time.Sleep(20 * time.Millisecond) })
		w.lose = func(_ role.Target, a asked) bool {
			require.Zero(t, time.Since(a.sent))
			return reads == 0
		}
		w.run(after(time.Second))
		require.Positive(t, reads)
		require.Less(t, w.pings["west"].fast.longest, 20*time.Millisecond)
	})
}

// A target that comes back is known to have done so, and when. It flaps if it is down after that,
// but not if it is down for the first time, or after a long time.
func TestFlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFastWorld(time.Millisecond)
		for i, step := range []struct {
			up    time.Duration
			flaps bool
		}{{time.Second, false}, {time.Second, true}, {2 * role.Steady, false}, {role.Steady / 2, true}} {
			w.lose = func(role.Target, asked) bool { return false }
			w.run(func() bool { return w.status() == submarinerv1.Connected })
			back := time.Now()
			require.False(t, w.health()["west"].Flaps)
			w.run(after(step.up))
			if i > 0 {
				require.Equal(t, back, w.health()["west"].Back)
			} else {
				require.Zero(t, w.health()["west"].Back, "it was not down before")
			}
			w.lose = func(role.Target, asked) bool { return true }
			w.run(func() bool { return w.status() == submarinerv1.ConnectionError })
			require.Equal(t, step.flaps, w.health()["west"].Flaps)
		}
	})
}
