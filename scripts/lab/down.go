package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"subctl/lab/cgroup"
	"subctl/lab/fabric"
	"subctl/lab/pki"
	"subctl/lab/process"
)

func newDown(l *lab) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Take everything down and leave nothing behind",
		Long: `Ends every process of the lab and removes its namespaces, links, routes, cgroups, directory and kubeconfigs, whatever state it is
in: it goes by names and cgroups, not by what the directory says. Down when nothing is up is fine.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return l.down() },
	}
}

func (l *lab) down() error {
	started := time.Now()
	if err := needRoot(); err != nil {
		return err
	}
	locked, err := lock()
	if err != nil {
		return err
	}
	defer locked.Close()
	tree, err := cgroup.Find()
	if err != nil {
		return err
	}
	err = errors.Join(removeRunning(tree), l.removeFiles())
	// There is one lab: were another directory named than its own, its own would be left without
	// it.
	if p, ok := recall(); ok && p != (place{l.dir, l.kubeconfigs}) {
		err = errors.Join(err, (&lab{dir: p.Dir, kubeconfigs: p.Kubeconfigs}).removeFiles())
	}
	if err == nil {
		err = os.Remove(lockFile)
	}
	if err != nil {
		return fmt.Errorf("taking the lab down, which may be tried again: %w", err)
	}
	say(started, "down")
	return nil
}

// removeRunning ends and removes all of the lab that is not a file.
func removeRunning(tree cgroup.Tree) error {
	// Twice: what starts a process at the very moment may be killed after it.
	for range 2 {
		pids, err := processes(tree)
		if err != nil {
			return err
		}
		if err := process.Kill(pids); err != nil {
			return err
		}
	}
	return errors.Join(fabric.Remove(), tree.Remove(""))
}

// processes finds all of the lab's, by cgroup and by network namespace: the latter are those of
// `lab exec` too.
func processes(tree cgroup.Tree) ([]int, error) {
	pids, err := tree.Processes("")
	if err != nil {
		return nil, err
	}
	names, err := fabric.Namespaces()
	if err != nil {
		return nil, err
	}
	for i := range names {
		names[i] = filepath.Join("/run/netns", names[i])
	}
	more, err := process.InNetns(names)
	return append(pids, more...), err
}

func (l *lab) removeFiles() error {
	if err := l.unmount(); err != nil {
		return err
	}
	// The directory is removed only if it is one of ours: --dir may be a mistake.
	entries, err := os.ReadDir(l.dir)
	if err != nil && exists(l.dir) {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "cluster") {
			return fmt.Errorf("%s holds %s, which is not the lab's: nothing in it was removed", l.dir, e.Name())
		}
	}
	if err := os.RemoveAll(l.dir); err != nil {
		return err
	}
	return l.removeKubeconfigs()
}

// removeKubeconfigs removes those we wrote: they say so.
func (l *lab) removeKubeconfigs() error {
	files, err := filepath.Glob(filepath.Join(l.kubeconfigs, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if bytes.HasPrefix(b, []byte(pki.Written)) {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// unmount detaches what is mounted below the directory. Nodes mount in namespaces of their own, so
// there should be nothing.
func (l *lab) unmount() error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, line := range slices.Backward(strings.Split(strings.TrimSpace(string(b)), "\n")) {
		if at := strings.Fields(line)[4]; strings.HasPrefix(at, l.dir+"/") {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				return fmt.Errorf("unmounting %s: %w", at, err)
			}
		}
	}
	return nil
}
