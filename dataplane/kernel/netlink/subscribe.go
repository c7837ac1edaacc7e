//go:build linux

package netlink

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// notifyBuffer holds the notifications of some thousand changes at once, as a first Sync
// makes. If there are more, Receive takes that as a change, too.
const notifyBuffer = 1 << 20

// Subscription receives the kernel's notifications of changes.
type Subscription struct{ socket *nl.NetlinkSocket }

// Subscribe subscribes to multicast groups of a family in the calling thread's network
// namespace.
func Subscribe(family int, groups ...uint) (*Subscription, error) {
	s, err := nl.Subscribe(family, groups...)
	if err != nil {
		return nil, fmt.Errorf("subscribing to netlink family %d: %w", family, err)
	}
	if err := s.SetReceiveBufferSize(notifyBuffer, true); err != nil { // needs CAP_NET_ADMIN, as all the rest
		s.Close()
		return nil, fmt.Errorf("enlarging buffer of netlink family %d: %w", family, err)
	}
	return &Subscription{s}, nil
}

// Close closes the socket, which ends Receive.
func (s *Subscription) Close() { s.socket.Close() }

// Receive calls notify when a message matters, or when messages were lost. It returns
// when the socket is closed.
func (s *Subscription) Receive(matters func(syscall.NetlinkMessage) bool, notify func()) {
	for {
		msgs, _, err := s.socket.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			notify() // messages were lost
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return
		case slices.ContainsFunc(msgs, matters):
			notify()
		}
	}
}
