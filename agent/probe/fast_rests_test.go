package probe

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
)

// Once all targets have answered, the prober looks at them again when a probe is due, and not when
// an answer would be late.
func TestFastRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFastWorld(time.Millisecond)
		w.run(after(time.Second))
		nothing := func(role.Target, asked) error { return nil }
		time.Sleep(role.FastInterval)
		for len(w.wake) > 0 {
			<-w.wake
		}
		require.LessOrEqual(t, w.sendDue(nothing, &w.next), role.FastDoubt+2*time.Millisecond, "an answer may be late")
		require.Empty(t, w.wake)
		g := w.pings["west"].outstanding()[0]
		time.Sleep(time.Millisecond)
		w.answered(g.seq, w.ip, g.nonce[:], time.Now())
		require.Len(t, w.wake, 1, "it looks again")
		require.Greater(t, w.sendDue(nothing, &w.next), role.FastInterval*8/10, "and then rests")
	})
}

// While an answer from afar is on its way, the prober does not wake up to find that one from nearby
// has come.
func TestFastRestsWhileAnswersAreFarAway(t *testing.T) {
	for far, wakes := range map[time.Duration]int{1500 * time.Microsecond: 0, 40 * time.Millisecond: 1} {
		synctest.Test(t, func(t *testing.T) {
			w := newFastWorld(time.Millisecond)
			w.setTargets(
				role.Probes{
					Targets: map[string]role.Target{
						"west": {IP: w.ip, Fast: true},
						"far":  {IP: w.ip, From: w.ip, Fast: true},
					},
				},
				nil,
			)
			last := map[bool]asked{} // by whether the target is far away
			w.lose = func(to role.Target, a asked) bool {
				last[to.From.IsValid()] = a
				w.rtt = func() time.Duration {
					if to.From.IsValid() {
						return far
					}
					return time.Millisecond
				}
				return false
			}
			w.run(after(10 * time.Second))
			time.Sleep(role.FastInterval)
			for len(w.wake) > 0 {
				<-w.wake
			}
			send := func(to role.Target, a asked) error { w.lose(to, a); return nil }
			require.LessOrEqual(t, w.sendDue(send, &w.next), role.FastDoubt+2*time.Millisecond)
			time.Sleep(time.Millisecond)
			answer := func(a asked) { w.answered(a.seq, w.ip, a.nonce[:], time.Now()) }
			answer(last[false])
			require.Len(t, w.wake, wakes)
			if wakes > 0 {
				<-w.wake
				require.Greater(t, w.sendDue(send, &w.next), far)
			}
			time.Sleep(far - time.Millisecond)
			answer(last[true])
			require.Len(t, w.wake, 1)
			require.Greater(t, w.sendDue(send, &w.next), role.FastInterval/3)
		})
	}
}
