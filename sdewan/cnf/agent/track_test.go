package agent

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"subctl/sdewan"
	"subctl/sdewan/cnf"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// An uplink goes offline after Down failed rounds in a row, and online after Up that succeed, as
// mwan3track does it.
func TestTrackerScore(t *testing.T) {
	u := sdewan.DefaultUplink
	u.TrackIPs = []netip.Addr{
		netip.MustParseAddr("192.0.2.1"),
		netip.MustParseAddr("192.0.2.2"),
		netip.MustParseAddr("192.0.2.3"),
	}
	u.Reliability = 2
	u.Up = 3
	u.Down = 2
	for _, test := range []struct{ name, rounds, online string }{ // of rounds, the number of hosts that answer
		{"one of three is not enough", "3211", "ooo-"},
		{"only failures in a row count", "1212121", "ooooooo"},
		{"only successes in a row count", "00220222", "o------o"},
		{"as good as new when it is back", "0022202", "o---ooo"},
	} {
		tr := newTracker("net1", 0x100, u)
		tr.link(true)
		tr.routed()
		got := ""
		for _, n := range test.rounds {
			was := tr.online
			changed := tr.result(tr.begin(t.Context()), []host{{up: n > '0'}, {up: n > '1'}, {up: n > '2'}})
			require.Equal(t, was != tr.online, changed)
			got += map[bool]string{true: "o", false: "-"}[tr.online]
		}
		require.Equal(t, test.online, got, test.name)
	}
}

// An uplink whose device comes up is online until pings fail, unless it was offline before: then
// one round that succeeds is enough.
func TestTrackerLink(t *testing.T) {
	u := sdewan.DefaultUplink
	u.TrackIPs = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	u.Up = 3
	u.Down = 2
	tr := newTracker("net1", 0x100, u)
	round := func(up bool) bool {
		tr.result(tr.begin(t.Context()), []host{{up: up}})
		return tr.link(true)
	}
	link := func(up bool) bool {
		online := tr.link(up)
		tr.routed()
		return online
	}
	require.True(t, link(true))
	require.True(t, round(false))
	link(false)
	require.True(t, link(true))
	require.True(t, round(false), "failures before do not count")
	require.False(t, round(false))
	require.False(t, round(true))
	link(false)
	require.False(t, link(true), "nothing has shown that it works")
	require.False(t, round(false))
	require.True(t, round(true))
	require.True(t, round(false))
	require.False(t, round(false))
	require.False(t, round(true), "without a change of the device, one round is not enough")
}

// After the device has come up, the first round begins at once when the kernel has the routes, and
// not before.
func TestTrackerWaitsForRoutes(t *testing.T) {
	u := sdewan.DefaultUplink
	u.TrackIPs = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	u.Interval = sdewan.MaxUplinkNumber
	tr := newTracker("net1", 0x100, u)
	tr.routed()
	require.Nil(t, tr.begin(t.Context()), "the device is down")
	tr.link(true)
	require.Nil(t, tr.begin(t.Context()))
	require.Empty(t, tr.due)
	tr.routed()
	require.NotNil(t, tr.begin(t.Context()))
	<-tr.due
	tr.link(true)
	tr.routed()
	require.Empty(t, tr.due, "nothing has changed")
	tr.link(false)
	tr.routed()
	require.Nil(t, tr.begin(t.Context()))
	tr.link(true)
	tr.wait = time.Now() // an interval is over, and the kernel refuses a part of the plan
	require.NotNil(t, tr.begin(t.Context()))
	tr.routed()
	require.NotEmpty(t, tr.due)
}

// If the device has changed since a round began, the result of the round is ignored, whether it
// failed or succeeded.
func TestTrackerForgetsOldRounds(t *testing.T) {
	u := sdewan.DefaultUplink
	u.TrackIPs = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	u.Up = 3
	u.Down = 1
	tr := newTracker("net1", 0x100, u)
	flap := func() context.Context {
		tr.link(true)
		tr.routed()
		round := tr.begin(t.Context())
		tr.link(false)
		require.Error(t, round.Err(), "the pings go on")
		tr.link(true)
		tr.routed()
		return round
	}
	require.False(t, tr.result(flap(), []host{{}}))
	require.True(t, tr.link(true), "a failure of before counts")
	require.True(t, tr.result(tr.begin(t.Context()), []host{{}}))
	require.False(t, tr.result(flap(), []host{{up: true}}))
	require.False(t, tr.link(true), "a success of before counts")
	require.True(t, tr.result(tr.begin(t.Context()), []host{{up: true}}))
}

// A round begins every Interval, counted from the one that began when the link came up, or within
// two intervals if the kernel does not get its routes.
func TestTrackerRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := sdewan.DefaultUplink
		u.TrackIPs = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
		tr := newTracker("net1", 0x100, u)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		start := time.Now()
		var rounds []int // seconds
		go tr.run(ctx, func(context.Context, Ping) (float64, []time.Duration, error) {
			rounds = append(rounds, int(time.Since(start).Seconds()))
			return 0, nil, nil
		}, func(cnf.Quality) bool { return false }, func() {})
		after := func(s int) { time.Sleep(time.Duration(s) * time.Second) }
		after(3)
		tr.link(true)
		after(1)
		tr.routed()
		after(21) // 25
		tr.link(false)
		after(1)
		tr.link(true)
		after(1)
		tr.routed()
		after(11) // 38
		tr.link(false)
		tr.link(true) // and the kernel refuses a part of the plan
		after(22)     // 60
		end()
		synctest.Wait()
		require.Equal(t, []int{4, 14, 24, 27, 37, 57}, rounds)
	})
}

// An uplink exceeds a limit as soon as what its pings lose does, and is within it again only when
// it has been so for Up rounds: losses around the limit do not make connections change each time.
func TestTrackerQuality(t *testing.T) {
	u := sdewan.DefaultUplink
	u.TrackIPs = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	u.Count = 20
	u.Up = 3
	tr := newTracker("net1", 0x100, u)
	tr.link(true)
	tr.routed()
	limit := rest.Member{MaxLoss: "10", MaxLatency: "50", MaxJitter: "5"}
	round := func(lost float64, rtts ...time.Duration) bool {
		tr.result(tr.begin(t.Context()), []host{{up: true, lost: lost, rtts: rtts}})
		return tr.quality().Exceeds(limit)
	}
	const ms = time.Millisecond
	require.False(t, round(10, 50*ms, 50*ms), "a limit itself is allowed")
	require.True(t, round(15, 20*ms))
	require.True(t, round(0, 20*ms))
	require.True(t, round(0, 20*ms))
	require.False(t, round(0, 20*ms))
	require.True(t, round(0, 60*ms), "latency")
	for range 3 {
		round(0, 20*ms)
	}
	require.True(t, round(0, 20*ms, 30*ms, 20*ms), "jitter")
	require.True(t, tr.online)
	tr.link(false)
	tr.link(true)
	require.False(t, tr.quality().Exceeds(limit), "what was measured on another line does not count")
}

// Few packets for each round: one that is lost is not all, and a host that is dead does not count
// if another one is enough.
func TestTrackerQualityOfSinglePings(t *testing.T) {
	u := sdewan.DefaultUplink
	u.TrackIPs = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	tr := newTracker("net1", 0x100, u)
	tr.link(true)
	tr.routed()
	tr.result(tr.begin(t.Context()), []host{{lost: 100}, {lost: 100}})
	require.Equal(t, cnf.Quality{Loss: 5}, tr.quality())
	tr.result(tr.begin(t.Context()), []host{{lost: 100}, {up: true, rtts: []time.Duration{time.Millisecond}}})
	require.Equal(t, cnf.Quality{Loss: 5, Latency: time.Millisecond}, tr.quality())
}
