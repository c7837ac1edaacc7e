package probe

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// fastWorld is a prober with one target that is Fast, on a simulated clock.
type fastWorld struct {
	*Prober
	ip      netip.Addr
	changes int
	sent    int
	next    uint16
	stall   func() time.Duration // by which the prober looks later than it wanted
	behind  time.Duration        // by which answers are read later than they arrive
	socket  sync.Mutex
	unread  []func() // answers in the socket
	lose    func(role.Target, asked) bool
	rtt     func() time.Duration
}

func newFastWorld(rtt time.Duration) *fastWorld {
	w := &fastWorld{ip: netip.MustParseAddr("192.0.2.1")}
	w.Prober = New(Options{Log: slog.New(slog.DiscardHandler), Trigger: func() { w.changes++ }})
	w.drains = []func(){w.read}
	w.rtt = func() time.Duration { return rtt }
	w.stall = func() time.Duration { return 0 }
	w.lose = func(role.Target, asked) bool { return false }
	w.setTargets(
		role.Probes{Interval: time.Second, MaxLost: 5, Targets: map[string]role.Target{"west": {IP: w.ip, Fast: true}}},
		nil)
	return w
}

// read has the answers in the socket taken.
func (w *fastWorld) read() {
	w.socket.Lock()
	unread := w.unread
	w.unread = nil
	w.socket.Unlock()
	for _, take := range unread {
		take()
	}
}

// run lets time pass, and returns how much.
func (w *fastWorld) run(until func() bool) time.Duration {
	start := time.Now()
	for !until() {
		wait := w.sendDue(func(t role.Target, a asked) error {
			w.sent++
			if !w.lose(t, a) {
				from := w.ip
				if a.kind != pinging {
					from = netip.Addr{}
				}
				time.AfterFunc(w.rtt(), func() {
					arrived := time.Now()
					w.socket.Lock()
					w.unread = append(w.unread, func() { w.answered(a.seq, from, a.nonce[:], arrived) })
					w.socket.Unlock()
					time.AfterFunc(w.behind, w.read)
				})
			}
			return nil
		}, &w.next)
		for wait += w.stall(); wait > 0 && !until(); wait -= time.Millisecond {
			time.Sleep(min(wait, time.Millisecond))
			synctest.Wait()
		}
	}
	return time.Since(start)
}

func (w *fastWorld) status() submarinerv1.ConnectionStatus { return w.health()["west"].Status }

func after(d time.Duration) func() bool {
	start := time.Now()
	return func() bool { return time.Since(start) >= d }
}

// A target that is Fast is down 0.1 to 0.2 s after it has stopped answering, or as much later as
// answers take, and not earlier. It is up again when it answers several pings.
func TestFast(t *testing.T) {
	for rtt, most := range map[time.Duration]time.Duration{
		time.Millisecond:       205 * time.Millisecond,
		15 * time.Millisecond:  250 * time.Millisecond,
		120 * time.Millisecond: 490 * time.Millisecond,
	} {
		for moment := range 10 {
			synctest.Test(t, func(t *testing.T) {
				w := newFastWorld(rtt)
				w.lose = func(role.Target, asked) bool { return w.sent%10 == 0 }
				w.run(after(20*time.Second + time.Duration(moment)*10*time.Millisecond))
				require.Equal(t, 1, w.changes, "connected once, and then nothing changed")
				require.InDelta(t, 330, w.sent, 110, "200, and at most seven more for each that is lost")
				w.lose = func(role.Target, asked) bool { return true }
				took := w.run(func() bool { return w.status() == submarinerv1.ConnectionError })
				require.Less(t, took, most)
				require.Greater(t, took, 95*time.Millisecond)
				w.run(after(time.Second))
				w.lose = func(role.Target, asked) bool { return false }
				took = w.run(func() bool { return w.status() == submarinerv1.Connected })
				require.InDelta(t, 450, (took - rtt).Milliseconds(), 100)
				require.LessOrEqual(t, len(w.byOrder), underWay)
			})
		}
	}
}

// A target that fails again soon after it has returned returns later each time, after 4 s at most;
// and as soon as ever once it was steady.
func TestFastAndFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFastWorld(time.Millisecond)
		w.run(after(10 * time.Second))
		for _, turn := range []struct{ wants, up time.Duration }{
			{500 * time.Millisecond, time.Second},
			{time.Second, time.Second},
			{2 * time.Second, time.Second},
			{4 * time.Second, time.Second},
			{4 * time.Second, role.Steady + time.Second},
			{500 * time.Millisecond, time.Second},
		} {
			w.lose = func(role.Target, asked) bool { return true }
			w.run(func() bool { return w.status() == submarinerv1.ConnectionError })
			w.lose = func(role.Target, asked) bool { return false }
			took := w.run(func() bool { return w.status() == submarinerv1.Connected })
			require.InEpsilon(t, turn.wants, took, 0.15)
			w.run(after(turn.up))
		}
	})
}

// A target that loses half of its packets is down and does not come back for every answer.
func TestFastAndLossy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFastWorld(time.Millisecond)
		random := rand.New(rand.NewPCG(1, 2))
		w.lose = func(role.Target, asked) bool { return random.Float64() < 0.75 } // in both directions
		w.run(after(time.Minute))
		require.Less(t, w.changes, 8)
	})
}

// At 2 % random loss in either direction, nothing is removed in ten minutes, wherever answers come
// from and however they vary.
func TestFastAndRandomLoss(t *testing.T) {
	for seed := range uint64(3) {
		for _, rtt := range []time.Duration{0, 10 * time.Millisecond, 200 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, uint64(rtt)))
				w := newFastWorld(rtt)
				w.rtt = func() time.Duration {
					return rtt + time.Duration(random.Int64N(int64(rtt/2+time.Millisecond)))
				}
				w.lose = func(role.Target, asked) bool { return random.Float64() < 0.04 }
				w.run(after(10 * time.Minute))
				require.Equal(t, 1, w.changes, "connected, and never removed")
				require.InDelta(t, 6750, w.sent, 900)
			})
		}
	}
}

// Where answers suddenly take up to 90 ms longer, nothing is removed, and likewise where packets
// are lost for 65 ms.
func TestFastOnAnotherPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFastWorld(time.Millisecond)
		w.run(after(time.Minute))
		for _, rtt := range []time.Duration{
			80 * time.Millisecond,
			time.Millisecond,
			90 * time.Millisecond,
			time.Millisecond,
		} {
			w.rtt = func() time.Duration { return rtt }
			w.run(after(time.Minute))
		}
		for range 50 {
			back := time.Now().Add(65 * time.Millisecond)
			w.lose = func(role.Target, asked) bool { return time.Now().Before(back) }
			w.run(after(time.Second))
		}
		require.Equal(t, 1, w.changes)
	})
}

// Echoes count once one has come back, and large ones likewise: a target of an older version, or
// one with a smaller MTU, is not down. What is down is said.
func TestFastEchoes(t *testing.T) {
	for _, test := range []struct {
		name          string
		before, after [kinds]bool // which are answered
		message       string      // empty if the target is up
		by            string
	}{
		{"an older version", [kinds]bool{true, false, false}, [kinds]bool{true, false, false}, "", ""},
		{
			"an older version that fails",
			[kinds]bool{true, false, false},
			[kinds]bool{},
			"gateway gw of cluster west does not answer pings",
			"ping",
		},
		{"a smaller MTU", [kinds]bool{true, true, false}, [kinds]bool{true, true, false}, "", ""},
		{"no ping is answered", [kinds]bool{false, true, true}, [kinds]bool{false, true, true}, "", ""},
		{
			"it forwards nothing",
			[kinds]bool{true, true, true},
			[kinds]bool{true, false, false},
			"gateway gw of cluster west answers pings, but forwards no packets",
			"echo",
		},
		{
			"large packets are lost",
			[kinds]bool{true, true, true},
			[kinds]bool{true, true, false},
			"packets of 1400 bytes to gateway gw of cluster west and back are lost",
			"large echo",
		},
		{
			"it fails",
			[kinds]bool{true, true, true},
			[kinds]bool{},
			"gateway gw of cluster west answers neither echoes nor pings",
			"echo",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFastWorld(time.Millisecond)
				w.setTargets(
					role.Probes{
						Targets: map[string]role.Target{
							"west": {
								IP:   w.ip,
								Who:  "gateway gw of cluster west",
								Fast: true,
								Echo: role.Echo{Device: "d", MAC: "m", MTU: 1400},
							},
						},
					},
					nil,
				)
				answers := test.before
				w.lose = func(_ role.Target, a asked) bool { return !answers[a.kind] }
				w.run(after(10 * time.Second))
				require.Equal(t, submarinerv1.Connected, w.status())
				sent := w.sent
				w.run(after(10 * time.Second))
				require.InDelta(t, 120, w.sent-sent, 15, "pings are not sent for long, if echoes come back")
				answers = test.after
				start := time.Now()
				w.run(
					func() bool {
						return w.status() == submarinerv1.ConnectionError || time.Since(start) > time.Minute
					},
				)
				if test.message == "" {
					require.Equal(t, submarinerv1.Connected, w.status())
					return
				}
				require.Less(t, time.Since(start), 750*time.Millisecond)
				require.Contains(t, w.health()["west"].Message, test.message)
				require.Equal(t, test.by, w.health()["west"].By)
				require.WithinDuration(t, time.Now(), w.health()["west"].Since, time.Second)
				w.run(after(time.Minute))
				require.Equal(t, submarinerv1.ConnectionError, w.status(), "it does not flap")
				answers = test.before
				start = time.Now()
				w.run(func() bool { return w.status() == submarinerv1.Connected })
				require.Less(t, time.Since(start), 3*time.Second)
			})
		})
	}
}

// A thousand targets get a thousand pings a second, and each is found down in time.
func TestManyFastTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		w := newFastWorld(time.Millisecond)
		targets := map[string]role.Target{}
		for i := range n {
			targets[fmt.Sprint(i)] = role.Target{IP: w.ip, Fast: true}
		}
		w.setTargets(role.Probes{Interval: time.Second, MaxLost: 5, Targets: targets}, nil)
		w.run(after(3 * time.Second))
		before := w.sent
		w.run(after(10 * time.Second))
		require.InDelta(t, 10*n, w.sent-before, n)
		down := func() (down int) {
			for _, h := range w.health() {
				if h.Status == submarinerv1.ConnectionError {
					down++
				}
			}
			return down
		}
		require.Zero(t, down())
		require.Equal(t, role.FastRetryMany, w.pings["1"].retry(), "they may all fail at once")
		w.lose = func(role.Target, asked) bool { return true }
		require.LessOrEqual(t, w.run(func() bool { return down() == n }), 1500*time.Millisecond)
	})
}

// The time between two probes varies, so that the probes of many nodes do not stay in step, and is
// never longer than the interval. A large echo goes with a small one, and so do other pings that
// are due soon: each time that the prober wakes up costs.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFastWorld(time.Millisecond)
		w.setTargets(role.Probes{Interval: time.Second, MaxLost: 5, Targets: map[string]role.Target{
			"west": {IP: w.ip, Fast: true, Echo: role.Echo{Device: "d", MAC: "m", MTU: 1400}}, "slow": {IP: w.ip},
		}}, nil)
		w.run(after(10 * time.Second))
		at := map[string][]time.Time{}
		w.lose = func(to role.Target, a asked) bool {
			what := map[kind]string{pinging: "slow", echoing: "echo", filling: "large echo"}[a.kind]
			at[what] = append(at[what], time.Now())
			return false
		}
		w.run(after(time.Minute))
		for what, most := range map[string]time.Duration{
			"slow":       time.Second,
			"echo":       role.FastInterval,
			"large echo": role.FullInterval,
		} {
			pauses := map[time.Duration]bool{}
			for i, sent := range at[what][1:] {
				pause := sent.Sub(at[what][i])
				require.LessOrEqual(t, pause, most+time.Millisecond, what) // of the simulated clock
				require.GreaterOrEqual(t, pause, most*9/10-role.FastInterval, what)
				pauses[pause] = true
				if what != "echo" {
					require.Contains(t, at["echo"], sent, what)
				}
			}
			require.Greater(t, len(pauses), 5, what)
		}
	})
}

// Where answers have taken long until now, such as before the traffic stopped, lost packets of full
// size are found nearly as soon.
func TestLargePacketsLostAfterLongRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFastWorld(time.Millisecond)
		w.setTargets(
			role.Probes{
				Targets: map[string]role.Target{
					"west": {IP: w.ip, Fast: true, Echo: role.Echo{Device: "d", MAC: "m", MTU: 1400}},
				},
			},
			nil,
		)
		w.run(after(10 * time.Second))
		w.rtt = func() time.Duration { return 600 * time.Millisecond }
		w.run(after(5 * time.Second))
		require.Equal(t, submarinerv1.Connected, w.status())
		w.rtt = func() time.Duration { return time.Millisecond }
		w.lose = func(_ role.Target, a asked) bool { return a.kind == filling }
		took := w.run(func() bool { return w.status() == submarinerv1.ConnectionError })
		require.Less(t, took, 1100*time.Millisecond)
		require.Equal(t, "large echo", w.health()["west"].By)
	})
}
