//go:build linux

// Package ike has the IPsec of an owner: strongSwan's daemon, the tunnels and connections that it
// has loaded, what it puts into the kernel, and what a daemon that has ended left there. The
// devices of IPsec are in package link, and the files and messages of charon in package strongswan.
package ike

import (
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/link"
	"subctl/dataplane/kernel/netlink"
	"subctl/dataplane/kernel/store"
	"subctl/dataplane/kernel/strongswan"

	vnl "github.com/vishvananda/netlink"
)

// runDir holds a directory for each network namespace. It should be on a tmpfs.
const runDir = "/run/subctl"

// Charon returns the strongSwan that is ours in a network namespace.
func Charon(home netlink.Home) *strongswan.Instance {
	return strongswan.New(filepath.Join(runDir, "ipsec-"+strings.Trim(string(home), "net:[]")))
}

// IPsec is the IPsec of one network namespace, if it is an owner's.
type IPsec struct {
	owner   dataplane.Owner
	nl      *vnl.Handle
	home    netlink.Home
	charon  *strongswan.Instance
	devices *link.Devices
	xfrm    xfrm
	owned   bool  // whether the tunnels of the node are the owner's
	seen    *view // since the last Forget; nil until it is read

	mu       sync.Mutex
	restarts map[string]int
}

// New returns the IPsec of the calling thread's network namespace, to which handle, of families
// NETLINK_ROUTE and NETLINK_NETFILTER, belongs, too. It changes nothing.
func New(c link.Config, devices *link.Devices) (*IPsec, error) {
	x, err := openXFRM()
	if err != nil {
		return nil, err
	}
	return &IPsec{
		owner:    c.Owner,
		nl:       c.Handle,
		home:     c.Home,
		charon:   c.Charon,
		devices:  devices,
		xfrm:     x,
		owned:    c.Owner.OwnsDevice(dataplane.IPsecDevice) || c.Owner.OwnsDevice(dataplane.CNFTunnelDevice),
		restarts: map[string]int{},
	}, nil
}

// Close closes the socket of IPsec.
func (s *IPsec) Close() { s.xfrm.close() }

// Stores returns the stores of the daemon, of what one left, and of tunnels.
func (s *IPsec) Stores() []store.Store { return []store.Store{daemons{s}, remains{s}, tunnels{s}} }

// Forget drops what is known of IPsec: other programs may have changed it.
func (s *IPsec) Forget() { s.seen = nil }

// Restarts returns how often a daemon took the place of one that had died, by the name of the
// program.
func (s *IPsec) Restarts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.restarts)
}

// restarted counts a restart of a program that was found dead.
func (s *IPsec) restarted(program string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restarts[program]++
}

// RemoteStates returns the states of the connections of a CNF.
func (s *IPsec) RemoteStates() ([]dataplane.RemoteState, error) { return s.charon.RemoteStates() }

// view is the state of IPsec on the node.
type view struct {
	pid      int                              // of our daemon; 0 if it does not run
	started  time.Time                        // when it was
	conns    map[string]strongswan.Connection // nil if it does not answer, or has lost its device
	policies []vnl.XfrmPolicy                 // of the kernel, ours and others
}

// look returns what is seen of IPsec, the same until the next Forget.
func (s *IPsec) look() (*view, error) {
	if s.seen != nil {
		return s.seen, nil
	}
	policies, err := s.xfrm.policies()
	if err != nil {
		return nil, err
	}
	v := &view{policies: policies}
	if v.pid, v.started = s.charon.Process(); v.pid != 0 && !s.lostDevice() {
		v.conns, _ = s.charon.Connections() // a daemon that does not answer is started anew
	}
	s.seen = v
	return v, nil
}

// lostDevice reports whether the daemon handles ESP in userspace and somebody has deleted
// its TUN device. It does not create another one.
func (s *IPsec) lostDevice() bool {
	set, _ := s.charon.Running()
	return set.Userspace && s.charon.Device() == ""
}
