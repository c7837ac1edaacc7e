//go:build linux

package strongswan

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/strongswan/govici/vici"
)

const (
	// startTimeout bounds the start of the daemon, which takes about 0.1 s.
	startTimeout = 10 * time.Second
	// stopTimeout bounds its end, during which it tells its peers.
	stopTimeout = 3 * time.Second
	// poll is the time between two looks at a daemon that starts or ends.
	poll = 10 * time.Millisecond
)

// Start starts the daemon in the calling thread's network namespace, in place of the
// daemon that runs, and waits until it answers. It returns EADDRINUSE if another program
// of the node has the port, such as a strongSwan of its own.
func (i *Instance) Start(s Settings) error {
	if err := Missing("/"); err != nil {
		return err
	}
	if err := i.Stop(); err != nil {
		return err
	}
	for _, port := range []int{s.Port, s.NATPort} {
		if err := tryPort(port); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(i.dir, 0o700); err != nil {
		return err
	}
	if err := i.writeConf(s); err != nil {
		return err
	}
	cmd := exec.Command(program)
	cmd.Env = []string{"STRONGSWAN_CONF=" + i.conf(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stderr = os.Stderr
	// A ^C is meant for the agent only. A session of its own would achieve that, too; but
	// where the kernel divides CPU time among sessions (autogroups, sched(7)), ESP in
	// userspace has been seen to lose half of its throughput in one.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", program, err)
	}
	ended := make(chan *os.ProcessState, 1)
	go func() { _ = cmd.Wait(); ended <- cmd.ProcessState }() // so that there is no zombie, whenever it ends
	if err := os.WriteFile(i.pidFile(), []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o600); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	if err := i.await(ended); err != nil {
		return errors.Join(err, i.Stop())
	}
	if s.Userspace {
		_ = growBuffers(cmd.Process.Pid) // a node may forbid it: then bursts lose packets
	}
	return nil
}

// tryPort returns an error if a UDP port cannot be opened. Port 0 stands for any free one.
func tryPort(port int) error {
	if port == 0 {
		return nil
	}
	l, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
	if err != nil {
		return fmt.Errorf("trying UDP port %d: %w", port, err)
	}
	return l.Close()
}

// writeConf writes the daemon's configuration, all of it or nothing.
func (i *Instance) writeConf(s Settings) error {
	next := i.conf() + ".new"
	if err := os.WriteFile(next, conf(s, i.dir), 0o600); err != nil {
		return err
	}
	return os.Rename(next, i.conf())
}

// Reload applies settings to the running daemon. Only Debug can change that way.
func (i *Instance) Reload(s Settings) error {
	if err := i.writeConf(s); err != nil {
		return err
	}
	return i.talk(func(v *vici.Session) error {
		_, err := request(v, "reload-settings", nil)
		return err
	})
}

// await waits until the daemon answers.
func (i *Instance) await(ended <-chan *os.ProcessState) error {
	deadline := time.Now().Add(startTimeout)
	for {
		version, err := i.Version()
		if err == nil {
			return checkVersion(version)
		}
		select {
		case state := <-ended:
			return fmt.Errorf("%s ended at once (%v): its log, on stderr, says why", program, state)
		case <-time.After(poll):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not answer after %v: %w", program, startTimeout, err)
		}
	}
}

// checkVersion refuses strongSwan before 5.9, which cannot set an if_id for each
// connection.
func checkVersion(version string) error {
	var major, minor int
	if n, err := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 || err != nil || major < 5 ||
		major == 5 && minor < 9 {
		return fmt.Errorf("strongSwan is version %.20q: 5.9 or newer is needed", version)
	}
	return nil
}

// Stop ends the daemon, if it runs, and removes the directory.
func (i *Instance) Stop() error {
	i.Rest()
	pid, _ := i.Process()
	for n, deadline := 0, time.Now().Add(stopTimeout); pid != 0; n++ {
		sig := syscall.SIGTERM
		if late := time.Now().After(deadline); late {
			sig = syscall.SIGKILL
		}
		if n == 0 || sig == syscall.SIGKILL {
			if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("stopping charon, process %d: %w", pid, err)
			}
		}
		time.Sleep(poll)
		if !i.owns(pid) {
			pid = 0
		}
	}
	return os.RemoveAll(i.dir)
}
