//go:build linux

package kernel

import (
	"fmt"
	"testing"

	"subctl/dataplane"
	"subctl/dataplane/kernel/iptables"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// cpuTime returns the processor time, in microseconds, that was used by this process and
// by the programs that it ran and that have ended.
func cpuTime(b *testing.B) (us float64) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		require.NoError(b, unix.Getrusage(who, &u))
		us += float64(u.Utime.Nano()+u.Stime.Nano()) / 1000
	}
	return us
}

// threePeers is what a gateway holds with cables to three others.
func threePeers(b *testing.B, ipsec bool) dataplane.State {
	want := state(b, one()...)
	require.NoError(b, want.Add(wgPeer(3, "172.18.0.5:4501", "10.3.0.0/16")))
	if !ipsec {
		return want
	}
	require.NoError(b, want.Add(dataplane.IKEDaemon{Port: dataplane.IPsecPort}))
	for i := range 3 {
		require.NoError(b, want.Add(testTunnel(1, 2+i, func(t *dataplane.Tunnel) {
			t.Local = ip("172.18.0.2")
			t.Initiative = dataplane.InitiateNever
		})))
	}
	return want
}

// BenchmarkIdle measures what an agent asks of the kernel, and of the programs that stand in
// for it, while nothing changes: facts, cables and sync in each loop, and unreported four
// times a second.
func BenchmarkIdle(b *testing.B) {
	for _, ipsec := range []bool{false, true} {
		b.Run(fmt.Sprintf("IPsec=%t", ipsec), func(b *testing.B) {
			ns, h := node(b, dataplane.GatewayOwner)
			want := threePeers(b, ipsec)
			settle(b, ns, h, want)
			b.Cleanup(func() { settle(b, ns, h, nil) })
			for name, do := range map[string]func() error{
				"facts":  func() error { _, err := ReadFacts(); return err },
				"cables": func() error { _, err := h.CableStates(); return err },
				"sync":   func() error { must(b, h, want, 0); return nil },
				"sets":   func() error { _, err := iptables.SetCounts(h.conn); return err },
			} {
				b.Run(name, func(b *testing.B) {
					ns.Do(func() {
						before := cpuTime(b)
						for b.Loop() {
							require.NoError(b, do())
						}
						b.ReportMetric((cpuTime(b)-before)/float64(b.N), "cpu-us/op")
					})
				})
			}
		})
	}
}
