// Package process finds and ends the processes of the lab. It keeps no pid files: a pid in a file
// may be somebody else's by the time it is read. What runs in a cgroup or network namespace of the
// lab is the lab's.
package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// InNetns lists the processes in any of these network namespaces, given as paths.
func InNetns(paths []string) ([]int, error) {
	inodes := map[uint64]bool{}
	for _, path := range paths {
		var s unix.Stat_t
		if unix.Stat(path, &s) == nil {
			inodes[s.Ino] = true
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		var s unix.Stat_t
		if unix.Stat(filepath.Join("/proc", e.Name(), "ns/net"), &s) == nil && inodes[s.Ino] {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Kill ends processes at once and waits until they are gone.
func Kill(pids []int) error {
	if slices.Contains(pids, os.Getpid()) {
		return errors.New("this very process runs inside the lab: call it from outside")
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("killing process %d: %w", pid, err)
		}
	}
	for range 100 {
		pids = slices.DeleteFunc(pids, gone)
		if len(pids) == 0 {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("processes %v are still there 5 s after they were killed", pids)
}

// gone counts zombies as gone: they hold nothing but their number until their parent looks.
func gone(pid int) bool {
	state := field(pid, "State")
	return len(state) == 0 || state[0] == "Z" || state[0] == "X"
}

// Init picks, of a node's processes, the first of its pid namespace: whose end ends all of them.
// Pods have such a process too, one level deeper.
func Init(pids []int) (pid int, ok bool) {
	for _, pid := range pids {
		if ids := field(pid, "NSpid"); len(ids) == 2 && ids[1] == "1" && !gone(pid) {
			return pid, true
		}
	}
	return 0, false
}

// Alive picks those that still run.
func Alive(pids []int) []int { return slices.DeleteFunc(pids, gone) }

func field(pid int, name string) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		if key, value, _ := strings.Cut(line, ":"); key == name {
			return strings.Fields(value)
		}
	}
	return nil
}
