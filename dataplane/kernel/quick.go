//go:build linux

package kernel

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file is about system calls that never wait. Go's runtime wakes its monitor, another thread,
// for each system call of a process that was idle, as the call may block the thread. For an agent
// that wakes up ten times a second to probe, that was a sixth of its CPU time. A raw system call
// does not, so it must be one that returns at once.

// quickly waits, without a thread, until a file can be read, and reads from it: ready is the Read
// of its syscall.RawConn, and call the number of a system call that takes a file, a buffer, its
// size, and zeros.
func quickly(ready func(func(uintptr) bool) error, call uintptr, b []byte) (n int, err error) {
	var failed syscall.Errno
	err = ready(func(fd uintptr) bool {
		got, _, errno := unix.RawSyscall6(call, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
		n = int(got)
		failed = errno
		return errno != unix.EAGAIN
	})
	if err == nil && failed != 0 {
		n = 0
		err = failed
	}
	return n, err
}

// receiveQuickly receives a datagram from a socket that does not block.
func receiveQuickly(fd uintptr, m *unix.Msghdr) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(m)), unix.MSG_DONTWAIT)
	return int(n), errno
}

// sendQuickly sends b on a packet socket that does not block. The kernel takes the packet as far as
// it gets on this machine.
func sendQuickly(fd int, b []byte, to *unix.RawSockaddrLinklayer) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0,
		uintptr(unsafe.Pointer(to)), unix.SizeofSockaddrLinklayer)
	if errno != 0 {
		return errno
	}
	return nil
}
