//go:build linux

package strongswan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// bufferSize is the size of the receive buffers of a daemon that handles ESP packets itself, in
// bytes. The default of the kernel holds less than a hundred packets, which is less than a TCP
// connection sends at once: what comes while the daemon does not get a CPU would be lost.
const bufferSize = 4 << 20

// growBuffers enlarges the receive buffers of the UDP sockets of a process. strongSwan has no
// setting for that, and the default of all sockets is not ours to change. A process may
// duplicate the sockets of its child (ptrace(2), "Ptrace access mode checking") unless
// the node forbids that.
func growBuffers(pid int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("opening process %d: %w", pid, err)
	}
	defer unix.Close(process)
	files, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		// empty if it is closed meanwhile
		link, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "fd", f.Name()))
		if n, err := strconv.Atoi(f.Name()); err == nil && strings.HasPrefix(link, "socket:") {
			errs = append(errs, growBuffer(process, n))
		}
	}
	return errors.Join(errs...)
}

// growBuffer enlarges the receive buffer of a socket of a process, if it is a UDP socket.
func growBuffer(process, file int) error {
	s, err := unix.PidfdGetfd(process, file, 0)
	if errors.Is(err, unix.EBADF) {
		return nil // closed meanwhile
	}
	if err != nil {
		return fmt.Errorf("duplicating a socket of charon: %w", err)
	}
	defer unix.Close(s)
	if proto, err := unix.GetsockoptInt(s, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil || proto != unix.IPPROTO_UDP {
		return err
	}
	if err := unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferSize); err != nil {
		return fmt.Errorf("enlarging a receive buffer of charon: %w", err)
	}
	return nil
}
