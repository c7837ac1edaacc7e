//go:build linux

package nstest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is done in a namespace stays in it, and neither the test's own goroutine
// nor the main thread ever moves.
func TestIsolated(t *testing.T) {
	Root(t)
	here := func() string {
		s, err := os.Readlink("/proc/thread-self/ns/net")
		require.NoError(t, err)
		return s
	}
	main := func() string {
		s, err := os.Readlink("/proc/self/ns/net")
		require.NoError(t, err)
		return s
	}
	host := main()
	for range 20 { // the scheduler picks the thread: try a few
		n := New(t, "a")
		var inside string
		n.Do(func() { inside = here() })
		require.NotEqual(t, host, inside)
		require.Equal(t, host, here())
		require.Equal(t, host, main())
	}
}

// The thread of a namespace ends with its test.
func TestThreadDies(t *testing.T) {
	var task string
	t.Run("inner", func(t *testing.T) {
		n := New(t, "a")
		n.Do(func() { task, _ = os.Readlink("/proc/thread-self") })
		require.DirExists(t, "/proc/"+task)
	})
	Root(t)
	require.Eventually(t, func() bool {
		_, err := os.Stat("/proc/" + task)
		return os.IsNotExist(err)
	}, 5*time.Second, 10*time.Millisecond)
}

func TestJoin(t *testing.T) {
	a := New(t, "a")
	b := New(t, "b")
	Join(End{a, "eth0", "192.0.2.1/24"}, End{b, "eth0", "192.0.2.2/24"})
	a.Run("ping -c1 -W2 192.0.2.2")
	_, err := a.Try("ping -c1 -W1 192.0.2.3")
	require.Error(t, err)
}

// A command in the background ends when it is told to, with all its children.
func TestStart(t *testing.T) {
	a := New(t, "a")
	here := a.Run("readlink /proc/self/ns/net")
	sleepers := func() string { // those in this namespace
		return a.Run(
			"for p in $(pgrep -x sleep); do readlink /proc/$p/ns/net; done | grep -cxF '" + strings.TrimSpace(
				here) + "' || true",
		)
	}
	stop := a.Start("sleep 600 & sleep 600")
	require.Eventually(t, func() bool { return sleepers() == "2\n" }, 5*time.Second, 10*time.Millisecond)
	stop()
	require.Eventually(t, func() bool { return sleepers() == "0\n" }, 5*time.Second, 10*time.Millisecond)
}

// recorder is a testing.TB that remembers how it was ended.
type recorder struct {
	testing.TB
	how string
}

func (r *recorder) Helper()                   {}
func (r *recorder) Name() string              { return "recorder" }
func (r *recorder) Skip(...any)               { r.how = "skipped"; panic(r) }
func (r *recorder) Skipf(string, ...any)      { r.how = "skipped"; panic(r) }
func (r *recorder) Fatalf(f string, _ ...any) { r.how = "failed"; panic(r) }

// Without root a test is skipped, or fails if that is forbidden. The effective
// user is of the whole process, so a copy of the test binary is run as nobody.
func TestRoot(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("this is what TestRootUnprivileged runs without root")
	}
	for env, want := range map[string]string{"": "skipped", "0": "skipped", "1": "failed"} {
		t.Setenv(RequireRoot, env)
		r := &recorder{TB: t}
		require.Panics(t, func() { Root(r) })
		require.Equal(t, want, r.how, env)
	}
}

func TestRootUnprivileged(t *testing.T) {
	n := New(t, "a")
	exe, err := os.Executable()
	require.NoError(t, err)
	copied := t.TempDir()
	n.Run("cp " + exe + " " + copied + "/test && chmod -R a+rx " + copied + "/..")
	out := n.Run("cd / && setpriv --reuid 65534 --clear-groups " + copied + "/test -test.run '^TestRoot$' -test.v")
	require.Contains(t, out, "--- PASS: TestRoot")
	require.False(t, strings.Contains(out, "SKIP"), out)
}
