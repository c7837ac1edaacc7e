//go:build linux

// Package strongswan starts, configures and queries instances of strongSwan, the
// program that negotiates the keys of IPsec tunnels (IKEv2, RFC 7296).
//
// An instance has a directory of its own, and so a socket of its own for vici,
// strongSwan's control protocol. Nothing about an instance is kept in memory only:
// whether its daemon runs, and what it was told, is found in the directory and by asking
// the daemon. So a new process finds the daemon that an earlier one started. Keys are
// passed through vici only, and are in no file.
//
// The package holds no policy. Its callers decide which instances run, with which ports,
// and which tunnels they hold; what leads packets into the tunnels, such as an XFRM
// interface, routes and rules, is theirs, too.
package strongswan

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The daemon is the one that Debian packages as charon-systemd, which runs without
// systemd as well. Unlike the plain charon it has no PID file at a path that another
// strongSwan of the node would use, too.
const (
	program   = "/usr/sbin/charon-systemd"
	pluginDir = "/usr/lib/ipsec/plugins"
	// libipsec is the plugin that handles ESP packets in userspace.
	libipsec = "kernel-libipsec"
)

// Engine is the name of ESP in userspace, by strongSwan itself.
const Engine = libipsec

// Instance is one strongSwan. The zero value is not usable: see New.
type Instance struct {
	dir string

	mu         sync.Mutex
	negotiator *negotiator
}

// New returns the instance that has its files in dir, which must be on the local file
// system and should be on a tmpfs: the files mean nothing after a restart of the node.
// New starts nothing, and does not create dir.
func New(dir string) *Instance { return &Instance{dir: dir} }

// Missing returns an error that names the first file of strongSwan that is missing from
// an image, whose files are under root, or nil if none is.
func Missing(root string) error {
	for _, file := range []string{
		program,
		pluginDir + "/libstrongswan-vici.so",
		pluginDir + "/libstrongswan-openssl.so",
	} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			return fmt.Errorf("strongSwan is missing from the image: no %s", file)
		}
	}
	return nil
}

// MissingUserspace is Missing for ESP in userspace.
func MissingUserspace(root string) error {
	for _, file := range []string{pluginDir + "/libstrongswan-" + libipsec + ".so", "/dev/net/tun"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			return fmt.Errorf("no %s", file)
		}
	}
	return nil
}

// Dir returns the directory of the instance.
func (i *Instance) Dir() string { return i.dir }

func viciSocket(dir string) string { return filepath.Join(dir, "charon.vici") }

func (i *Instance) conf() string    { return filepath.Join(i.dir, "strongswan.conf") }
func (i *Instance) pidFile() string { return filepath.Join(i.dir, "charon.pid") }

// HasFiles reports whether a daemon has left files, or runs.
func (i *Instance) HasFiles() bool {
	_, err := os.Stat(i.dir)
	return err == nil
}

// Process returns the process ID of the daemon and the time at which it was started, or
// 0 if it does not run.
func (i *Instance) Process() (pid int, started time.Time) {
	text, err := os.ReadFile(i.pidFile())
	if err != nil {
		return 0, time.Time{}
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || !i.owns(pid) {
		return 0, time.Time{}
	}
	info, err := os.Stat(i.pidFile())
	if err != nil {
		return 0, time.Time{}
	}
	return pid, info.ModTime()
}

// owns reports whether a process is the daemon of this instance, and not another process
// that has got its ID since: the daemon is not a zombie and has our configuration in its
// environment.
func (i *Instance) owns(pid int) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // empty for a zombie
	return err == nil && bytes.Contains(env, []byte("STRONGSWAN_CONF="+i.conf()+"\x00"))
}

// Running returns the settings that the daemon was started with. It reports false if no
// daemon runs. The settings are zero if they cannot be read.
func (i *Instance) Running() (Settings, bool) {
	if pid, _ := i.Process(); pid == 0 {
		return Settings{}, false
	}
	text, err := os.ReadFile(i.conf())
	if err != nil {
		return Settings{}, true
	}
	return parseConf(text), true
}

// Device returns the current name of the daemon's TUN device, which it has with ESP in
// userspace, or "" if it has none. Of several such devices on a node, the daemon's open
// files tell which one is its own.
func (i *Instance) Device() string {
	pid, _ := i.Process()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid)) // the pattern is well-formed
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
