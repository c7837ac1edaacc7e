package agent

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"subctl/sdewan"

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
		go tr.run(ctx, func(context.Context, Ping) (float64, time.Duration, error) {
			rounds = append(rounds, int(time.Since(start).Seconds()))
			return 0, 0, nil
		}, func() {})
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
