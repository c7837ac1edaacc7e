// Package fabric is the lab's network: a router namespace with a switch per cluster, one cable to
// every control plane and node, one link to the root namespace, and the cuts a user makes in it.
// Every function makes the kernel look as it should and leaves alone what already does, so that a
// half-built fabric is finished, not rebuilt. It decides no name and no address: package plan does.
package fabric

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"subctl/lab/plan"
)

// netnsDir is the directory in which `ip netns` keeps its names, so that it lists ours.
const netnsDir = "/run/netns"

// In runs f in a network namespace, on a thread of its own. What f starts belongs to that
// namespace.
func In(name string, f func() error) error {
	done := make(chan error)
	go func() {
		// The thread is not unlocked: it ends with this goroutine instead of serving others in a
		// foreign namespace.
		runtime.LockOSThread()
		ns, err := netns.GetFromPath(filepath.Join(netnsDir, name))
		if err != nil {
			done <- fmt.Errorf("opening network namespace %s: %w", name, err)
			return
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			done <- fmt.Errorf("entering network namespace %s: %w", name, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// Namespaces lists the lab's.
func Namespaces() ([]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), plan.Prefix+"-") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// ensureNetns makes a named network namespace; made says that it was not there.
func ensureNetns(name string) (made bool, err error) {
	path := filepath.Join(netnsDir, name)
	if isNetns(path) {
		return false, nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // a name that lost its namespace
		return false, err
	}
	if err := shareNetnsDir(); err != nil {
		return false, fmt.Errorf("preparing %s: %w", netnsDir, err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and die, as in In
		ns, err := netns.NewNamed(name)
		if err == nil {
			ns.Close()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return false, fmt.Errorf("making network namespace %s: %w", name, err)
	}
	return true, nil
}

// DeleteNetns takes a name away, and with its last process the namespace.
func DeleteNetns(name string) error {
	path := filepath.Join(netnsDir, name)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) &&
		!errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmounting %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}

func isNetns(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Type == unix.NSFS_MAGIC
}

// shareNetnsDir does what the first `ip netns add` of a machine does: it makes the directory a
// shared mount point, so that deleting a name is seen in every mount namespace. If we did not, a
// later `ip netns add` would cover our names with copies.
func shareNetnsDir() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	err := unix.Mount("", netnsDir, "", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	if err := unix.Mount(netnsDir, netnsDir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.Mount("", netnsDir, "", unix.MS_SHARED|unix.MS_REC, "")
}
