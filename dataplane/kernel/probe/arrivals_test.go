//go:build linux

package probe

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/nstest"
)

// A datagram has arrived when the kernel received it, also if it is read much later.
func TestArrivals(t *testing.T) {
	ns := nstest.New(t, "node")
	var conn *net.UDPConn
	var err error
	ns.Do(func() { conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}) })
	require.NoError(t, err)
	defer conn.Close()
	arrivals, err := NewArrivals(conn, 3)
	require.NoError(t, err)
	const wait = 100 * time.Millisecond
	late := func() (by time.Duration) {
		_, err := conn.WriteTo([]byte("datagram"), conn.LocalAddr())
		require.NoError(t, err)
		sent := time.Now()
		time.Sleep(wait)
		n := 0
		arrivals.Drain(func(b []byte, at time.Time) {
			require.Equal(t, "dat", string(b), "truncated")
			by = at.Sub(sent)
			n++
		})
		require.Equal(t, 1, n)
		return by
	}
	late() // a kernel begins to note times some time after a socket has asked for them
	require.Eventually(t, func() bool { return late() < wait/2 }, 10*time.Second, time.Millisecond)
	received := make(chan string, 10)
	stopped := make(chan error)
	go func() {
		stopped <- arrivals.Receive(func(b []byte, _ time.Time) { received <- string(b) })
	}()
	for _, payload := range []string{"1", "", "3"} {
		_, err := conn.WriteTo([]byte(payload), conn.LocalAddr())
		require.NoError(t, err)
		require.Equal(t, payload, <-received)
	}
	require.NoError(t, conn.Close())
	require.Error(t, <-stopped)
}

// Whoever drains a socket knows what has arrived on it, also what Receive has read just before.
func TestDrainWaitsForReceive(t *testing.T) {
	ns := nstest.New(t, "node")
	var conn *net.UDPConn
	var err error
	ns.Do(func() { conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}) })
	require.NoError(t, err)
	arrivals, err := NewArrivals(conn, 10)
	require.NoError(t, err)
	read := make(chan bool)
	taken := atomic.Bool{}
	stopped := make(chan error)
	go func() {
		stopped <- arrivals.Receive(func([]byte, time.Time) {
			close(read)
			time.Sleep(50 * time.Millisecond)
			taken.Store(true)
		})
	}()
	_, err = conn.WriteTo([]byte("x"), conn.LocalAddr())
	require.NoError(t, err)
	<-read
	arrivals.Drain(func([]byte, time.Time) { t.Error("it was read twice") })
	require.True(t, taken.Load())
	require.NoError(t, conn.Close())
	require.Error(t, <-stopped)
	arrivals.Drain(func([]byte, time.Time) { t.Error("the socket is closed") })
}

// The clock of stamps is set by whoever likes to, and nothing arrives later than now.
func TestArrival(t *testing.T) {
	now := time.Now()
	require.Equal(t, 3*time.Millisecond, now.Sub(arrival(now.Round(0).Add(-3*time.Millisecond), now)))
	require.Zero(t, now.Sub(arrival(now.Round(0).Add(time.Hour), now)))
	require.Positive(t, now.Sub(arrival(time.Unix(0, 0), now)))
}
