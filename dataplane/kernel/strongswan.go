//go:build linux

package kernel

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"subctl/dataplane"

	"github.com/strongswan/govici/vici"
	"golang.org/x/sys/unix"
)

// charon is the strongSwan of one network namespace that is ours: it has a directory of
// its own, and so a socket of its own for vici, strongSwan's control protocol. It is
// the daemon that Debian packages as charon-systemd, which runs without systemd as
// well, and which, unlike the plain charon, has no PID file at a path that another
// strongSwan of the node would use, too.
//
// Nothing is remembered here: whether it runs, and what it was told, is found in the
// directory and by asking it. So an agent that starts anew adopts the daemon that it
// finds. Keys are given to it through vici only, and are in no file.
type charon struct {
	netns string // in which it runs
	dir   string
	owner bool // whether the tunnels of the node are the Host's to look after

	mu     sync.Mutex
	keeper *keeper
}

const (
	charonProgram = "/usr/sbin/charon-systemd"
	pluginDir     = "/usr/lib/ipsec/plugins"
	// runDir holds a directory for each network namespace. It should be on a tmpfs, for
	// what is in it means nothing after a restart of the node.
	runDir = "/run/subctl"
	// startTimeout bounds the start of charon, which takes about 0.1 s.
	startTimeout = 10 * time.Second
	// stopTimeout bounds its end, in which it tells its peers.
	stopTimeout = 3 * time.Second
)

func newCharon(netns string, owner dataplane.Owner) *charon {
	inode := strings.Trim(netns, "net:[]")
	return &charon{netns: netns, dir: filepath.Join(runDir, "ipsec-"+inode), owner: owner.OwnsDevice(dataplane.IPsecDevice)}
}

// checkCharon says what an image, whose files are under root, lacks.
func checkCharon(root string) error {
	for _, file := range []string{charonProgram, pluginDir + "/libstrongswan-vici.so", pluginDir + "/libstrongswan-openssl.so"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			return fmt.Errorf("strongSwan is missing from the image: no %s", file)
		}
	}
	return nil
}

func viciSocket(dir string) string { return filepath.Join(dir, "charon.vici") }

func (c *charon) conf() string    { return filepath.Join(c.dir, "strongswan.conf") }
func (c *charon) pidFile() string { return filepath.Join(c.dir, "charon.pid") }

// pid returns the process, and when it was started; 0 if none runs.
func (c *charon) pid() (int, time.Time) {
	text, err := os.ReadFile(c.pidFile())
	if err != nil {
		return 0, time.Time{}
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || !c.isCharon(pid) {
		return 0, time.Time{}
	}
	info, err := os.Stat(c.pidFile())
	if err != nil {
		return 0, time.Time{}
	}
	return pid, info.ModTime()
}

// isCharon tells our daemon from a process that has got its PID since: ours is not a
// zombie and has our configuration in its environment.
func (c *charon) isCharon(pid int) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // empty for a zombie
	return err == nil && bytes.Contains(env, []byte("STRONGSWAN_CONF="+c.conf()+"\x00"))
}

// running returns what the daemon was started as.
func (c *charon) running() (dataplane.IKEDaemon, bool) {
	if pid, _ := c.pid(); pid == 0 {
		return dataplane.IKEDaemon{}, false
	}
	text, err := os.ReadFile(c.conf())
	if err != nil {
		return dataplane.IKEDaemon{}, true // blank: it will be started anew
	}
	d, _ := parseConf(string(text))
	return d, true
}

// start starts the daemon, in place of the one that runs.
func (c *charon) start(d dataplane.IKEDaemon) error {
	if err := checkCharon("/"); err != nil {
		return err
	}
	if ns, err := threadNetns(); err != nil || ns != c.netns {
		return fmt.Errorf("the thread is in network namespace %s, and the tunnels are in %s (%w)", ns, c.netns, err)
	}
	if err := c.stop(); err != nil {
		return err
	}
	l, err := net.ListenUDP("udp4", &net.UDPAddr{Port: d.Port})
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("UDP port %d is in use by another program of the node, such as a strongSwan of its own: stop that one, or set another ipsecPort for this cluster", d.Port)
	}
	if err != nil {
		return fmt.Errorf("trying UDP port %d: %w", d.Port, err)
	}
	l.Close()
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	if err := c.writeConf(d); err != nil {
		return err
	}
	cmd := exec.Command(charonProgram)
	cmd.Env = []string{"STRONGSWAN_CONF=" + c.conf(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stderr = os.Stderr
	// A ^C is for the agent. A session of its own would do for that, too; but where the
	// kernel shares out CPU time between sessions (autogroups, sched(7)), userspace ESP has
	// been seen to lose half of its throughput in one.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", charonProgram, err)
	}
	ended := make(chan *os.ProcessState, 1)
	go func() { _ = cmd.Wait(); ended <- cmd.ProcessState }() // so that there is no zombie, whenever it ends
	if err := os.WriteFile(c.pidFile(), []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o600); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	if err := c.await(ended); err != nil {
		return errors.Join(err, c.stop())
	}
	return nil
}

// writeConf writes the daemon's configuration, all of it or nothing.
func (c *charon) writeConf(d dataplane.IKEDaemon) error {
	next := c.conf() + ".new"
	if err := os.WriteFile(next, []byte(strongswanConf(d, ipsecEngine().Name, c.dir)), 0o600); err != nil {
		return err
	}
	return os.Rename(next, c.conf())
}

// reload has the running daemon log as d says. Its port it would not change.
func (c *charon) reload(d dataplane.IKEDaemon) error {
	if err := c.writeConf(d); err != nil {
		return err
	}
	return c.talk(func(s *vici.Session) error {
		_, err := request(s, "reload-settings", nil)
		return err
	})
}

// await waits until the daemon answers.
func (c *charon) await(ended <-chan *os.ProcessState) error {
	deadline := time.Now().Add(startTimeout)
	for {
		version, err := c.version()
		if err == nil {
			return checkVersion(version)
		}
		select {
		case state := <-ended:
			return fmt.Errorf("%s ended at once (%v): its log, on stderr, says why", charonProgram, state)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not answer after %v: %w", charonProgram, startTimeout, err)
		}
	}
}

// checkVersion refuses a strongSwan older than 5.9, which has no if_id by connection.
func checkVersion(version string) error {
	var major, minor int
	if n, err := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 || err != nil || major < 5 || major == 5 && minor < 9 {
		return fmt.Errorf("strongSwan is version %.20q: 5.9 is the first that will do", version)
	}
	return nil
}

// stop ends the daemon, if one runs, and removes its files.
func (c *charon) stop() error {
	pid, _ := c.pid()
	for i, deadline := 0, time.Now().Add(stopTimeout); pid != 0; i++ {
		sig := syscall.SIGTERM
		if late := time.Now().After(deadline); late {
			sig = syscall.SIGKILL
		}
		if i == 0 || sig == syscall.SIGKILL {
			if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("stopping charon, process %d: %w", pid, err)
			}
		}
		time.Sleep(10 * time.Millisecond)
		if !c.isCharon(pid) {
			pid = 0
		}
	}
	return errors.Join(sweepRoutes(), os.RemoveAll(c.dir))
}

// tun returns the name of the daemon's TUN device, in userspace ESP; empty if there is
// none. Which of several such devices is its own, its open files tell.
func (c *charon) tun() string {
	pid, _ := c.pid()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid)) // no bad pattern
	for _, name := range files {
		info, err := os.ReadFile(name)
		if err != nil {
			continue // closed meanwhile
		}
		for s := bufio.NewScanner(bytes.NewReader(info)); s.Scan(); {
			if dev, ok := strings.CutPrefix(s.Text(), "iff:"); ok {
				return strings.TrimSpace(dev)
			}
		}
	}
	return ""
}
