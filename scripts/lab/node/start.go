package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"subctl/lab/cgroup"
	"subctl/lab/fabric"
	"subctl/lab/kubeapi"
	"subctl/lab/pki"
	"subctl/lab/plan"
	"subctl/lab/process"
)

// Place has the directories of a node, of its cluster and of the lab's binaries.
type Place struct{ Dir, ClusterDir, Bin string }

// Start boots a node whose network namespace is there. It does not wait for it to be Ready.
func Start(n plan.Node, p Place, tree cgroup.Tree) error {
	if err := prepare(n, p); err != nil {
		return fmt.Errorf("preparing %s: %w", n.Name(), err)
	}
	if err := tree.Ensure(n.Name()); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(p.Dir, "init.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe", "node-init", n.Name(), p.Dir, p.Bin)
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID,
		Setsid:     true, // it outlives us and our terminal
	}
	if err := fabric.In(n.Netns(), cmd.Start); err != nil {
		return fmt.Errorf("starting %s: %w", n.Name(), err)
	}
	return cmd.Process.Release()
}

// prepare writes what the node will find in /etc/kubernetes.
func prepare(n plan.Node, p Place) error {
	dir := filepath.Join(p.Dir, "kubernetes")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	keys, err := pki.Load(p.ClusterDir)
	if err != nil {
		return err
	}
	user := "system:node:" + n.Name()
	if err := keys.User(n.Name(), user, "system:nodes", n.Cluster.Name(), n.Cluster.Server(), n.Name(),
		n.Addr().Addr().String()); err != nil {
		return err
	}
	if err := keys.User(n.Name()+"-flannel", kubeapi.FlannelUser, "", n.Cluster.Name(),
		n.Cluster.Server()); err != nil {
		return err
	}
	if err := keys.User(n.Name()+"-multus", kubeapi.MultusUser, "", n.Cluster.Name(), n.Cluster.Server()); err != nil {
		return err
	}
	for from, to := range map[string]string{
		n.Name() + "-flannel.kubeconfig": "flannel.conf",
		n.Name() + "-multus.kubeconfig":  "multus.conf",
		"pki/ca.crt":                     "ca.crt",
		"kube-proxy.kubeconfig":          "kube-proxy.conf",
		"pki/" + n.Name() + ".crt":       "kubelet.crt",
		"pki/" + n.Name() + ".key":       "kubelet.key",
		n.Name() + ".kubeconfig":         "kubelet.conf",
	} {
		b, err := os.ReadFile(filepath.Join(p.ClusterDir, from))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, to), b, 0o600); err != nil {
			return err
		}
	}
	for file, text := range configs(n, runc(p.Bin)) {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// runc prefers one that was built with seccomp.
func runc(bin string) string {
	if _, err := os.Stat(filepath.Join(bin, "runc-seccomp")); err == nil {
		return "runc-seccomp"
	}
	return "runcw"
}

// Find returns the first process of a node that runs.
func Find(n plan.Node, tree cgroup.Tree) (pid int, ok bool, err error) {
	pids, err := tree.Processes(n.Name())
	if err != nil {
		return 0, false, err
	}
	pid, ok = process.Init(pids)
	return pid, ok, nil
}

// Halt ends all processes of a node. Its kernel still forwards, unless the node was cut off before.
func Halt(n plan.Node, tree cgroup.Tree) error {
	pids, err := tree.Processes(n.Name())
	if err != nil {
		return err
	}
	return process.Kill(pids)
}

// Kill is a power cut: processes, cable and all network state are gone at once.
func Kill(n plan.Node, tree cgroup.Tree) error {
	return errors.Join(Halt(n, tree), fabric.Unplug(n.Port()))
}

// Command is a program to be run inside a node.
type Command struct {
	Args           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Run runs a program in all namespaces of the node whose first process is given.
func Run(ctx context.Context, pid int, c Command) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // this thread will be in the node, and end with it
		done <- runInside(ctx, pid, c)
	}()
	return <-done
}

func runInside(ctx context.Context, pid int, c Command) error {
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("finding the node's first process: %w", err)
	}
	defer unix.Close(handle)
	// A mount namespace is entered only by who shares no working directory with another thread.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leaving the other threads' working directory: %w", err)
	}
	const all = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET | unix.CLONE_NEWPID
	if err := unix.Setns(handle, all); err != nil {
		return fmt.Errorf("entering the node's namespaces: %w", err)
	}
	env := append(os.Environ(), "PATH="+binDir+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	// Looked up by a shell's rules, but inside: what is in PATH out here may not be there.
	cmd := exec.CommandContext(ctx, "/usr/bin/env", c.Args...)
	cmd.Env = env
	cmd.Dir = "/"
	cmd.Stdin = c.Stdin
	cmd.Stdout = c.Stdout
	cmd.Stderr = c.Stderr
	return cmd.Run()
}
