// Package cgroup keeps the lab's subtree of the machine's cgroups: one directory for each control
// plane and node, named after it, under subctl-lab. It is also how the lab finds its processes when
// nothing else is left of it.
//
// It serves cgroup v1 (also "hybrid", with a v2 tree beside) and v2. Where v2 is the only one,
// controllers have to be enabled on the way down and processes may only live in leaves; that part
// follows the documentation and was not tried.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"subctl/lab/plan"
)

// Leaf holds a node's own processes under v2, beside the kubelet's kubepods: a v2 cgroup has
// processes or children, not both.
const Leaf = "system"

// Tree has the directories where the machine has its hierarchies mounted.
type Tree struct {
	v1 []string // one per set of controllers
	v2 string   // the unified hierarchy, or ""
}

// Find looks at what is mounted.
func Find() (Tree, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Tree{}, err
	}
	defer f.Close()
	var t Tree
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		at := strings.Fields(before)[4]
		kind := strings.Fields(after)[0]
		if !strings.HasPrefix(at, "/sys/fs/cgroup") {
			continue
		}
		switch kind {
		case "cgroup":
			t.v1 = append(t.v1, at)
		case "cgroup2":
			t.v2 = at
		}
	}
	if len(t.v1) == 0 && t.v2 == "" {
		return t, errors.New("no cgroups below /sys/fs/cgroup: nodes need them")
	}
	return t, nil
}

// Unified says that v2 is all there is.
func (t Tree) Unified() bool { return len(t.v1) == 0 }

// Path is a cgroup as kubelets name it.
func Path(name string) string { return filepath.Join("/", plan.Prefix, name) }

// Ensure makes a cgroup in every hierarchy.
func (t Tree) Ensure(name string) error {
	if t.Unified() {
		return t.ensureUnified(name)
	}
	for _, root := range t.v1 {
		for _, dir := range []string{plan.Prefix, filepath.Join(plan.Prefix, name)} {
			if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("making cgroup: %w", err)
			}
			if err := inheritCPUs(root, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// inheritCPUs fills in what a new cpuset cgroup lacks: while it names no CPUs, nothing may enter
// it.
func inheritCPUs(root, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(root, file))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // not the hierarchy of cpuset
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(root, dir, file), value, 0o644)
		}
		if err != nil {
			return fmt.Errorf("giving CPUs to cgroup %s: %w", dir, err)
		}
	}
	return nil
}

func (t Tree) ensureUnified(name string) error {
	if err := os.MkdirAll(filepath.Join(t.v2, plan.Prefix, name, Leaf), 0o755); err != nil {
		return fmt.Errorf("making cgroup: %w", err)
	}
	for _, dir := range []string{"", plan.Prefix, filepath.Join(plan.Prefix, name)} {
		for _, controller := range []string{"cpu", "cpuset", "memory", "pids", "io"} {
			file := filepath.Join(t.v2, dir, "cgroup.subtree_control")
			enabled, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if slices.Contains(strings.Fields(string(enabled)), controller) {
				continue
			}
			if err := os.WriteFile(file, []byte("+"+controller), 0o644); err != nil {
				return fmt.Errorf("enabling controller %s in %s: %w", controller, file, err)
			}
		}
	}
	return nil
}

// Enter moves a process (0 is the caller) into a cgroup.
func (t Tree) Enter(name string, pid int) error {
	dirs := t.dirs(name)
	if t.Unified() {
		dirs = []string{filepath.Join(t.v2, plan.Prefix, name, Leaf)}
	}
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("entering cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// Favor gives a cgroup so many times the part of the processors that another one gets, when all
// want more than there is.
func (t Tree) Favor(name string, times int) error {
	const shares, weight, maxWeight = 1024, 100, 10000 // the usual ones of v1 and v2, and v2's greatest
	file := filepath.Join(t.v2, plan.Prefix, name, "cpu.weight")
	value := min(weight*times, maxWeight)
	for _, root := range t.v1 {
		if f := filepath.Join(root, plan.Prefix, name, "cpu.shares"); exists(f) {
			file = f
			value = shares * times
		}
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(value)), 0o644); err != nil {
		return fmt.Errorf("giving more of the processors to cgroup %s: %w", name, err)
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// Processes lists what runs in a cgroup ("" is the whole lab) and below it.
func (t Tree) Processes(name string) ([]int, error) {
	var pids []int
	for _, dir := range t.allDirs(name) {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Name() != "cgroup.procs" {
				return ignoreGone(err)
			}
			b, err := os.ReadFile(path)
			// removed meanwhile; a threaded v2 cgroup
			if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
				return nil
			}
			for _, field := range strings.Fields(string(b)) {
				if pid, err := strconv.Atoi(field); err == nil {
					pids = append(pids, pid)
				}
			}
			return ignoreGone(err)
		})
		if err != nil {
			return nil, fmt.Errorf("listing processes in cgroup %s: %w", dir, err)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// Remove takes away a cgroup ("" is the whole lab) and all below it.
func (t Tree) Remove(name string) error { return t.remove(name, true) }

// Empty takes away what is below a cgroup. Pods of a node's life before this one are there: with
// each of them the kubelet loses 3 s.
func (t Tree) Empty(name string) error { return t.remove(name, false) }

// remove tries for a while: processes that were just killed hold a cgroup for a moment.
func (t Tree) remove(name string, itself bool) error {
	var err error
	for range 50 {
		if err = t.tryRemove(name, itself); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("removing cgroup %s: %w", Path(name), err)
}

func (t Tree) tryRemove(name string, itself bool) error {
	var errs []error
	for _, root := range t.allDirs(name) {
		var dirs []string
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && (itself || path != root && d.Name() != Leaf) {
				dirs = append(dirs, path)
			}
			return ignoreGone(err)
		})
		errs = append(errs, err)
		for _, dir := range slices.Backward(dirs) {
			errs = append(errs, ignoreGone(unix.Rmdir(dir)))
		}
	}
	return errors.Join(errs...)
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (t Tree) dirs(name string) []string {
	var dirs []string
	for _, root := range t.v1 {
		dirs = append(dirs, filepath.Join(root, plan.Prefix, name))
	}
	return dirs
}

// allDirs includes the v2 tree beside v1, in which runc leaves directories.
func (t Tree) allDirs(name string) []string {
	dirs := t.dirs(name)
	if t.v2 != "" {
		dirs = append(dirs, filepath.Join(t.v2, plan.Prefix, name))
	}
	return dirs
}
