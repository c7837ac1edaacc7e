//go:build linux

package iptables

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	goiptables "github.com/coreos/go-iptables/iptables"
	"golang.org/x/sys/unix"
)

// xtablesLock is the lock that programs hold while they write iptables rules. Variants of
// iptables that use nftables ignore it.
const xtablesLock = "/run/xtables.lock"

// lockPatience is the time to wait for the lock, in seconds: the programs that use it write
// rules in less than a second. A program that hangs may hold it forever, and the loop of the
// agent, which waits meanwhile, has other objects to look after.
const lockPatience = 5

// lockRest is how many times lockPatience nothing waits for the lock again.
const lockRest = 3

// exitBusy is the exit code of iptables without the lock (RESOURCE_PROBLEM in xtables.h).
const exitBusy = 4

// lockedError is the error of rules that could not be written because another program holds the
// lock.
type lockedError struct{ holder string }

// Error implements error.
func (e lockedError) Error() string {
	return fmt.Sprintf(
		"%s holds the lock of iptables, %s, for more than %d s, so that no rule can be written: end that program; it is tried again",
		e.holder, xtablesLock, lockPatience)
}

// explainLock returns err or, if it is due to the lock, an error that names the holder.
func explainLock(err error) error {
	var failed *goiptables.Error
	if !errors.As(err, &failed) || failed.ExitStatus() != exitBusy || !strings.Contains(failed.Error(), "xtables lock") {
		return err
	}
	return lockedError{lockHolder("/proc", xtablesLock)}
}

// lockHolder describes the process that holds a lock on a file, such as "kube-proxy (pid 123)".
// Only processes of the process namespace are visible: an agent in a pod sees those of its pod.
func lockHolder(proc, file string) string {
	unknown := fmt.Sprintf("another program (\"fuser -v %s\" on the node names it)", file)
	var s unix.Stat_t
	if err := unix.Stat(file, &s); err != nil {
		return unknown
	}
	locks, err := os.ReadFile(proc + "/locks")
	if err != nil {
		return unknown
	}
	// Lines are, as proc_locks(5) describes: "1: FLOCK  ADVISORY  WRITE 123 00:1a:4711 0 EOF".
	const pid, where = 4, 5
	id := fmt.Sprintf("%02x:%02x:%d", unix.Major(s.Dev), unix.Minor(s.Dev), s.Ino)
	for line := range strings.Lines(string(locks)) {
		f := strings.Fields(line)
		if len(f) <= where || f[where] != id || f[1] == "->" { // "->": it waits for the lock
			continue
		}
		if n, err := strconv.Atoi(f[pid]); err == nil && n > 0 {
			name, _ := os.ReadFile(fmt.Sprintf("%s/%d/comm", proc, n)) // empty if it has just ended
			return fmt.Sprintf("%s (pid %d)", strings.TrimSpace(string(name)), n)
		}
	}
	return unknown
}

// lockout is the time after a wait for the lock that was in vain. In it, nothing waits again:
// a plan has many chains.
type lockout struct {
	err   error
	until time.Time
}

// check returns the error of the last wait while it is too early to wait again.
func (l *lockout) check() error {
	if l.err != nil && time.Now().Before(l.until) {
		return l.err
	}
	l.err = nil
	return nil
}

// note begins a lockout if err is due to the lock.
func (l *lockout) note(err error) {
	if errors.As(err, &lockedError{}) {
		l.err = err
		l.until = time.Now().Add(lockRest * lockPatience * time.Second)
	}
}
