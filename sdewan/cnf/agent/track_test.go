package agent

import (
	"net/netip"
	"testing"

	"subctl/sdewan"

	"github.com/stretchr/testify/require"
)

// An uplink goes offline after Down failed rounds in a row, and online after Up that succeed, as mwan3track does it.
func TestTrackerScore(t *testing.T) {
	u := sdewan.DefaultUplink
	u.TrackIPs, u.Reliability, u.Up, u.Down = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")}, 2, 3, 2
	for _, test := range []struct{ name, rounds, online string }{ // of rounds, the number of hosts that answer
		{"one of three is not enough", "3211", "ooo-"},
		{"only failures in a row count", "1212121", "ooooooo"},
		{"only successes in a row count", "00220222", "o------o"},
		{"as good as new when it is back", "0022202", "o---ooo"},
	} {
		tr := newTracker("net1", 0x100, u)
		tr.link(true)
		got := ""
		for _, n := range test.rounds {
			was := tr.online
			changed := tr.result([]host{{up: n > '0'}, {up: n > '1'}, {up: n > '2'}})
			require.Equal(t, was != tr.online, changed)
			got += map[bool]string{true: "o", false: "-"}[tr.online]
		}
		require.Equal(t, test.online, got, test.name)
	}
}

// An uplink whose device comes up is online until pings fail, unless it was offline before: then one round that succeeds is enough.
func TestTrackerLink(t *testing.T) {
	u := sdewan.DefaultUplink
	u.TrackIPs, u.Up, u.Down = []netip.Addr{netip.MustParseAddr("192.0.2.1")}, 3, 2
	tr := newTracker("net1", 0x100, u)
	round := func(up bool) bool {
		tr.result([]host{{up: up}})
		return tr.link(true)
	}
	require.True(t, tr.link(true))
	require.NotEmpty(t, tr.cameUp, "it is pinged at once")
	require.True(t, round(false))
	tr.link(false)
	require.True(t, tr.link(true))
	require.True(t, round(false), "failures before do not count")
	require.False(t, round(false))
	require.False(t, round(true))
	tr.link(false)
	<-tr.cameUp
	require.False(t, tr.link(true), "nothing has shown that it works")
	require.NotEmpty(t, tr.cameUp)
	require.False(t, round(false))
	require.True(t, round(true))
	require.True(t, round(false))
	require.False(t, round(false))
	require.False(t, round(true), "without a change of the device, one round is not enough")
}
