package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"subctl/lab/cgroup"
	"subctl/lab/node"
	"subctl/lab/plan"
)

// This file asks whether the machine can carry the lab, so that a user reads what is wrong instead
// of waiting for nodes that never become Ready.

// inotifyPerNode was measured: how many inotify instances a node (kubelet, containerd, kube-proxy)
// holds.
const inotifyPerNode = 9

// controlPlaneUser runs control planes: the kernel counts inotify instances by user, and a control
// plane holds 11.
const controlPlaneUser = 64321

func needRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("root is needed, for namespaces, mounts and cgroups")
	}
	return nil
}

// needTools names every program that is missing at once.
func needTools() error {
	var missing []error
	for _, tool := range []string{"nft", "iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, fmt.Errorf("%s is missing: install the packages nftables and iptables", tool))
		}
	}
	return errors.Join(missing...)
}

// checkInotify counts what the nodes that do not run yet will want. The kernel's limit is for all
// processes of a user together, and containerd that meets it comes up without its better half.
// Control planes have a user of their own.
func checkInotify(wanted []plan.Cluster, tree cgroup.Tree) error {
	need := 0
	others := map[string]bool{} // the processes of another user
	for _, c := range wanted {
		pids, err := tree.Processes(c.Name())
		if err != nil {
			return err
		}
		for _, pid := range pids {
			others[strconv.Itoa(pid)] = true
		}
		for _, n := range c.Members() {
			if _, alive, err := node.Find(n, tree); err != nil {
				return err
			} else if !alive {
				need += inotifyPerNode
			}
		}
	}
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		return err
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return err
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return err
	}
	used := 0
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.HasSuffix(target, "inotify") &&
			!others[strings.Split(fd, "/")[2]] {
			used++
		}
	}
	if used+need > limit {
		return fmt.Errorf(
			"what is to be started needs %d inotify instances, but %d of the %d this machine allows a user are taken: "+
				"take fewer clusters, or allow more (sysctl fs.inotify.max_user_instances=512)",
			need,
			used,
			limit,
		)
	}
	return nil
}
