//go:build linux

package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// notifyBuffer holds the notifications of some thousand changes at once, as a first Sync
// makes. If there are more, Receive takes that as a change, too.
const notifyBuffer = 1 << 20

// Subscription receives the kernel's notifications of changes.
type Subscription struct {
	file *os.File // nonblocking: Close ends a Read that waits
	buf  []byte
}

// Subscribe subscribes to multicast groups of a family in the calling thread's network
// namespace.
func Subscribe(family int, groups ...int) (*Subscription, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, family)
	if err != nil {
		return nil, fmt.Errorf("opening netlink socket, family %d: %w", family, err)
	}
	errs := []error{
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		// needs CAP_NET_ADMIN, as all the rest
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, notifyBuffer),
	}
	for _, g := range groups {
		errs = append(errs, unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g))
	}
	if err := errors.Join(errs...); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("subscribing to netlink family %d: %w", family, err)
	}
	return &Subscription{os.NewFile(uintptr(fd), "netlink"), make([]byte, 1<<16)}, nil
}

// Close closes the socket, which ends Receive.
func (s *Subscription) Close() { _ = s.file.Close() }

// Receive calls matters with each message, whose data matters must not keep, and notify after
// a datagram with a message that matters, or when messages were lost or are malformed. It
// returns nil when the socket is closed. It allocates nothing for a message: there can be
// thousands in a second.
func (s *Subscription) Receive(matters func(syscall.NetlinkMessage) bool, notify func()) error {
	for {
		n, err := s.file.Read(s.buf)
		switch {
		case errors.Is(err, os.ErrClosed):
			return nil
		case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
			notify() // messages were lost
		case err != nil:
			return fmt.Errorf("receiving notifications: %w", err)
		case news(s.buf[:n], matters):
			notify()
		}
	}
}

// news reports whether a message of a datagram matters, or is cut off.
func news(b []byte, matters func(syscall.NetlinkMessage) bool) (out bool) {
	for len(b) > 0 {
		if len(b) < unix.SizeofNlMsghdr {
			return true
		}
		h := header(b)
		if h.size < unix.SizeofNlMsghdr || h.size > len(b) {
			return true
		}
		m := syscall.NetlinkMessage{
			Header: syscall.NlMsghdr{
				Len:   uint32(h.size),
				Type:  h.typ,
				Flags: h.flags,
				Seq:   h.seq,
				Pid:   binary.NativeEndian.Uint32(b[12:]),
			},
			Data: b[unix.SizeofNlMsghdr:h.size],
		}
		out = matters(m) || out
		b = b[min(align(h.size), len(b)):]
	}
	return out
}
