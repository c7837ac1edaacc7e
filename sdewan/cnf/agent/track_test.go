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
	tr := newTracker("net1", 0x100, u)
	tr.link(true)
	tr.result(make([]host, 3))
	tr.result(make([]host, 3))
	require.False(t, tr.online)
	require.False(t, tr.link(true))
	tr.link(false)
	require.True(t, tr.link(true), "a device that comes up is online until pings fail")
}
