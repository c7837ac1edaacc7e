//go:build linux

package conntrack

import (
	"context"
	"encoding/binary"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"subctl/dataplane/kernel/netlink"
	"subctl/internal/nstest"
	"subctl/internal/prefix"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What new connections to a Service cost that begin at the pace at which TolerateNew follows them,
// for four seconds: the kernel alone, and when they are followed. The figures are of the whole
// process, which also sends the first packets: µs are of processor time, bytes are allocated.
func BenchmarkTolerateNew(b *testing.B) {
	const connections = 4 * newFlowsPerSecond
	remote := []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}
	for name, follow := range map[string]bool{"kernel alone": false, "followed": true} {
		b.Run(name, func(b *testing.B) {
			ns := nstest.New(b, "node")
			ns.Run(
				"for a in 10.1.0.5 10.2.0.5; do ip addr add $a/32 dev lo; done; ip route add 10.96.0.1 dev lo; iptables -A INPUT -p tcp -j DROP; iptables -t nat -A OUTPUT -d 10.96.0.1 -p tcp -j DNAT --to-destination 10.1.0.5")
			var h *Table
			ns.Do(func() { h = open(b) })
			ns.Do(func() {
				ctx, stop := context.WithCancel(b.Context())
				defer stop()
				if follow {
					_, err := h.TolerateNew(ctx, prefix.ContainsFunc(remote))
					require.NoError(b, err)
				}
				for b.Loop() {
					require.NoError(b, h.EndNetworks(remote, nil)) // of the last round
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					used := cpuTime(b)
					began := time.Now()
					beginConnections(b, connections)
					time.Sleep(100 * time.Millisecond) // for the last ones
					runtime.ReadMemStats(&after)
					b.ReportMetric((cpuTime(b)-used)/connections, "µs/connection")
					b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/connections, "bytes/connection")
					b.ReportMetric(connections/time.Since(began).Seconds(), "connections/s")
				}
				n := 0
				require.NoError(
					b,
					h.conn.Each(
						unix.NFNL_SUBSYS_CTNETLINK<<8|ctGet,
						netlink.NetfilterHeader(unix.AF_INET),
						func(m []byte) {
							if liberal(m) {
								n++
							}
						},
					),
				)
				b.ReportMetric(float64(n)/connections*100, "%-tolerated")
			})
		})
	}
}

// beginConnections sends the first packets of n TCP connections, each from another port, at the
// pace at which they are followed.
func beginConnections(b *testing.B, n int) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	require.NoError(b, err)
	defer unix.Close(fd)
	require.NoError(b, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{10, 2, 0, 5}}))
	to := &unix.SockaddrInet4{Addr: [4]byte{10, 96, 0, 1}}
	syn := make([]byte, 20) // without checksum: connection tracking ignores that in packets of the node itself
	binary.BigEndian.PutUint16(syn[2:], 80)
	syn[12] = 5 << 4
	syn[13] = 0x02 // the length in words of 32 bits, and SYN
	began := time.Now()
	for i := range n {
		if i%50 == 0 {
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / newFlowsPerSecond)))
		}
		binary.BigEndian.PutUint16(syn, uint16(1024+i))
		if err := unix.Sendto(fd, syn, 0, to); err != nil {
			b.Error(err)
			return
		}
	}
}

// cpuTime returns the processor time, in microseconds, that this process has used.
func cpuTime(b *testing.B) (us float64) {
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1000
}
