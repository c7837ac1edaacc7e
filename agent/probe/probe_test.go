package probe

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// lose pretends that so many pings went out and none was answered.
func (p *Prober) lose(n int) {
	for range n {
		for name, g := range p.pings {
			if g.waiting {
				g.lost++
				p.countLost(g)
			}
			a := g.ask(g.last().seq+1, time.Now(), p.forget)
			g.started = true
			p.byOrder[a.seq] = sentTo{name, a.nonce}
		}
	}
}

// last returns the last ping of a target.
func (g *pinged) last() asked {
	if len(g.asked) == 0 {
		return asked{seq: 1000}
	}
	return g.asked[len(g.asked)-1]
}

func TestProber(t *testing.T) {
	changes := 0
	p := New(Options{Log: slog.New(slog.DiscardHandler), Trigger: func() { changes++ }})
	west := netip.MustParseAddr("10.112.1.1")
	p.setTargets(role.Probes{Interval: time.Second, MaxLost: 2, Targets: map[string]role.Target{"west": {IP: west}}}, nil)
	require.Empty(t, p.health(), "nothing is known before the first ping")

	p.lose(1)
	require.Equal(t, submarinerv1.Connecting, p.health()["west"].Status)
	g := p.pings["west"].last()
	p.answered(g.seq, netip.MustParseAddr("10.112.1.99"), g.nonce[:], time.Now())
	require.Equal(t, submarinerv1.Connecting, p.health()["west"].Status, "somebody else answered")
	p.answered(g.seq-1, west, g.nonce[:], time.Now())
	require.Equal(t, submarinerv1.Connecting, p.health()["west"].Status, "too late an answer")
	p.answered(g.seq, west, []byte("guessed"), time.Now())
	require.Equal(t, submarinerv1.Connecting, p.health()["west"].Status,
		"somebody answered who has not received the ping")
	p.answered(g.seq, west, g.nonce[:], g.sent.Add(3*time.Millisecond))
	h := p.health()["west"]
	require.Equal(t, submarinerv1.Connected, h.Status)
	mean, ok := h.RTT.Mean()
	require.True(t, ok)
	require.InDelta(t, 0.003, mean, 1e-9)
	require.Equal(t, 1, changes)

	p.lose(3)
	require.Equal(t, submarinerv1.Connected, p.health()["west"].Status, "two may be lost")
	p.lose(1)
	h = p.health()["west"]
	require.Equal(t, submarinerv1.ConnectionError, h.Status)
	require.Equal(t, `Failed to successfully ping the remote endpoint IP "10.112.1.1"`, h.Message)

	g = p.pings["west"].last()
	p.answered(g.seq, west, g.nonce[:], time.Now())
	require.Equal(t, submarinerv1.Connected, p.health()["west"].Status)
	require.Empty(t, p.health()["west"].Message)

	p.setTargets(
		role.Probes{
			Interval: time.Second,
			MaxLost:  2,
			Targets:  map[string]role.Target{"west": {IP: netip.MustParseAddr("10.112.2.1")}},
		},
		nil,
	)
	require.Empty(t, p.health(), "another address is another story")
}

// An answer counts as late as it arrived, however much later it is read; but not before the probe
// was sent: then the clock was set.
func TestAnswersReadLate(t *testing.T) {
	for arrival, rtt := range map[time.Duration]time.Duration{
		2 * time.Millisecond: 2 * time.Millisecond,
		-time.Hour:           30 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newFastWorld(time.Millisecond)
			var g asked
			w.sendDue(func(_ role.Target, a asked) error { g = a; return nil }, &w.next)
			time.Sleep(30 * time.Millisecond)
			w.answered(g.seq, w.ip, g.nonce[:], g.sent.Add(arrival))
			require.Equal(t, submarinerv1.Connected, w.status())
			require.Equal(t, rtt, w.pings["west"].fast.longest)
			require.Equal(t, rtt, w.health()["west"].RTT.Max())
		})
	}
}

// Sequence numbers are used again after 65,536 probes: 65 s at 1,000 a second. A probe that is
// forgotten takes nothing away from a newer one with the same number, whether to another target or
// to the same.
func TestProbeNumbersWrap(t *testing.T) {
	for _, newer := range []string{"east", "west"} {
		p := New(Options{Log: slog.New(slog.DiscardHandler), Trigger: func() {}})
		target := func(n byte, fast bool) role.Target {
			return role.Target{IP: netip.AddrFrom4([4]byte{192, 0, 2, n}), Fast: fast}
		}
		targets := map[string]role.Target{"west": target(1, true)}
		sent := map[netip.Addr]asked{}
		next := uint16(0)
		send := func(targetsDue map[string]role.Target) {
			p.setTargets(role.Probes{Interval: time.Hour, MaxLost: 2, Targets: targetsDue}, nil)
			p.sendDue(func(to role.Target, a asked) error { sent[to.IP] = a; return nil }, &next)
		}
		send(targets)
		old := sent[targets["west"].IP]
		for range underWay - 1 { // until the next one displaces the first
			p.pings["west"].fast.streams[pinging].due = time.Now()
			send(targets)
		}
		if newer == "east" {
			next = old.seq - 1
			targets["east"] = target(2, false)
			send(targets)
			next = 1000
		} else {
			next = old.seq - 1
		}
		p.pings["west"].fast.streams[pinging].due = time.Now()
		send(targets)
		a := sent[targets[newer].IP]
		to := targets[newer].IP
		require.Equal(t, old.seq, a.seq)
		require.NotContains(t, p.pings["west"].outstanding(), old)
		p.answered(a.seq, to, a.nonce[:], time.Now())
		require.Equal(t, submarinerv1.Connected, p.health()[newer].Status, newer)
	}
}

// A target whose first ping is due later starts anew: answers to earlier pings do not count.
func TestFirstPing(t *testing.T) {
	p := New(Options{Log: slog.New(slog.DiscardHandler), Trigger: func() {}})
	target := role.Target{IP: netip.MustParseAddr("192.0.2.1"), Eager: true}
	set := func() {
		p.setTargets(role.Probes{Interval: time.Minute, Targets: map[string]role.Target{"west": target}}, nil)
	}
	set()
	next := uint16(0)
	send := func(role.Target, asked) error { return nil }
	p.sendDue(send, &next)
	g := p.pings["west"].last()
	target.First = time.Now().Add(time.Minute)
	set()
	wait := p.sendDue(send, &next)
	p.answered(g.seq, target.IP, g.nonce[:], time.Now())
	require.Empty(t, p.health())
	require.InDelta(t, 60, wait.Seconds(), 5)
}

// Targets that are due at about the same time are pinged at the same time, and from then on.
func TestPingsTogether(t *testing.T) {
	p := New(Options{Log: slog.New(slog.DiscardHandler), Trigger: func() {}})
	ip := netip.MustParseAddr("192.0.2.1")
	p.setTargets(
		role.Probes{
			Interval: time.Minute,
			MaxLost:  2,
			Targets:  map[string]role.Target{"east": {IP: ip}, "north": {IP: ip}, "west": {IP: ip}},
		},
		nil,
	)
	now := time.Now()
	p.pings["east"].due = now
	p.pings["north"].due = now.Add(5 * time.Second)
	p.pings["west"].due = now.Add(45 * time.Second)
	next := uint16(0)
	sent := 0
	wait := p.sendDue(func(role.Target, asked) error { sent++; return nil }, &next)
	require.Equal(t, 2, sent)
	require.Equal(t, p.pings["east"].due, p.pings["north"].due)
	require.False(t, p.pings["west"].started, "it is due much later")
	require.InDelta(t, 45, wait.Seconds(), 5)

	t.Log("a target that is pinged more often does not pull the others along")
	p.pings["west"].target.Eager = true
	p.pings["west"].due = now
	p.pings["east"].due = now.Add(10 * time.Second)
	sent = 0
	p.sendDue(func(role.Target, asked) error { sent++; return nil }, &next)
	require.Equal(t, 1, sent)
}

// The target of a cable that the node does not hold stays as it is, and is none if it was
// none; all others follow the plan.
func TestProberOfBrokenCables(t *testing.T) {
	p := New(Options{Log: slog.New(slog.DiscardHandler), Trigger: func() {}})
	ip := func(n byte) role.Target { return role.Target{IP: netip.AddrFrom4([4]byte{10, 112, 1, n})} }
	plan := func(targets map[string]role.Target) role.Plan {
		return role.Plan{Decisions: &mesh.Plan{Mesh: &mesh.Mesh{}}, Probes: role.Probes{
			Interval: time.Second,
			Targets:  targets,
		}}
	}
	targets := func() map[string]role.Target {
		out := map[string]role.Target{}
		for name, g := range p.pings {
			out[name] = g.target
		}
		return out
	}
	before := map[string]role.Target{"east": ip(1), "west": ip(2), "gone": ip(3)}
	p.Act(role.Snapshot{}, plan(before), &role.Outcome{})
	require.Equal(t, before, targets())
	why := errors.New("refused")
	out := &role.Outcome{Err: why, Broken: map[string]error{"west": why, "north": why, "gone": why}}
	p.Act(role.Snapshot{}, plan(map[string]role.Target{"east": ip(11), "west": ip(12), "north": ip(13)}), out)
	require.Equal(t, map[string]role.Target{"east": ip(11), "west": ip(2)}, targets())
	p.Act(role.Snapshot{}, role.Plan{}, &role.Outcome{Err: why})
	require.Len(t, p.pings, 2, "a mistake of the user leaves the targets alone")
}

// A new cable is known to work soon even if an answer takes longer than the time between eager
// pings, as across an ocean.
func TestEagerAndFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Options{Log: slog.New(slog.DiscardHandler), Trigger: func() {}})
		ip := netip.MustParseAddr("192.0.2.1")
		p.setTargets(
			role.Probes{
				Interval: time.Second,
				MaxLost:  5,
				Targets:  map[string]role.Target{"west": {IP: ip, Eager: true}},
			},
			nil,
		)
		next := uint16(0)
		start := time.Now()
		send := func(_ role.Target, a asked) error {
			time.AfterFunc(600*time.Millisecond, func() { p.answered(a.seq, ip, a.nonce[:], time.Now()) })
			return nil
		}
		for p.health()["west"].Status != submarinerv1.Connected && time.Since(start) < time.Minute {
			time.Sleep(p.sendDue(send, &next))
		}
		require.Less(t, time.Since(start), 3*time.Second)
	})
}
