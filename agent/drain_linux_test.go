package agent

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/nstest"
)

// flowsThrough returns the number of connections through a gateway, as its agent counts them.
func flowsThrough(t *testing.T, gw *nstest.NS, remote string) (n int) {
	t.Helper()
	gw.Do(func() {
		h, err := kernel.New(dataplane.GatewayOwner)
		require.NoError(t, err)
		defer h.Close()
		flows, err := h.Flows(dataplane.FlowQuery{Networks: []netip.Prefix{netip.MustParsePrefix(remote)}})
		require.NoError(t, err)
		n = flows.Count
	})
	return n
}

// answerAll answers TCP and UDP with what it gets.
func answerAll(t testing.TB, ns *nstest.NS, address string) {
	t.Helper()
	ns.Do(func() {
		l, err := net.Listen("tcp4", address)
		require.NoError(t, err)
		u, err := net.ListenPacket("udp4", address)
		require.NoError(t, err)
		t.Cleanup(func() { l.Close(); u.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(c, c); c.Close() }()
			}
		}()
		go func() {
			b := make([]byte, 100)
			for {
				n, from, err := u.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = u.WriteTo(b[:n], from)
			}
		}()
	})
}

// dials opens TCP connections.
func dials(t *testing.T, from *nstest.NS, to string, n int) (conns []net.Conn) {
	t.Helper()
	from.Do(func() {
		for range n {
			c, err := net.DialTimeout("tcp4", to, 5*time.Second)
			require.NoError(t, err)
			conns = append(conns, c)
		}
	})
	t.Cleanup(func() { closeAll(conns) })
	talk(t, conns)
	return conns
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		c.Close()
	}
}

// talk sends something over connections, and waits for the answers.
func talk(t *testing.T, conns []net.Conn) {
	t.Helper()
	for i, c := range conns {
		require.NoError(t, c.SetDeadline(time.Now().Add(5*time.Second)))
		_, err := c.Write([]byte("x"))
		require.NoError(t, err, "connection %d", i)
		_, err = c.Read(make([]byte, 1))
		require.NoError(t, err, "connection %d", i)
	}
}

// clock is how tests print when something happened.
const clock = "15:04:05.000"

// stream sends a UDP packet every 2 ms until the function that it returns is called, which returns
// how many were sent, and which were not answered: how many in a row, and when they were sent.
func stream(t *testing.T, from *nstest.NS, to string) func() (sent int, lost []string) {
	t.Helper()
	return streamEvery(t, 2*time.Millisecond, from, to)
}

// streamEvery is stream with another time between packets.
func streamEvery(t *testing.T, interval time.Duration, from *nstest.NS, to string) func() (sent int, lost []string) {
	t.Helper()
	var c net.Conn
	from.Do(func() {
		var err error
		c, err = net.Dial("udp4", to)
		require.NoError(t, err)
	})
	var stop atomic.Bool
	var done sync.WaitGroup
	var sent []time.Time
	got := map[uint32]bool{}
	done.Go(func() {
		for !stop.Load() {
			n := uint32(len(sent))
			sent = append(sent, time.Now())
			_, _ = c.Write(binary.BigEndian.AppendUint32(nil, n))
			time.Sleep(interval)
		}
		time.Sleep(200 * time.Millisecond)
		c.Close()
	})
	done.Go(func() {
		b := make([]byte, 100)
		for {
			if k, err := c.Read(b); err != nil {
				return
			} else if k == 4 {
				got[binary.BigEndian.Uint32(b)] = true
			}
		}
	})
	return func() (int, []string) {
		stop.Store(true)
		done.Wait()
		var lost []string
		for n := 0; n < len(sent); n++ {
			first := n
			for n < len(sent) && !got[uint32(n)] {
				n++
			}
			if n > first {
				lost = append(lost,
					fmt.Sprintf("%d sent from %s to %s", n-first, sent[first].Format(clock), sent[n-1].Format(clock)))
			}
		}
		return len(sent), lost
	}
}

// A gateway of each of two clusters is drained while connections to a Service and between pods
// exist: they go on, through it, until they end; new ones take the other gateways; and no packet is
// lost on the way out and back in.
func TestDrain(t *testing.T) {
	fabric := newFabric(t)
	east := twoGateways(t, fabric, 1, "east")
	west := twoGateways(t, fabric, 2, "west")
	for _, s := range []*side{east, west} {
		s.annotations = map[string]map[string]string{}
		s.announced = map[string]map[string]string{}
		for _, ns := range s.nodes {
			ns.Run("sysctl -qw net.ipv4.fib_multipath_hash_policy=1") // ports, too
		}
	}
	sync := func() { east.sync(t, west); west.sync(t, east) }
	sync()
	const service = "10.102.0.10"
	backend := west.podIP("worker") + ":8080"
	for _, gw := range west.names[:2] {
		west.nodes[gw].Run(
			fmt.Sprintf("iptables -t nat -A PREROUTING -d %s/32 -p tcp --dport 80 -j DNAT --to-destination %s", service,
				backend),
		)
	}
	answerAll(t, west.pods["worker"], backend)
	client := east.pods["worker"]
	var streams []func() (int, []string)
	for range 8 {
		streams = append(streams, stream(t, client, backend))
	}
	through := func() (n int) {
		return flowsThrough(t, west.nodes["gw"], "10.111.0.0/16") + flowsThrough(t, east.nodes["gw"], "10.112.0.0/16")
	}
	// Ports of their own: behind a gateway, a connection to the Service is one to the backend, from
	// the same port.
	client.Run("sysctl -qw net.ipv4.ip_local_port_range='20000 29999'")
	plain := dials(t, client, backend, 40)
	client.Run("sysctl -qw net.ipv4.ip_local_port_range='30000 60999'")
	translated := dials(t, client, service+":80", 40)
	before := through()
	require.Greater(t, before, 40, "of 176 entries for 88 connections on 2 of 4 gateways")

	for _, s := range []*side{east, west} {
		s.annotations["gw"] = map[string]string{submarinerv1.DrainAnnotation: "5m"}
		s.announced["gw"] = map[string]string{submarinerv1.BackendDrain: submarinerv1.Draining}
	}
	sync()
	talk(t, plain)
	talk(t, translated)
	require.Equal(t, before, through(), "connections stay where they are")
	fresh := dials(t, client, service+":80", 200)
	late := through() - before
	t.Logf("%d of the 400 entries of 200 new connections are on gateways that are draining, which have %d entries",
		late, before)
	require.Less(t, late, 80, "new connections take the other gateways")
	talk(t, plain)
	talk(t, translated)

	closeAll(plain)
	closeAll(translated)
	if late > 0 {
		closeAll(fresh)
		fresh = nil
	}
	for _, end := range streams[:4] {
		_, lost := end()
		require.Empty(t, lost, "packets of a stream")
	}
	// Left are entries of UDP, and of connections of which a gateway has seen one direction only:
	// it does not see their end.
	require.Eventually(t, func() bool { return through() <= before/2 }, 20*time.Second, 200*time.Millisecond)

	for _, s := range []*side{east, west} {
		s.announced["gw"] = map[string]string{submarinerv1.BackendDrain: submarinerv1.Drained}
	}
	idle := through()
	sync()
	others := dials(t, client, service+":80", 50)
	require.LessOrEqual(t, through(), idle, "a gateway that is drained gets nothing")
	talk(t, fresh)

	clear(east.annotations)
	clear(east.announced)
	clear(west.annotations)
	clear(west.announced)
	sync()
	talk(t, others)
	talk(t, fresh)
	require.LessOrEqual(t, through(), idle, "no connection moves when gateways return")
	again := dials(t, client, service+":80", 150)
	require.Greater(t, through(), before/2+10,
		"they get new ones: about 150, and there were before/2 at most, which expire")
	talk(t, again)
	talk(t, others)
	for _, end := range streams[4:] {
		sent, lost := end()
		require.Empty(t, lost, "packets of a stream of %d", sent)
	}
	east.leave(t)
	west.leave(t)
}
