//go:build linux

package link

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"subctl/dataplane/kernel/netlink"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// portInUseError is the error of a UDP port that another socket of the node has.
type portInUseError struct {
	port    int
	owner   string // see portOwner
	setting string // of the driver, by which a user chooses another port
	err     error
}

// Error implements error.
func (e portInUseError) Error() string {
	return fmt.Sprintf("UDP port %d is in use by %s: stop that one, or set another %s for this cluster", e.port,
		e.owner, e.setting)
}

// Unwrap returns the error of the kernel or of the program that wanted the port.
func (e portInUseError) Unwrap() error { return e.err }

// ExplainPort returns err or, if it is due to a UDP port that is in use, an error that names
// the owner.
func (s *Devices) ExplainPort(err error, port int, setting string) error {
	if !errors.Is(err, unix.EADDRINUSE) {
		return err
	}
	owner := s.portOwner(port)
	if owner == "" {
		owner = "another program"
	}
	return portInUseError{port, owner, setting, err}
}

// portOwner describes whose socket has a UDP port in the calling thread's network
// namespace, such as "charon (pid 123)" or "the wireguard device wg0"; empty if there is none.
//
// Only programs of the process namespace are known by name: an agent in a pod sees the programs of
// its pod. Of other programs only the user ID is known.
func (s *Devices) portOwner(port int) string {
	for _, table := range []string{"udp", "udp6"} {
		inode, user := findSocket("/proc/thread-self/net/"+table, port)
		if inode == "" {
			continue
		}
		if pid, name := holder("/proc", inode); pid != 0 {
			return fmt.Sprintf("%s (pid %d)", name, pid)
		}
		if l := s.portDevice(port); l != nil {
			return fmt.Sprintf("the %s device %s", l.Type(), l.Attrs().Name)
		}
		return fmt.Sprintf(
			"a program of user ID %s outside this pod (on the node, \"ss -lunp 'sport = :%d'\" names it)", user, port)
	}
	return ""
}

// portDevice returns the device of the kernel that has a UDP port; nil if none is known.
func (s *Devices) portDevice(port int) vnl.Link {
	links, err := netlink.Whole(s.nl.LinkList)
	if err != nil {
		return nil
	}
	for _, l := range links {
		switch l := l.(type) {
		case *vnl.Vxlan:
			if l.Port == port {
				return l
			}
		case *vnl.Wireguard:
			if wg, err := s.wg(); err == nil {
				if d, err := wg.Device(l.Name); err == nil && d.ListenPort == port {
					return l
				}
			}
		}
	}
	return nil
}

// findSocket returns the inode of the socket that is bound to a port and not connected, and the
// user ID of its owner, or "" if there is none. The format of the file is described in proc_net(5).
func findSocket(file string, port int) (socket, user string) {
	f, err := os.Open(file)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	const localAddress, remoteAddress, uid, inode = 1, 2, 7, 9
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) <= inode {
			continue
		}
		_, local, _ := strings.Cut(fields[localAddress], ":")
		_, remote, _ := strings.Cut(fields[remoteAddress], ":")
		if n, err := strconv.ParseUint(local, 16, 16); err == nil && int(n) == port && remote == "0000" {
			return fields[inode], fields[uid]
		}
	}
	return "", ""
}

// holder returns a process that has a socket open, and the name of its program; 0 if none is
// visible.
func holder(proc, inode string) (pid int, name string) {
	files, _ := filepath.Glob(proc + "/[0-9]*/fd/*") // the pattern is valid
	for _, file := range files {
		if to, err := os.Readlink(file); err != nil || to != "socket:["+inode+"]" {
			continue
		}
		dir := filepath.Dir(filepath.Dir(file))
		comm, err := os.ReadFile(filepath.Join(dir, "comm"))
		if pid, _ = strconv.Atoi(filepath.Base(dir)); err == nil && pid != 0 {
			return pid, strings.TrimSpace(string(comm))
		}
	}
	return 0, ""
}
