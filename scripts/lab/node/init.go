// Package node is one node of a cluster: a set of namespaces with a containerd, a kubelet and a
// kube-proxy in them, and a state directory. This half runs inside, as the first process of the
// node; start.go is the half outside.
package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"subctl/lab/cgroup"
)

// restartDelay is the time for which a component that ended stays down, as with a unit of systemd.
const restartDelay = time.Second

// Init is the first process of a node. It returns only when it cannot be one; when it ends,
// everything in the node ends.
func Init(name, stateDir, bin string) error {
	tree, err := cgroup.Find()
	if err != nil {
		return err
	}
	// First of all: whoever looks for the lab's processes looks here.
	if err := tree.Enter(name, 0); err != nil {
		return err
	}
	if err := tree.Empty(name); err != nil {
		return fmt.Errorf("clearing cgroups of pods before: %w", err)
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	state, err := os.Open(stateDir)
	if err != nil {
		return err
	}
	binaries, err := os.Open(bin)
	if err != nil {
		return err
	}
	if err := furnish(state, binaries); err != nil {
		return err
	}
	if err := errors.Join(state.Close(), binaries.Close()); err != nil {
		return err
	}
	if err := settle(name); err != nil {
		return err
	}
	return serve(name)
}

// settle writes the files a machine has in /etc.
func settle(name string) error {
	conflist, err := os.ReadFile(filepath.Join(configDir, "cni.conflist"))
	if err == nil {
		err = os.WriteFile(conflistFile, conflist, 0o644)
	} else if usesFlannel() {
		err = os.RemoveAll(conflistFile) // of the node's life before: written again when flannel knows the subnet
	}
	return errors.Join(err, settleMultus(), os.WriteFile("/etc/hostname", []byte(name+"\n"), 0o644),
		os.WriteFile("/etc/hosts", []byte("127.0.0.1 localhost "+name+"\n"), 0o644),
		os.Setenv("PATH", binDir+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
		os.Setenv("HOME", "/root"))
}

func serve(name string) error {
	childEnded := make(chan os.Signal, 1)
	signal.Notify(childEnded, unix.SIGCHLD)
	r := &reaper{waiting: map[int]chan<- unix.WaitStatus{}}
	go r.collect(childEnded)

	kube := filepath.Join(binDir, "labkube")
	go r.keep("containerd", kube, "containerd", "--config", filepath.Join(configDir, "containerd.toml"))
	if err := waitFor("/run/containerd/containerd.sock"); err != nil {
		return err
	}
	images, err := filepath.Glob(filepath.Join(binDir, "images", "*.tar"))
	if err != nil {
		return err
	}
	for _, image := range images {
		if err := r.load(kube, image); err != nil {
			return fmt.Errorf("loading image %s: %w", filepath.Base(image), err)
		}
	}
	ip, err := address()
	if err != nil {
		return err
	}
	if err := nameServer(ip); err != nil {
		return err
	}
	if usesFlannel() {
		if err := r.flannel(name); err != nil {
			return err
		}
	}
	go r.keep("kube-proxy", kube, "kube-proxy", "--config="+filepath.Join(configDir, "kube-proxy.yaml"))
	r.keep("kubelet", kube, "kubelet", "--config="+filepath.Join(configDir, "kubelet.yaml"),
		"--kubeconfig="+filepath.Join(configDir, "kubelet.conf"), "--hostname-override="+name, "--node-ip="+ip,
		// Asking every cgroup for its figures is most of what an idle kubelet does.
		"--housekeeping-interval=30s")
	return nil
}

// load gives containerd an image. On a busy machine, containerd may take longer to answer than ctr
// waits.
func (r *reaper) load(kube, image string) error {
	var err error
	for range 5 {
		if err = r.run("/var/log/images.log", kube, "ctr", "-n", "k8s.io", "images", "import", image); err == nil {
			return nil
		}
		fmt.Fprintln(os.Stderr, err)
		time.Sleep(restartDelay)
	}
	return err
}

// keep runs a component and starts it again when it ends, for ever.
func (r *reaper) keep(name string, argv ...string) {
	for {
		ended, err := r.start(filepath.Join("/var/log", name+".log"), argv...)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		} else {
			status := <-ended
			fmt.Fprintf(os.Stderr, "%s ended with status %d, signal %d\n", name, status.ExitStatus(), status.Signal())
		}
		time.Sleep(restartDelay)
	}
}

// waitFor waits until somebody serves a socket, for two minutes.
func waitFor(socket string) error {
	var err error
	for range 2400 {
		var conn net.Conn
		if conn, err = net.Dial("unix", socket); err == nil {
			return conn.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("waiting for %s, see containerd.log: %w", socket, err)
}

// address is the node's own.
func address() (string, error) {
	link, err := net.InterfaceByName("eth0")
	if err != nil {
		return "", fmt.Errorf("finding the node's link: %w", err)
	}
	addrs, err := link.Addrs()
	if err != nil {
		return "", err
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			return n.IP.String(), nil
		}
	}
	return "", errors.New("eth0 has no address")
}
