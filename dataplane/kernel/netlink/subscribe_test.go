//go:build linux

package netlink

import (
	"encoding/binary"
	"runtime"
	"syscall"
	"testing"
	"time"

	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// subscribed is a Subscription to messages that the test sends, of the family that the kernel
// leaves to programs.
type subscribed struct {
	*Subscription
	t        *testing.T
	sender   *socket
	got      chan syscall.NetlinkMessage // without data
	notified chan struct{}
	ended    chan error
}

// subscribe receives messages; those with a sequence number of 1 matter.
func subscribe(t *testing.T) *subscribed {
	s := &subscribed{
		t:        t,
		got:      make(chan syscall.NetlinkMessage, 10000),
		notified: make(chan struct{}, 10000),
		ended:    make(chan error, 1),
	}
	nstest.New(t, "node").Do(func() {
		var err error
		s.Subscription, err = Subscribe(unix.NETLINK_USERSOCK, 1)
		require.NoError(t, err)
		t.Cleanup(s.Close)
		s.sender, err = openSocket(unix.NETLINK_USERSOCK)
		require.NoError(t, err)
		t.Cleanup(s.sender.close)
	})
	return s
}

// receive begins to receive.
func (s *subscribed) receive() {
	go func() {
		s.ended <- s.Receive(func(m syscall.NetlinkMessage) bool {
			s.got <- syscall.NetlinkMessage{Header: m.Header}
			return m.Header.Seq == 1
		}, func() { s.notified <- struct{}{} })
	}()
}

// send sends a datagram to all subscribers. It also goes to the kernel, which has no use for it.
func (s *subscribed) send(b []byte) {
	err := unix.Sendto(s.sender.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1})
	require.ErrorIs(s.t, err, unix.ECONNREFUSED)
}

// message returns a message whose header has another size than the message if cut is not 0.
func message(seq uint32, cut int) []byte {
	const size = 100
	b := make([]byte, size)
	binary.NativeEndian.PutUint32(b, uint32(size+cut))
	binary.NativeEndian.PutUint32(b[8:], seq)
	return b
}

// await returns the next of a channel.
func await[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(10 * time.Second):
		require.FailNow(t, "nothing comes")
	}
	return v
}

func TestReceive(t *testing.T) {
	s := subscribe(t)
	s.receive()
	s.send(message(0, 0))
	require.Zero(t, await(t, s.got).Header.Seq)
	require.Empty(t, s.notified)

	s.send(append(message(1, 0), message(2, 0)...))
	require.EqualValues(t, 1, await(t, s.got).Header.Seq)
	require.EqualValues(t, 2, await(t, s.got).Header.Seq, "the first matters, and the second is a message as well")
	await(t, s.notified)

	for name, b := range map[string][]byte{
		"no header": message(0, 0)[:10],
		"too long":  message(0, 1),
		"too short": message(0, -99),
	} {
		s.send(b)
		await(t, s.notified)
		require.Empty(t, s.got, name)
	}
	s.Close()
	require.NoError(t, await(t, s.ended))
}

// When the kernel has dropped messages, anything may have changed.
func TestReceiveLost(t *testing.T) {
	s := subscribe(t)
	for range 5000 {
		s.send(message(0, 0))
	}
	s.receive()
	await(t, s.notified)
	for await(t, s.got).Header.Seq != 2 { // it goes on
		s.send(message(2, 0)) // the kernel drops it, too, until all others have been received
	}
}

// A gateway is told of thousands of connections in a second.
func TestReceiveAllocatesNothing(t *testing.T) {
	const messages, most = 1000, 64 // bytes for each message, with room for what a receiver allocates once
	s := subscribe(t)
	for range messages {
		s.send(message(0, 0))
	}
	s.send(message(1, 0))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s.receive()
	await(t, s.notified)
	runtime.ReadMemStats(&after)
	require.Len(t, s.got, messages+1, "none was lost")
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/messages, uint64(most),
		"bytes for each: the library's Receive allocates some hundreds")
}
