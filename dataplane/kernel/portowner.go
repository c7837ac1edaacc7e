//go:build linux

package kernel

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

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
	return fmt.Sprintf("UDP port %d is in use by %s: stop that one, or set another %s for this cluster", e.port, e.owner, e.setting)
}

// Unwrap returns the error of the kernel or of the program that wanted the port.
func (e portInUseError) Unwrap() error { return e.err }

// explainPort returns err or, if it is due to a UDP port that is in use, an error that names
// the owner.
func explainPort(err error, port int, setting string) error {
	if !errors.Is(err, unix.EADDRINUSE) {
		return err
	}
	owner := portOwner(port)
	if owner == "" {
		owner = "another program"
	}
	return portInUseError{port, owner, setting, err}
}

// portOwner describes whose socket has a UDP port in the calling thread's network
// namespace, such as "charon (pid 123)"; empty if there is none. Only programs of the
// process namespace are known by name: an agent in a pod sees those of its pod.
func portOwner(port int) string {
	for _, table := range []string{"udp", "udp6"} {
		inode := findSocket("/proc/thread-self/net/"+table, port)
		if inode == "" {
			continue
		}
		if pid, name := holder("/proc", inode); pid != 0 {
			return fmt.Sprintf("%s (pid %d)", name, pid)
		}
		return fmt.Sprintf("a program outside this pod (\"ss -lunp sport = :%d\" on the node names it), or by the kernel for a VXLAN or WireGuard device", port)
	}
	return ""
}

// findSocket returns the inode of the socket that is bound to a port and not connected, or
// "" if there is none. The format of the file is described in proc_net(5).
func findSocket(file string, port int) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	const localAddress, remoteAddress, inode = 1, 2, 9
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) <= inode {
			continue
		}
		_, local, _ := strings.Cut(fields[localAddress], ":")
		_, remote, _ := strings.Cut(fields[remoteAddress], ":")
		if n, err := strconv.ParseUint(local, 16, 16); err == nil && int(n) == port && remote == "0000" {
			return fields[inode]
		}
	}
	return ""
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
