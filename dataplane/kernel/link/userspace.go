//go:build linux

package link

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"subctl/dataplane/kernel/netlink"

	"golang.org/x/sys/unix"
)

// Where the kernel has no WireGuard, wireguard-go stands in: a process for each device.
// The device is a TUN device, which exists as long as the process does, and vice versa. So
// no supervision is needed: when a process dies, the kernel removes its device, Watch
// signals that, and the next Sync recreates both.
//
// The process survives the thread and the agent that started it: an agent that is restarted
// adopts it. It does not survive the container: the kernel ends all its processes with the
// first one (pid_namespaces(7)).

// userspace is the program.
const userspace = "wireguard-go"

const (
	uapiDir = "/var/run/wireguard"
	tunFile = "/dev/net/tun"
)

// How long to wait for a process of ours.
const (
	uapiPatience  = 2 * time.Second // to answer
	startPatience = 5 * time.Second // to be there
	stopPatience  = 2 * time.Second // to be gone
	uapiPoll      = 10 * time.Millisecond
	portPoll      = 100 * time.Millisecond // wireguard-go logs each attempt
)

// userspaceMissing returns an error that names what the node lacks for WireGuard, or nil if
// wireguard-go can run.
func userspaceMissing() error {
	if _, err := exec.LookPath(userspace); err != nil {
		return fmt.Errorf("the wireguard kernel module, or %s in the image", userspace)
	}
	f, err := os.OpenFile(tunFile, os.O_RDWR, 0) // creates no device yet
	if err != nil {
		return fmt.Errorf("the wireguard kernel module, or %s for %s (%w)", tunFile, userspace, err)
	}
	return f.Close()
}

// startUserspace starts the process of a device, and waits until it answers.
func (s *Devices) startUserspace(name string) error {
	cmd := exec.Command(userspace, "-f", name)
	log, keep, err := programLog(os.Stderr)
	if err != nil {
		return fmt.Errorf("reading the messages of %s: %w", userspace, err)
	}
	cmd.Env = []string{"WG_PROCESS_FOREGROUND=1"} // without it, the program prints advice
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.ExtraFiles = []*os.File{keep}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a ^C ends the agent only
	err = errors.Join(cmd.Start(), log.Close(), keep.Close())
	if err != nil {
		return fmt.Errorf("starting %s: %w", userspace, err)
	}
	ended := make(chan *os.ProcessState, 1)
	go func() { _ = cmd.Wait(); ended <- cmd.ProcessState }()
	for deadline := time.Now().Add(startPatience); ; {
		select {
		case state := <-ended:
			return fmt.Errorf("%s ended at once (%v): see its messages on standard error", userspace, state)
		case <-time.After(uapiPoll):
		}
		_, err := s.Server(name)
		if err == nil {
			if s.serving(name, true) {
				s.restarted(userspace)
			}
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("%s did not answer for %v: %w", userspace, startPatience, err),
				cmd.Process.Kill())
		}
	}
}

// Server returns the process behind a device. It returns an error if there is none, or if
// it does not answer, or if its device is in another network namespace: the process has a
// socket in the file system, which has no such namespaces.
func (s *Devices) Server(name string) (pid int, err error) {
	c, err := net.DialTimeout("unix", filepath.Join(uapiDir, name+".sock"), uapiPatience)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if pid, err = peerPID(c.(*net.UnixConn)); err != nil {
		return 0, err
	}
	if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil || ns != string(s.home) {
		return 0, fmt.Errorf("process %d serves a device %s of network namespace %q, not of %q (%w)", pid, name, ns,
			s.home, err)
	}
	if err := c.SetDeadline(time.Now().Add(uapiPatience)); err != nil {
		return pid, err
	}
	if _, err := c.Write([]byte("set=1\n\n")); err != nil { // the shortest request: it changes nothing
		return pid, fmt.Errorf("asking process %d: %w", pid, err)
	}
	if _, err := c.Read(make([]byte, 64)); err != nil {
		return pid, fmt.Errorf("process %d does not answer: %w", pid, err)
	}
	return pid, nil
}

// peerPID returns the process that listens at the other end of a socket.
func peerPID(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	ctlErr := raw.Control(
		func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(ctlErr, err); err != nil {
		return 0, fmt.Errorf("finding the process that listens: %w", err)
	}
	return int(cred.Pid), nil
}

// stopUserspace ends the process behind a device, if there is one, and waits until it has
// ended: only then can another process have its socket and its port.
func (s *Devices) stopUserspace(name string) error {
	pid, err := s.Server(name)
	if err == nil {
		s.serving(name, false)
	}
	if pid == 0 {
		return nil
	}
	signals := []unix.Signal{unix.SIGTERM, unix.SIGKILL}
	if err != nil {
		signals = signals[1:] // it does not answer
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ending %s, process %d: %w", userspace, pid, err)
	}
	defer unix.Close(fd)
	for _, sig := range signals {
		if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("ending %s, process %d: %w", userspace, pid, err)
		}
		ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		var n int
		err := netlink.Retry(func() (err error) {
			n, err = unix.Poll(ended, int(stopPatience.Milliseconds()))
			return err
		})
		if err != nil || n > 0 {
			return err
		}
	}
	return fmt.Errorf("%s, process %d, does not end", userspace, pid)
}
