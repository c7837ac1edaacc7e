//go:build linux

package nstest

import (
	"os"

	"golang.org/x/sys/unix"
)

// Private mounts an empty directory that only the namespace can see. Programs that find
// each other through the file system do not respect network namespaces otherwise.
func (n *NS) Private(dir string) {
	n.t.Helper()
	var err error
	n.Do(func() { err = private(dir) })
	if err != nil {
		n.t.Fatalf("%s: making %s private: %v", n.Name, dir, err)
	}
}

// private moves the calling thread to a new mount namespace, in which dir is an empty
// tmpfs.
func private(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// implies CLONE_FS: the threads share no working directory any more
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755")
}
