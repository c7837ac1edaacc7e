//go:build linux

// Package nstest gives tests their own network namespaces, so that tests use a real
// kernel and do not change the host's network.
//
// A namespace is a goroutine locked to its thread: Do runs code on it, Run and
// Start run commands in it. The goroutine never unlocks its thread, so the
// runtime ends the thread together with the goroutine and no other goroutine
// ever wakes up in a test's namespace. The kernel frees the namespace when the last
// thread or process in it has ended.
//
// The package is not for production code, and does not depend on what is tested.
package nstest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// RequireRoot is the environment variable that, if set to 1, makes a test fail instead of
// being skipped because it is not run by root. On a build server no test may vanish.
const RequireRoot = "SUBCTL_REQUIRE_ROOT"

// Root skips the test unless it is run by root, who may create network namespaces.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	const why = "needs root, to create network namespaces"
	if os.Getenv(RequireRoot) == "1" {
		t.Fatalf("%s: %s, and %s=1 forbids skipping", t.Name(), why, RequireRoot)
	}
	t.Skip(why)
}

// NS is a network namespace with one locked thread inside it.
type NS struct {
	Name string
	t    testing.TB
	tid  int
	work chan func()
	dead chan struct{} // closed when the goroutine has ended
}

// New returns an empty namespace, in which only lo is up. It ends with the test.
func New(t testing.TB, name string) *NS {
	t.Helper()
	Root(t)
	n := &NS{Name: name, t: t, work: make(chan func()), dead: make(chan struct{})}
	ready := make(chan error, 1)
	go n.live(ready)
	if err := <-ready; err != nil {
		t.Fatalf("creating network namespace %s: %v", name, err)
	}
	t.Cleanup(func() {
		close(n.work)
		<-n.dead
	})
	n.Run("ip link set lo up")
	return n
}

// live is the goroutine of the namespace.
func (n *NS) live(ready chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread dies with its namespace
	if unix.Gettid() == unix.Getpid() {
		// The main thread never ends, and /proc/self describes it. Hold it while
		// another goroutine locks another thread, then release it.
		started := make(chan error, 1)
		go n.live(started)
		err := <-started
		runtime.UnlockOSThread()
		ready <- err
		return
	}
	defer close(n.dead)
	n.tid = unix.Gettid()
	ns, err := netns.New()
	ready <- err
	if err != nil {
		return
	}
	defer ns.Close()
	for f := range n.work {
		f()
	}
}

// Do runs f inside the namespace. If f ends its goroutine, as t.FailNow does, the test
// ends.
func (n *NS) Do(f func()) {
	n.t.Helper()
	done := make(chan struct{})
	returned := false
	job := func() {
		defer close(done)
		f()
		returned = true
	}
	select {
	case n.work <- job:
		<-done
	case <-n.dead:
	}
	if !returned {
		n.t.FailNow()
	}
}

// Tid returns the ID of the thread inside the namespace: "ip link set DEV netns TID"
// moves a device to the namespace.
func (n *NS) Tid() int { return n.tid }

// Try runs a shell command inside the namespace and returns its output.
func (n *NS) Try(command string) (out string, err error) {
	n.t.Helper()
	n.Do(func() {
		var b []byte
		b, err = exec.Command("sh", "-c", command).CombinedOutput()
		out = string(b)
	})
	return out, err
}

// Run is Try for a command that must succeed.
func (n *NS) Run(command string) string {
	n.t.Helper()
	out, err := n.Try(command)
	if err != nil {
		n.t.Fatalf("%s: %s: %v\n%s", n.Name, command, err, out)
	}
	return out
}

// Start runs a shell command in the background until stop is called or the test ends.
// Its output goes to the test's log.
func (n *NS) Start(command string) (stop func()) {
	n.t.Helper()
	var out Buffer
	cmd := exec.Command("sh", "-c", command)
	cmd.Stdout = &out
	cmd.Stderr = &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that the shell's children can be ended too
	cmd.WaitDelay = time.Second                           // for processes that the shell leaves behind
	var err error
	n.Do(func() { err = cmd.Start() })
	if err != nil {
		n.t.Fatalf("%s: starting %s: %v", n.Name, command, err)
	}
	stop = sync.OnceFunc(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the command may have ended already
		_ = cmd.Wait()
		if s := out.String(); s != "" {
			n.t.Logf("%s: %s:\n%s", n.Name, command, s)
		}
	})
	n.t.Cleanup(stop)
	return stop
}

// End is one end of a cable between two namespaces: a device and its address.
type End struct {
	NS   *NS
	Dev  string
	Addr string // with prefix length; empty for none
}

// Join connects two namespaces by a pair of veth devices, which are up. The kernel notices that a
// device has a carrier some time after its peer has been set up: Join waits for that.
func Join(a, b End) {
	a.NS.t.Helper()
	a.NS.Run(fmt.Sprintf("ip link add %s type veth peer name %s netns %d", a.Dev, b.Dev, b.NS.Tid()))
	for _, e := range []End{a, b} {
		if e.Addr != "" {
			e.NS.Run(fmt.Sprintf("ip addr add %s dev %s", e.Addr, e.Dev))
		}
		e.NS.Run(fmt.Sprintf("ip link set %s up", e.Dev))
	}
	for _, e := range []End{a, b} {
		e.NS.Run(fmt.Sprintf("until ip link show %s | grep -q 'state UP'; do sleep 0.01; done", e.Dev))
	}
}
