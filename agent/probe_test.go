package agent

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
)

// lose pretends that so many pings went out and none was answered.
func (p *prober) lose(n int) {
	for range n {
		for name, g := range p.pings {
			if !g.sent.IsZero() {
				g.lost++
				p.judge(g)
			}
			g.seq++
			g.sent, g.started = time.Now(), true
			p.byOrder[g.seq] = name
		}
	}
}

func TestProber(t *testing.T) {
	changes := 0
	p := newProber(slog.New(slog.DiscardHandler), func() { changes++ })
	west := netip.MustParseAddr("10.112.1.1")
	p.set(Probes{Interval: time.Second, MaxLost: 2, Targets: map[string]Target{"west": {IP: west}}})
	require.Empty(t, p.health(), "nothing is known before the first ping")

	p.lose(1)
	require.Equal(t, submarinerv1.Connecting, p.health()["west"].Status)
	g := p.pings["west"]
	p.answered(g.seq, netip.MustParseAddr("10.112.1.99"), time.Now())
	require.Equal(t, submarinerv1.Connecting, p.health()["west"].Status, "somebody else answered")
	p.answered(g.seq-1, west, time.Now())
	require.Equal(t, submarinerv1.Connecting, p.health()["west"].Status, "too late an answer")
	p.answered(g.seq, west, g.sent.Add(3*time.Millisecond))
	h := p.health()["west"]
	require.Equal(t, submarinerv1.Connected, h.Status)
	require.Equal(t, "3ms", h.RTT.strings().Average)
	require.Equal(t, 1, changes)

	p.lose(3)
	require.Equal(t, submarinerv1.Connected, p.health()["west"].Status, "two may be lost")
	p.lose(1)
	h = p.health()["west"]
	require.Equal(t, submarinerv1.ConnectionError, h.Status)
	require.Equal(t, `Failed to successfully ping the remote endpoint IP "10.112.1.1"`, h.Message)

	p.answered(p.pings["west"].seq, west, time.Now())
	require.Equal(t, submarinerv1.Connected, p.health()["west"].Status)
	require.Empty(t, p.health()["west"].Message)

	p.set(Probes{Interval: time.Second, MaxLost: 2, Targets: map[string]Target{"west": {IP: netip.MustParseAddr("10.112.2.1")}}})
	require.Empty(t, p.health(), "another address is another story")
}

func TestRTT(t *testing.T) {
	var r RTT
	require.Nil(t, r.strings())
	for _, ms := range []int{2, 4, 4, 4, 5, 5, 7, 9} {
		r.add(time.Duration(ms) * time.Millisecond)
	}
	s := r.strings()
	require.Equal(t, submarinerv1.LatencyRTT{Last: "9ms", Min: "2ms", Average: "5ms", Max: "9ms", StdDev: "2ms"}, *s)
}
