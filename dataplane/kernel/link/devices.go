//go:build linux

// Package link has the network devices of an owner, VXLAN, WireGuard and IPsec, with the peers of
// WireGuard devices and the programs that stand in where the kernel has no WireGuard. It finds
// devices by name and index for the other parts of package kernel.
package link

import (
	"fmt"
	"sync"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"
	"subctl/dataplane/kernel/store"
	"subctl/dataplane/kernel/strongswan"

	vnl "github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// Config is what Devices needs. For Index, Name, Own and SetConf, Conn and Owner are enough.
type Config struct {
	Owner  dataplane.Owner
	Conn   *netlink.Conn
	Handle *vnl.Handle // of families NETLINK_ROUTE and NETLINK_NETFILTER
	Home   netlink.Home
	Charon *strongswan.Instance // creates the IPsec device, with ESP in userspace
}

// Devices are the devices of one network namespace, restricted to those of an owner. Apart from
// stores, it is safe for concurrent use.
type Devices struct {
	owner  dataplane.Owner
	conn   *netlink.Conn
	nl     *vnl.Handle
	home   netlink.Home
	charon *strongswan.Instance

	// Clock is time.Now, by which CableStates finds peers that do not answer. Tests replace it.
	Clock func() time.Time

	links []*device                  // see ownDevices; nil until they are read
	own   map[string]int             // see Own; nil until they are read
	read  map[string]*wgtypes.Device // WireGuard devices by name; a device without WireGuard behind it is nil

	mu      sync.Mutex
	wgctrl  *wgctrl.Client // nil until it is needed
	indexOf map[string]int // devices by name and by index, since the last Forget
	nameOf  map[int]string
	// restarts is the number of restarts of wireguard-go. served are the WireGuard devices that
	// were seen with a process behind them which we have not ended since.
	restarts map[string]int
	served   map[string]bool
	// exchanged holds the states derived from the counters of WireGuard peers, by public key.
	exchanged map[string]exchanged
}

// New returns the devices. It changes nothing.
func New(c Config) *Devices {
	d := &Devices{
		owner:    c.Owner,
		conn:     c.Conn,
		nl:       c.Handle,
		home:     c.Home,
		charon:   c.Charon,
		Clock:    time.Now,
		restarts: map[string]int{},
		served:   map[string]bool{},
	}
	d.Forget()
	return d
}

// Close closes the client of WireGuard.
func (s *Devices) Close() {
	if s.wgctrl != nil {
		_ = s.wgctrl.Close() // it has nothing to lose
	}
}

// Stores returns the stores of devices and of peers. The peers are those of the devices that were
// listed just before.
func (s *Devices) Stores() []store.Store { return []store.Store{links{s}, peers{s}} }

// Forget drops what is known of devices: other programs may have changed them.
func (s *Devices) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.indexOf = map[string]int{}
	s.nameOf = map[int]string{}
	s.links = nil
	s.own = nil
	s.read = map[string]*wgtypes.Device{}
}

func (s *Devices) learn(name string, index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.indexOf[name] = index
	s.nameOf[index] = name
}

func (s *Devices) unlearn(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nameOf, s.indexOf[name])
	delete(s.indexOf, name)
}

// Index returns the index of the device with a name.
func (s *Devices) Index(name string) (int, error) {
	s.mu.Lock()
	i, ok := s.indexOf[name]
	s.mu.Unlock()
	if ok {
		return i, nil
	}
	l, err := s.getLink(name, 0)
	if err != nil {
		return 0, fmt.Errorf("finding device %s: %w", name, err)
	}
	return l.index, nil
}

// Name returns the name of the device with an index, or "" if there is none.
func (s *Devices) Name(index int) (string, error) {
	s.mu.Lock()
	n, ok := s.nameOf[index]
	s.mu.Unlock()
	if ok {
		return n, nil
	}
	l, err := s.getLink("", index)
	if err != nil {
		return "", netlink.OrGone(err)
	}
	return l.name, nil
}

// Own returns the indexes of the owner's devices that exist, by name.
func (s *Devices) Own() (map[string]int, error) {
	if s.own != nil {
		return s.own, nil
	}
	devs, err := s.ownDevices()
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, dev := range devs {
		out[dev.name] = dev.index
	}
	s.own = out
	return out, nil
}
