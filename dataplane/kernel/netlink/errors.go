//go:build linux

package netlink

import (
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Gone reports whether err means that the object does not exist.
func Gone(err error) bool {
	var nf netlink.LinkNotFoundError
	return errors.As(err, &nf) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) ||
		errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EADDRNOTAVAIL)
}

// OrGone returns err, or nil if err means that the object does not exist.
func OrGone(err error) error {
	if Gone(err) {
		return nil
	}
	return err
}

// Whole calls list, a dump by the library, again if a change interrupted it: where
// containers come and go, that happens.
func Whole[T any](list func() ([]T, error)) (out []T, err error) {
	for range dumpTries {
		if out, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return out, err
}

// Retry calls f, a system call, until it is not interrupted by a signal: the Go runtime
// sends signals to its own threads.
func Retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
