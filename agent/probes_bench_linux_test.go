package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/mesh"
	"subctl/agent/parts"
	"subctl/agent/probe"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	kernelprobe "subctl/dataplane/kernel/probe"
	"subctl/internal/measure"
	"subctl/internal/nstest"
)

// BenchmarkProbes measures what it costs to probe many gateways, all of which answer: pings until
// echoes have come back, and then echoes, some as large as the MTU. All gateways are addresses of
// one node. The time that the kernel takes to send counts, and with it most of what it takes to
// forward an echo back.
func BenchmarkProbes(b *testing.B) {
	nstest.Root(b)
	here := nstest.New(b, "here")
	there := nstest.New(b, "there")
	nstest.Join(nstest.End{NS: here, Dev: "eth0", Addr: "10.9.0.1/16"},
		nstest.End{NS: there, Dev: "eth0", Addr: "10.9.0.2/16"})
	there.Run(
		"sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0 net.ipv4.conf.eth0.send_redirects=0 net.ipv4.conf.all.send_redirects=0")
	here.Run(
		"sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0 net.ipv4.conf.eth0.accept_local=1")
	mac := strings.Fields(there.Run("ip -o link show eth0 | grep -o 'link/ether.*'"))[1]
	const most = 1000
	here.Run(fmt.Sprintf("ip neigh add 10.9.0.2 lladdr %s dev eth0", mac))
	there.Run(
		fmt.Sprintf(
			"for i in $(seq %d); do echo addr add 10.9.$((16 + i / 250)).$((1 + i %% 250))/32 dev eth0; done | ip -batch -",
			most),
	)
	for _, n := range []int{100, most} {
		targets := map[string]role.Target{}
		for i := 1; i <= n; i++ {
			targets[fmt.Sprint(i)] = role.Target{
				IP: netip.AddrFrom4(
					[4]byte{10, 9, byte(16 + i/250), byte(1 + i%250)}),
				From: netip.MustParseAddr("10.9.0.1"),
				Fast: true,
				Echo: role.Echo{Device: "eth0", MAC: mac, MTU: 1500},
			}
		}
		made, err := parts.New([]role.Part{role.Probing}, parts.Options{
			Log: slog.New(slog.DiscardHandler), Trigger: func() {}, Ignored: func() {},
			NewArrivals: func(conn syscall.Conn, size int) (probe.Arrivals, error) {
				return kernelprobe.NewArrivals(conn, size)
			},
			ListenEchoes: func(ctx context.Context, port, size int) (probe.Echoes, error) {
				return kernelprobe.ListenEchoes(ctx, port, size)
			},
		})
		require.NoError(b, err)
		prober := made[0].(interface {
			Start(context.Context) error
			parts.Actor
			parts.Observer
		})
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go here.Do(func() { done <- prober.Start(ctx) })
		prober.Act(
			role.Snapshot{},
			role.Plan{
				Decisions: &mesh.Plan{},
				Probes:    role.Probes{Interval: time.Second, MaxLost: 5, Targets: targets, Echo: dataplane.EchoPort},
			},
			&role.Outcome{},
		)
		time.Sleep(5 * time.Second)
		var connected int
		var s role.Snapshot
		require.NoError(b, prober.Observe(&s))
		for _, h := range s.Health {
			if h.Status == submarinerv1.Connected {
				connected++
			}
		}
		require.Equal(b, n, connected)
		forwarded := func() (packets int) {
			_, err := fmt.Sscan(there.Run("awk '/^Ip: [0-9]/ {print $7}' /proc/net/snmp"), &packets)
			require.NoError(b, err)
			return packets
		}
		before := forwarded()
		const span = 10 * time.Second
		busy := 100 * measure.CPU(b, func() { time.Sleep(span) }) / span.Seconds()
		require.Greater(b, forwarded()-before, 8*n, "echoes have come back from each at least once a second")
		name := fmt.Sprintf("CPU time of probing %d gateways, of a core", n)
		if n == most {
			measure.Record(b, measure.AtMost(name, measure.Values{busy}, 5, "%"))
		} else {
			measure.Record(b, measure.Info(name, measure.Values{busy}, "%"))
		}
		require.NoError(b, prober.Observe(&s))
		for name, h := range s.Health {
			require.Equal(b, submarinerv1.Connected, h.Status, "%s: %s", name, h.Message)
		}
		stop()
		require.NoError(b, <-done)
	}
}
