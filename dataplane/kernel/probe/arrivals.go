//go:build linux

package probe

import (
	"cmp"
	"encoding/binary"
	"errors"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Arrivals reads datagrams from a socket, with the times at which the kernel received them. The
// time at which an agent reads them is later: by as much as it waits for a processor.
type Arrivals struct {
	raw syscall.RawConn

	mu      sync.Mutex // held until a datagram that was read has been taken
	buf     []byte
	control []byte // of recvmsg(2)
}

// NewArrivals returns the arrivals of a socket. A datagram longer than size is truncated. Where the
// kernel refuses to note the times of arrival, the times of reading take their place.
func NewArrivals(conn syscall.Conn, size int) (*Arrivals, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	const stamp = int(unsafe.Sizeof(unix.Timespec{}))
	a := &Arrivals{raw: raw, buf: make([]byte, size), control: make([]byte, unix.CmsgSpace(stamp))}
	return a, raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
}

// Receive calls take with each datagram that arrives, until the socket is closed or fails.
func (a *Arrivals) Receive(take func(b []byte, at time.Time)) error {
	for {
		var failed error
		err := a.raw.Read(func(fd uintptr) bool {
			failed = a.next(fd, take)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err := cmp.Or(err, failed); err != nil {
			return err
		}
	}
}

// Drain calls take with each datagram that has arrived, and does not wait for more. When it
// returns, whatever Receive has read has been taken, too.
func (a *Arrivals) Drain(take func(b []byte, at time.Time)) {
	_ = a.raw.Control(func(fd uintptr) { // fails if the socket is closed
		for range drainMost {
			if a.next(fd, take) != nil {
				return
			}
		}
	})
}

// drainMost bounds what Drain reads. It is more than the buffer holds: the kernel doubles
// echoBuffer (socket(7)), and counts at least 512 bytes for each datagram.
const drainMost = 2 * echoBuffer / 512

// next reads one datagram, without waiting, and has it taken.
func (a *Arrivals) next(fd uintptr, take func(b []byte, at time.Time)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, control, _, _, err := unix.Recvmsg(int(fd), a.buf, a.control, unix.MSG_DONTWAIT)
	if err != nil {
		return err
	}
	now := time.Now()
	take(a.buf[:n], stamped(a.control[:control], now))
	return nil
}

// stamped returns the time of arrival in the control messages of a datagram, which a socket with
// the option SO_TIMESTAMPNS gets; now if there is none.
func stamped(control []byte, now time.Time) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return now
	}
	for _, m := range messages {
		var at unix.Timespec // by CLOCK_REALTIME
		if m.Header.Level != unix.SOL_SOCKET || m.Header.Type != unix.SO_TIMESTAMPNS {
			continue
		}
		if _, err := binary.Decode(m.Data, binary.NativeEndian, &at); err == nil {
			return arrival(time.Unix(at.Unix()), now)
		}
	}
	return now
}

// arrival returns the time of a stamp of the clock CLOCK_REALTIME on the monotonic clock, by its
// distance from now on the former. If that clock was set back in between, the stamp may seem to be
// later than now, and is now.
func arrival(stamp, now time.Time) time.Time { return now.Add(-max(0, now.Sub(stamp))) }
