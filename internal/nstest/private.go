//go:build linux

package nstest

import (
	"os"

	"golang.org/x/sys/unix"
)

// Private gives the namespace a folder of its own: it is empty, and nobody outside sees
// what is put into it. Programs that meet in the file system, and so know nothing of
// network namespaces, do not meet there.
func (n *NS) Private(dir string) {
	n.t.Helper()
	var err error
	n.Do(func() { err = private(dir) })
	if err != nil {
		n.t.Fatalf("%s: making %s private: %v", n.Name, dir, err)
	}
}

// private moves the calling thread to a mount namespace of its own, where dir is a new
// tmpfs.
func private(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil { // and CLONE_FS, which is what threads share
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755")
}
