//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Timer is a timer of the kernel. An idle process that waits for a timer of Go's runtime wakes up
// several times for it: the runtime rounds its wait down to milliseconds, and then waits for the
// rest; its monitor wakes up, too; and it also wakes up at the time that the timer had before it
// was put off. A timer of the kernel wakes it once.
type Timer struct {
	file *os.File
	c    chan struct{}
}

// NewTimer returns a timer that is not set.
func NewTimer() (*Timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating a timer: %w", err)
	}
	t := &Timer{file: os.NewFile(uintptr(fd), "timer"), c: make(chan struct{}, 1)}
	go t.run()
	return t, nil
}

// run passes on that the timer has expired, until it is closed.
func (t *Timer) run() {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return
	}
	var expired [8]byte
	for {
		if _, err := quickly(raw.Read, unix.SYS_READ, expired[:]); err != nil {
			return
		}
		select {
		case t.c <- struct{}{}:
		default: // has not been received yet
		}
	}
}

// C returns the channel on which the timer sends when it has expired. After Reset it may still send
// once for the time that was set before.
func (t *Timer) C() <-chan struct{} { return t.c }

// Reset has the timer expire after a time, once.
func (t *Timer) Reset(d time.Duration) error {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("setting a timer: %w", err)
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		// 0 would stop it
		set = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, d.Nanoseconds()))},
			nil)
	})
	if err := errors.Join(err, set); err != nil {
		return fmt.Errorf("setting a timer: %w", err)
	}
	return nil
}

// Close ends the timer.
func (t *Timer) Close() error { return t.file.Close() }
