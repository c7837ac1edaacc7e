package agent

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"subctl/internal/nstest"
)

// pongs counts the answers to pings, with one ID, that reach the sockets of a node.
func pongs(t *testing.T, node *nstest.NS, id int) *atomic.Int64 {
	t.Helper()
	var n atomic.Int64
	node.Do(func() {
		conn, err := icmp.ListenPacket("ip4:icmp", "0.0.0.0")
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		go func() {
			b := make([]byte, 1500)
			for {
				size, _, err := conn.ReadFrom(b)
				if err != nil {
					return
				}
				if m, err := icmp.ParseMessage(1, b[:size]); err == nil && m.Type == ipv4.ICMPTypeEchoReply &&
					m.Body.(*icmp.Echo).ID == id {
					n.Add(1)
				}
			}
		}()
	})
	return &n
}

// ask sends a ping with an ID.
func ask(t *testing.T, node *nstest.NS, to string, id int) {
	t.Helper()
	node.Do(func() {
		var cfg net.ListenConfig
		conn, err := cfg.ListenPacket(context.Background(), "ip4:icmp", "0.0.0.0")
		require.NoError(t, err)
		defer conn.Close()
		b, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: id, Seq: 1}}).Marshal(nil)
		require.NoError(t, err)
		_, err = conn.WriteTo(b, &net.IPAddr{IP: net.ParseIP(to)})
		require.NoError(t, err)
	})
}

// floods sends an answer to a ping many times, as a process with NET_RAW can, and returns how long
// that took.
func floods(t *testing.T, from *nstest.NS, src, dst string, id, times int) time.Duration {
	t.Helper()
	b, err := (&icmp.Message{
		Type: ipv4.ICMPTypeEchoReply,
		Body: &icmp.Echo{ID: id, Seq: 1, Data: make([]byte, 16)},
	}).Marshal(nil)
	require.NoError(t, err)
	packet := nstest.IPv4(src, dst, unix.IPPROTO_ICMP, b)
	start := time.Now()
	from.Do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		require.NoError(t, err)
		defer unix.Close(fd)
		for range times {
			_ = unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: [4]byte(packet[16:20])}) // some may find no room
		}
	})
	return time.Since(start)
}

// All answers to the pings of an agent share the buffer of its socket. Nobody fills it, so that the
// answers of others would be lost, and healthy gateways and cables would seem to be down: neither a
// pod, whatever address it forges, nor a member, whose gateway is pinged and so knows the ID of the
// pings.
func TestHostileAnswersToPings(t *testing.T) {
	const id, times = 0x5ab1, 4000
	fabric := newFabric(t)
	east := newSide(t, fabric, 1, "east")
	west := newSide(t, fabric, 2, "west")
	for _, s := range []*side{east, west} { // as careless as a node may be
		for _, ns := range s.nodes {
			ns.Run("for d in /proc/sys/net/ipv4/conf/*; do echo 0 >$d/rp_filter; done; iptables -P FORWARD ACCEPT")
		}
	}
	east.sync(t, west)
	west.sync(t, east)
	reach(t, east, "worker", west, "worker")
	gw := west.nodes["gw"]
	own := "241.18.2.11"
	attacker := "241.18.1.11"
	// The test sends the answers itself: the kernels of those who are asked are silent.
	for _, s := range []*nstest.NS{east.nodes["gw"], west.nodes["worker"]} {
		s.Run("sysctl -qw net.ipv4.icmp_echo_ignore_all=1")
	}
	for _, a := range []struct {
		name     string
		from     *nstest.NS
		src, dst string
		most     float64 // in a second, and at once
	}{
		{"a pod", west.pods["gw"], west.podIP("gw"), "10.112.1.1", 0},
		{"a pod, as a gateway that is asked", west.pods["gw"], attacker, own, 0},
		{"a pod, as a worker that is asked", west.pods["gw"], "240.18.2.12", "240.18.2.11", 0},
		{"a member, as pods that nobody asks", east.nodes["gw"], east.podIP("worker"), "10.112.1.1", 0},
		{"a member, as its gateway", east.nodes["gw"], attacker, own, 500},
	} {
		ask(t, gw, attacker, id)
		ask(t, gw, "240.18.2.12", id)
		n := pongs(t, gw, id)
		took := floods(t, a.from, a.src, a.dst, id, times)
		time.Sleep(200 * time.Millisecond) // longer than a packet is on its way
		require.LessOrEqual(t, float64(n.Load()), a.most+a.most*(took.Seconds()+0.2), a.name)
		t.Logf("%s: %d of %d", a.name, n.Load(), times)
	}
	t.Log("the answers of others arrive")
	for _, s := range []*nstest.NS{east.nodes["gw"], west.nodes["worker"]} {
		s.Run("sysctl -qw net.ipv4.icmp_echo_ignore_all=0")
	}
	gw.Run("ping -c2 -i0.2 -W2 " + attacker)
	gw.Run("ping -c2 -i0.2 -W2 240.18.2.12")
	gw.Run("ping -c2 -i0.2 -W2 " + own)
	for _, ns := range west.nodes {
		ns.Run("for o in gateway route; do nft delete table ip submariner-$o-antispoof 2>/dev/null; done; true")
	}
	for attempt := 1; ; attempt++ { // a busy machine loses what the sockets of this process have no room for
		ask(t, gw, attacker, id)
		n := pongs(t, gw, id)
		took := floods(t, east.nodes["gw"], attacker, own, id, times)
		time.Sleep(200 * time.Millisecond)
		if float64(n.Load()) > 500+500*(took.Seconds()+0.2) {
			break
		}
		require.Less(t, attempt, 20, "the attack does not work even without a defense")
	}
}
