package measure

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/nstest"
)

// link connects two namespaces by a pair of devices.
func link(t *testing.T) Path {
	t.Helper()
	a := nstest.New(t, "a")
	b := nstest.New(t, "b")
	nstest.Join(nstest.End{NS: a, Dev: "eth0", Addr: "192.0.2.1/24"},
		nstest.End{NS: b, Dev: "eth0", Addr: "192.0.2.2/24"})
	OneCPU(t, a, b)
	return Path{From: nstest.Host{NS: a, IP: "192.0.2.1"}, To: nstest.Host{NS: b, IP: "192.0.2.2"}}
}

// A path is found to be worse than another, from which it differs in one thing only.
func TestPath(t *testing.T) {
	ours := link(t)
	other := link(t)
	ours.Window = 4096
	require.Less(
		t,
		Compare(3, func() float64 { return ours.Throughput(t) },
			func() float64 { return other.Throughput(t) }).Percent.Median(),
		90.0,
	)
	rules := strings.Repeat("-A INPUT -s 203.0.113.1 -j DROP\n", 2000)
	ours.To.NS.Run("iptables-restore <<X\n*filter\n" + rules + "COMMIT\nX")
	require.Greater(
		t,
		Compare(3, func() float64 { return ours.RoundTrip(t) },
			func() float64 { return other.RoundTrip(t) }).Percent.Median(),
		110.0,
	)
}

// Programs that take nine tenths of the CPU do not make a path nine tenths slower.
func TestPathOnBusyCPU(t *testing.T) {
	if !countsPackets() {
		t.Skip("the kernel does not count the CPU time that it spends on packets")
	}
	p := link(t)
	elsewhere := nstest.New(t, "elsewhere")
	OneCPU(t, elsewhere)
	alone := p.Throughput(t)
	for range 9 {
		elsewhere.Start("exec timeout 20 sh -c 'while :; do :; done'")
	}
	busy := 0.0
	for range 3 { // what other programs of the machine send and receive seems to be ours
		busy = max(busy, p.Throughput(t))
	}
	require.Greater(t, busy, alone/4)
}

func TestCPU(t *testing.T) {
	busy := CPU(t, func() {
		for began := time.Now(); time.Since(began) < 100*time.Millisecond; {
		}
	})
	require.Greater(t, busy, CPU(t, func() { time.Sleep(100 * time.Millisecond) }))
	require.GreaterOrEqual(t, CPUOf(t, os.Getpid()), busy)
}
