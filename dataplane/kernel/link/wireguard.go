//go:build linux

package link

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"subctl/dataplane"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// wireGuardKind is the link type, and the generic netlink family, of the kernel's
// WireGuard.
const wireGuardKind = "wireguard"

// WireGuardEngine returns what handles WireGuard packets on the node. It looks once: that may
// load the kernel's module, and the engine does not change while an agent runs.
func WireGuardEngine() dataplane.Engine { return wireGuardEngine() }

var wireGuardEngine = sync.OnceValue(func() dataplane.Engine {
	if _, err := vnl.GenlFamilyGet(wireGuardKind); err == nil { // loads the module, and creates nothing
		return dataplane.Engine{Name: dataplane.EngineKernel}
	}
	if err := userspaceMissing(); err != nil {
		return dataplane.Engine{Missing: err.Error()}
	}
	return dataplane.Engine{Name: userspace}
})

// isWireGuard reports whether a device of an owner is a WireGuard device, by its name:
// wireguard-go's devices have the type of any TUN device.
func isWireGuard(name string) bool { return name == dataplane.WireGuardDevice }

// wireGuard returns d as a plan describes it. If the device has another type, or no process
// behind it, only the name is set; likewise if it is down, because the kernel has then
// removed all its routes and next hops.
func (s *Devices) wireGuard(d *device) (dataplane.Object, error) {
	w, err := s.readWireGuard(d)
	if err == nil {
		s.read[d.name] = w
	}
	if err != nil || w == nil || !d.up || w.FirewallMark != 0 {
		return dataplane.WireGuard{Name: d.name}, err
	}
	return dataplane.WireGuard{
		Name:    d.name,
		Private: dataplane.Secret(w.PrivateKey),
		Port:    w.ListenPort,
		MTU:     d.link.Attrs().MTU,
		Conf:    d.conf,
	}, nil
}

// readWireGuard returns a device as WireGuard reports it, or nil if it is no WireGuard
// device, or the process behind it is gone.
func (s *Devices) readWireGuard(d *device) (*wgtypes.Device, error) {
	if !s.serves(d) {
		return nil, nil
	}
	wg, err := s.wg()
	if err != nil {
		return nil, err
	}
	w, err := wg.Device(d.name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // removed meanwhile
	}
	if err != nil {
		return nil, fmt.Errorf("reading WireGuard device %s: %w", d.name, err)
	}
	return w, nil
}

// serves reports whether WireGuard is behind a device.
func (s *Devices) serves(d *device) bool {
	switch d.link.Type() {
	case wireGuardKind:
		return true
	case (&vnl.Tuntap{}).Type():
		_, err := s.Server(d.name)
		if err == nil {
			s.serving(d.name, true)
		}
		return err == nil
	}
	return false
}

// serving records whether a process is behind a device, and returns the previous record.
func (s *Devices) serving(name string, now bool) (before bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.served[name]
	s.served[name] = now
	return before
}

// wg returns a client of WireGuard. Its socket belongs to the calling thread's network
// namespace, and stays open.
func (s *Devices) wg() (*wgctrl.Client, error) {
	if err := s.home.Check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wgctrl == nil {
		wireGuardEngine() // loads the kernel's module: a client looks for it only once
		c, err := wgctrl.New()
		if err != nil {
			return nil, err
		}
		s.wgctrl = c
	}
	return s.wgctrl, nil
}

// configureWireGuard changes settings of a device.
func (s *Devices) configureWireGuard(name string, c wgtypes.Config) error {
	wg, err := s.wg()
	if err != nil {
		return err
	}
	err = wg.ConfigureDevice(name, c)
	if err != nil && strings.HasSuffix(err.Error(), fmt.Sprintf("errno=-%d", unix.EADDRINUSE)) {
		return fmt.Errorf("%w: %w", unix.EADDRINUSE, err) // wgctrl has only the text of wireguard-go's answer
	}
	return err
}

// ErrShownOnly is the error for a plan that was made without keys.
var ErrShownOnly = errors.New("its key is missing: the plan was made to be shown, not to be applied")

// putWireGuard creates the device, or changes it in place: a new device has no peers.
func (s links) putWireGuard(want dataplane.WireGuard) error {
	if want.Private == (dataplane.Secret{}) {
		return fmt.Errorf("adding device %s: %w", want.Name, ErrShownOnly)
	}
	patient := time.Now()
	d, err := s.ensure(want.Name, s.serves, func() error {
		err := s.addWireGuard(want.Name)
		patient = time.Now().Add(stopPatience) // the device before it may still have the port
		return err
	})
	if err != nil {
		return err
	}
	set := wgtypes.Config{PrivateKey: (*wgtypes.Key)(&want.Private), ListenPort: &want.Port, FirewallMark: new(int)}
	for err = s.configureWireGuard(want.Name, set); err != nil && time.Now().Before(patient); time.Sleep(portPoll) {
		err = s.configureWireGuard(want.Name, set)
	}
	if err != nil {
		return fmt.Errorf("setting key and port %d of device %s: %w", want.Port, want.Name,
			s.ExplainPort(err, want.Port, "wireguardPort"))
	}
	return s.ExplainPort(s.setUp(d, want.MTU, want.Conf), want.Port, "wireguardPort")
}

// addWireGuard creates a device without settings.
func (s links) addWireGuard(name string) error {
	switch e := wireGuardEngine(); e.Name {
	case dataplane.EngineKernel:
		return s.nl.LinkAdd(&vnl.Wireguard{LinkAttrs: vnl.LinkAttrs{Name: name}})
	case userspace:
		return s.startUserspace(name)
	default:
		return fmt.Errorf("this node cannot: it lacks %s", e.Missing)
	}
}
