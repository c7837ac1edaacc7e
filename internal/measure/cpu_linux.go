package measure

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"subctl/internal/nstest"
)

// CPU returns the CPU time that f takes, in seconds: of this process, garbage
// collection included, and of the programs that f ran. Unlike the time that passes, it
// does not depend on what else the machine has to do.
func CPU(t testing.TB, f func()) float64 {
	t.Helper()
	before := used(t)
	f()
	return used(t) - before
}

func used(t testing.TB) (seconds float64) {
	t.Helper()
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			t.Fatal(err)
		}
		seconds += float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	return seconds
}

// CPUOf returns the CPU time, in seconds, that a process has taken since it began.
func CPUOf(t testing.TB, pid int) float64 {
	t.Helper()
	var used unix.Timespec
	if err := unix.ClockGettime(cpuClock(pid), &used); err != nil {
		t.Fatalf("the CPU time of process %d: %v", pid, err)
	}
	return float64(used.Nano()) / 1e9
}

// clock returns a clock, in seconds: the CPU time of all that handles the packets of a
// path, or the time that passes if the kernel does not count that CPU time.
func (p Path) clock(t testing.TB) func() float64 {
	t.Helper()
	if !countsPackets() {
		began := time.Now()
		return func() float64 { return time.Since(began).Seconds() }
	}
	processes, err := p.processes()
	if err != nil {
		t.Fatal(err)
	}
	return func() (seconds float64) {
		for _, pid := range processes {
			var time unix.Timespec
			if err := unix.ClockGettime(cpuClock(pid), &time); err == nil { // else it has ended
				seconds += float64(time.Nano()) / 1e9
			}
		}
		return seconds
	}
}

// cpuClock returns the clock of the CPU time of a process: clock_getcpuclockid(3).
func cpuClock(pid int) int32 { return int32(^pid<<3 | 2) }

// packetThreads are the kernel's threads that handle packets when a process has
// handled enough of them, or that encrypt them.
var packetThreads = regexp.MustCompile(`^(ksoftirqd|kworker)/[0-9]`)

// processes returns the processes that handle packets of the path: this one, those in
// the path's namespaces, and the kernel's.
func (p Path) processes() (pids []int, err error) {
	var inside []string
	for _, ns := range append([]*nstest.NS{p.From.NS, p.To.NS}, p.Between...) {
		link, err := os.Readlink(fmt.Sprintf("/proc/self/task/%d/ns/net", ns.Tid()))
		if err != nil {
			return nil, err
		}
		inside = append(inside, link)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // not a process
		}
		link, _ := os.Readlink("/proc/" + e.Name() + "/ns/net") // empty if the process has ended
		name, _ := os.ReadFile("/proc/" + e.Name() + "/comm")
		if pid == os.Getpid() || slices.Contains(inside, link) || packetThreads.Match(name) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// countsPackets reports whether the CPU time of a process contains the time that the
// kernel spends on packets while the process runs. A kernel that measures the time of
// interrupts subtracts it.
var countsPackets = sync.OnceValue(func() bool {
	config, err := kernelConfig()
	return err == nil && bytes.Contains(config, []byte("CONFIG_")) &&
		!bytes.Contains(config, []byte("CONFIG_IRQ_TIME_ACCOUNTING=y"))
})

// kernelConfig returns the settings that the kernel was built with.
func kernelConfig() ([]byte, error) {
	f, err := os.Open("/proc/config.gz")
	if err != nil {
		var u unix.Utsname
		if err := unix.Uname(&u); err != nil {
			return nil, err
		}
		return os.ReadFile("/boot/config-" + unix.ByteSliceToString(u.Release[:]))
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
