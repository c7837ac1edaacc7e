package probe

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	kernelprobe "subctl/dataplane/kernel/probe"
	"subctl/internal/nstest"
)

// A pod with NET_RAW answers the pings of its gateway in the name of a gateway that does not
// answer: with all identifiers, and the numbers of the next pings. It has not received the pings,
// so no answer counts.
func TestHostilePongs(t *testing.T) {
	gw := nstest.New(t, "gw")
	pod := nstest.New(t, "pod")
	nstest.Join(nstest.End{NS: gw, Dev: "up0", Addr: "10.111.1.1/24"},
		nstest.End{NS: pod, Dev: "up0", Addr: "10.111.1.5/24"})
	gw.Run(
		"ip link add vxlan-tunnel type vxlan id 1000 dstport 4502 dev up0; ip link set vxlan-tunnel up; ip addr add 241.0.1.1/8 dev vxlan-tunnel")
	p := New(Options{Log: slog.New(slog.DiscardHandler), Trigger: func() {}})
	remote := netip.MustParseAddr("241.0.2.1")
	p.setTargets(
		role.Probes{
			Interval: time.Hour,
			MaxLost:  100,
			Targets:  map[string]role.Target{"west": {IP: remote, From: netip.MustParseAddr("241.0.1.1")}},
		},
		nil,
	)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go gw.Do(func() { stopped <- p.Start(ctx) })
	defer func() {
		stop()
		require.NoError(t, <-stopped)
	}()
	require.Eventually(t, func() bool { return len(p.health()) > 0 }, 5*time.Second, time.Millisecond,
		"the ping was sent")
	pod.Do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		require.NoError(t, err)
		defer unix.Close(fd)
		for id := range 1 << 16 {
			pong := append(binary.BigEndian.AppendUint16(make([]byte, 4), uint16(id)), 0, 1)
			packet := nstest.IPv4(remote.String(), "10.111.1.1", unix.IPPROTO_ICMP, pong)
			for { // until the queue of the device has room
				err = unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: [4]byte(packet[16:20])})
				if err != unix.ENOBUFS {
					break
				}
			}
			require.NoError(t, err)
			if id%64 == 0 {
				time.Sleep(time.Millisecond) // for the queue of the gateway's socket
			}
		}
	})
	time.Sleep(100 * time.Millisecond)
	require.Equal(t, submarinerv1.Connecting, p.health()["west"].Status)
}

// The answer of another kernel counts, whether this kernel notes when it arrives or not.
func TestPongs(t *testing.T) {
	here := nstest.New(t, "here")
	there := nstest.New(t, "there")
	nstest.Join(nstest.End{NS: here, Dev: "up0", Addr: "10.111.1.1/24"},
		nstest.End{NS: there, Dev: "up0", Addr: "10.111.1.5/24"})
	for name, arrivals := range map[string]func(syscall.Conn, int) (Arrivals, error){
		"noted": func(conn syscall.Conn, size int) (Arrivals, error) { return kernelprobe.NewArrivals(conn, size) },
		"read":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Options{Log: slog.New(slog.DiscardHandler), Trigger: func() {}, NewArrivals: arrivals})
			p.setTargets(
				role.Probes{
					Interval: 50 * time.Millisecond,
					MaxLost:  100,
					Targets: map[string]role.Target{
						"west": {IP: netip.MustParseAddr("10.111.1.5"), From: netip.MustParseAddr("10.111.1.1")},
					},
				},
				nil,
			)
			ctx, stop := context.WithCancel(t.Context())
			stopped := make(chan error)
			go here.Do(func() { stopped <- p.Start(ctx) })
			require.Eventually(t, func() bool { return p.health()["west"].Status == submarinerv1.Connected },
				10*time.Second, time.Millisecond)
			stop()
			require.NoError(t, <-stopped)
		})
	}
}
