//go:build linux

package kernel

import (
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
	vec     unix.Iovec
	stamped stamped
	message unix.Msghdr
}

// stamped is the control message of a socket with the option SO_TIMESTAMPNS.
type stamped struct {
	unix.Cmsghdr
	At unix.Timespec // by CLOCK_REALTIME
}

// NewArrivals returns the arrivals of a socket. A datagram longer than size is truncated. Where the
// kernel refuses to note the times of arrival, the times of reading take their place.
func NewArrivals(conn syscall.Conn, size int) (*Arrivals, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	a := &Arrivals{raw: raw, buf: make([]byte, size)}
	a.vec.Base = &a.buf[0]
	a.vec.SetLen(size)
	a.message.Iov = &a.vec
	a.message.SetIovlen(1)
	a.message.Control = (*byte)(unsafe.Pointer(&a.stamped))
	return a, raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
}

// Receive calls take with each datagram that arrives, until the socket is closed or fails.
func (a *Arrivals) Receive(take func(b []byte, at time.Time)) error {
	for {
		var failed syscall.Errno
		err := a.raw.Read(func(fd uintptr) bool {
			failed = a.next(fd, take)
			return failed != unix.EAGAIN
		})
		switch {
		case err != nil:
			return err
		case failed != 0:
			return failed
		}
	}
}

// Drain calls take with each datagram that has arrived, and does not wait for more. When it
// returns, whatever Receive has read has been taken, too.
func (a *Arrivals) Drain(take func(b []byte, at time.Time)) {
	_ = a.raw.Control(func(fd uintptr) { // fails if the socket is closed
		for range drainMost {
			if a.next(fd, take) != 0 {
				return
			}
		}
	})
}

// drainMost bounds what Drain reads. It is more than the buffer holds: the kernel doubles
// echoBuffer (socket(7)), and counts at least 512 bytes for each datagram.
const drainMost = 2 * echoBuffer / 512

// next reads one datagram, without waiting, and has it taken.
func (a *Arrivals) next(fd uintptr, take func(b []byte, at time.Time)) syscall.Errno {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.message.SetControllen(int(unsafe.Sizeof(a.stamped)))
	a.stamped.Type = 0
	n, errno := receiveQuickly(fd, &a.message)
	if errno != 0 {
		return errno
	}
	now := time.Now()
	if a.stamped.Level == unix.SOL_SOCKET && a.stamped.Type == unix.SO_TIMESTAMPNS {
		now = arrival(time.Unix(a.stamped.At.Unix()), now)
	}
	take(a.buf[:n], now)
	return 0
}

// arrival returns the time of a stamp of the clock CLOCK_REALTIME on the monotonic clock, by its
// distance from now on the former. If that clock was set back in between, the stamp may seem to be
// later than now, and is now.
func arrival(stamp, now time.Time) time.Time { return now.Add(-max(0, now.Sub(stamp))) }
