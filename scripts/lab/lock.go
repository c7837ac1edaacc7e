package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"subctl/lab/plan"
)

// lockFile is locked by who changes the lab, and says where the one lab of this machine has its
// files: so that --dir and --kubeconfigs need be said to `lab up` only, and no other directory is
// taken for its.
const lockFile = "/run/" + plan.Prefix + ".lock"

// place is the content of the file.
type place struct{ Dir, Kubeconfigs string }

// lock keeps two commands from building and tearing down at once.
func lock() (*os.File, error) {
	for {
		file, err := os.OpenFile(lockFile, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return nil, errors.Join(
				fmt.Errorf("another lab command is at work (%s is locked): wait for it: %w", lockFile, err),
				file.Close())
		}
		mine, err := file.Stat()
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		// Whoever held it before may have removed it: then this is not the file others find.
		if now, err := os.Stat(lockFile); err == nil && os.SameFile(mine, now) {
			return file, nil
		}
		file.Close()
	}
}

// recall reads where the lab is, if there is one.
func recall() (p place, ok bool) {
	b, err := os.ReadFile(lockFile)
	return p, err == nil && json.Unmarshal(b, &p) == nil && p.Dir != ""
}

// remember writes where the lab is, and refuses when there is another one.
func (l *lab) remember(locked *os.File) error {
	if p, ok := recall(); ok && p.Dir != l.dir {
		if (&lab{dir: p.Dir}).any() {
			return fmt.Errorf("a lab is up in %s, and a machine has room for one: lab down first", p.Dir)
		}
	}
	b, err := json.Marshal(place{l.dir, l.kubeconfigs})
	if err != nil {
		return err
	}
	if err := locked.Truncate(0); err != nil {
		return err
	}
	_, err = locked.WriteAt(append(b, '\n'), io.SeekStart)
	return err
}

// resolve makes paths absolute, and takes those remembered for those nobody gave.
func (l *lab) resolve(dirGiven, kubeconfigsGiven bool) (err error) {
	if p, ok := recall(); ok {
		if !dirGiven {
			l.dir = p.Dir
		}
		if !kubeconfigsGiven {
			l.kubeconfigs = p.Kubeconfigs
		}
	}
	if l.dir, err = filepath.Abs(l.dir); err != nil {
		return err
	}
	l.kubeconfigs, err = filepath.Abs(l.kubeconfigs)
	return err
}

// any says that something of a lab is in the directory.
func (l *lab) any() bool {
	clusters, err := l.clusters()
	return err != nil || len(clusters) > 0
}
