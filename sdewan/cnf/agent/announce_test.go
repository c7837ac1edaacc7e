package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// Each address is announced three times from when it, its device or its MAC address is new, when
// the device comes up, and when the CNF opens.
func TestAnnouncementsAreDue(t *testing.T) {
	now := time.Now()
	c := claims{}
	net0 := dataplane.NetDevice{
		Name:  "net0",
		Index: 2,
		MAC:   "02:00:00:00:00:01",
		Up:    true,
		ARP:   []netip.Addr{netip.MustParseAddr("192.0.2.1")},
	}
	look := func(after time.Duration, open bool, devices ...dataplane.NetDevice) (out []string) {
		now = now.Add(after)
		for _, d := range c.due(dataplane.Network{Devices: devices}, open, now) {
			out = append(out, d.device+" "+d.ip.String())
		}
		return out
	}
	thrice := func(what string, open bool, want string, devices ...dataplane.NetDevice) {
		t.Helper()
		for range announcements {
			require.Equal(t, []string{want}, look(announceGap, open, devices...), what)
			require.Empty(t, look(announceGap/2, open, devices...), what+": not before the gap has passed")
			require.LessOrEqual(t, c.next(now, time.Hour), time.Hour)
		}
		require.Empty(t, look(announceGap, open, devices...), what+": no more")
		require.Equal(t, time.Hour, c.next(now, time.Hour), what+": nothing keeps the agent awake")
	}
	thrice("start", false, "net0 192.0.2.1", net0)
	thrice("open", true, "net0 192.0.2.1", net0)

	changed := net0
	changed.MAC = "02:00:00:00:00:02"
	thrice("MAC", true, "net0 192.0.2.1", changed)
	changed.Index = 3
	thrice("device", true, "net0 192.0.2.1", changed)
	changed.ARP = append(changed.ARP, netip.MustParseAddr("192.0.2.7"))
	thrice("address", true, "net0 192.0.2.7", changed)
	changed.ARP = changed.ARP[:1]

	down := changed
	down.Up = false
	require.Empty(t, look(announceGap, true, down))
	thrice("up", true, "net0 192.0.2.1", changed)

	c = claims{}
	look(0, true, net0)
	require.Equal(t, announceGap, c.next(now, time.Hour))
	require.Equal(t, time.Millisecond, c.next(now, time.Millisecond))
}

// What cannot be announced is logged once.
func TestAnnouncementFails(t *testing.T) {
	var log bytes.Buffer
	tries := 0
	a := New(
		Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Kernel: Kernel{Announce: func(string, netip.Addr) error {
			tries++
			return errors.New("not permitted")
		}}},
	)
	n := dataplane.Network{
		Devices: []dataplane.NetDevice{
			{Name: "net0", Index: 2, Up: true, ARP: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		},
	}
	a.announce(n, false)
	a.announce(n, true)
	require.Equal(t, 2, tries)
	require.Equal(t, 1, strings.Count(log.String(), "not permitted"))
}
