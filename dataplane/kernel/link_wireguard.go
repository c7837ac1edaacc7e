//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	vnl "github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// wireGuardKind is the kind of link, and the generic netlink family, of the kernel's
// WireGuard.
const wireGuardKind = "wireguard"

// wireGuardEngine is what WireGuard devices are made of. It is looked for once: that
// may load the kernel's module, and what a node has does not change under an agent.
var wireGuardEngine = sync.OnceValue(func() dataplane.Engine {
	if _, err := vnl.GenlFamilyGet(wireGuardKind); err == nil { // loads the module, and makes nothing
		return dataplane.Engine{Name: dataplane.EngineKernel}
	}
	if err := userspaceMissing(); err != nil {
		return dataplane.Engine{Missing: err.Error()}
	}
	return dataplane.Engine{Name: userspace}
})

// isWireGuard says which devices of an owner are WireGuard devices: those of wireguard-go
// are TUN devices, which their kind alone does not tell from others.
func isWireGuard(name string) bool { return name == dataplane.WireGuardDevice }

// wireGuard is d as a plan would have it. A device of another type, or without anybody
// who serves it, is blank but for its name; so is one that is down, for the kernel has
// taken all routes and next hops off it.
func (h *Host) wireGuard(d *device) (dataplane.Object, error) {
	w, err := h.readWireGuard(d)
	if err == nil {
		h.seen.wireGuard[d.name] = w
	}
	if err != nil || w == nil || !d.up || w.FirewallMark != 0 {
		return dataplane.WireGuard{Name: d.name}, err
	}
	return dataplane.WireGuard{
		Name: d.name, Private: dataplane.Secret(w.PrivateKey), Port: w.ListenPort, MTU: d.link.Attrs().MTU, Conf: d.conf,
	}, nil
}

// readWireGuard returns what WireGuard says of a device; nil if it is not of WireGuard,
// or whoever served it is gone.
func (h *Host) readWireGuard(d *device) (*wgtypes.Device, error) {
	if !h.serves(d) {
		return nil, nil
	}
	wg, err := h.wg()
	if err != nil {
		return nil, err
	}
	w, err := wg.Device(d.name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // between two looks
	}
	if err != nil {
		return nil, fmt.Errorf("reading WireGuard device %s: %w", d.name, err)
	}
	return w, nil
}

// serves says whether there is WireGuard behind a device.
func (h *Host) serves(d *device) bool {
	switch d.link.Type() {
	case wireGuardKind:
		return true
	case (&vnl.Tuntap{}).Type():
		_, err := h.server(d.name)
		if err == nil {
			h.serving(d.name, true)
		}
		return err == nil
	}
	return false
}

// serving notes whether a process is behind a device, and returns what was noted before.
func (h *Host) serving(name string, now bool) (before bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, h.served[name] = h.served[name], now
	return before
}

// wg returns a client of WireGuard. Its socket is that of the calling thread's network
// namespace, and stays open.
func (h *Host) wg() (*wgctrl.Client, error) {
	if ns, err := netlink.Namespace(); err != nil || ns != h.ipt.netns {
		return nil, fmt.Errorf("the thread is in network namespace %s, and the device is in %s (%w)", ns, h.ipt.netns, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wgctrl == nil {
		wireGuardEngine() // has the kernel load its module: a client looks for that at first only
		c, err := wgctrl.New()
		if err != nil {
			return nil, err
		}
		h.wgctrl = c
	}
	return h.wgctrl, nil
}

// configureWireGuard changes settings of a device.
func (h *Host) configureWireGuard(name string, c wgtypes.Config) error {
	wg, err := h.wg()
	if err != nil {
		return err
	}
	return wg.ConfigureDevice(name, c)
}

// errShownOnly says that a plan was made without keys.
var errShownOnly = errors.New("its key is missing: the plan was made to be shown, not to be applied")

// putWireGuard makes the device, or alters it in place: a new one loses its peers.
func (s links) putWireGuard(want dataplane.WireGuard) error {
	if want.Private == (dataplane.Secret{}) {
		return fmt.Errorf("adding device %s: %w", want.Name, errShownOnly)
	}
	patient := time.Now()
	d, err := s.ensure(want.Name, s.serves, func() error {
		err := s.addWireGuard(want.Name)
		patient = time.Now().Add(stopPatience) // the port may still be that of a device that has just gone
		return err
	})
	if err != nil {
		return err
	}
	set := wgtypes.Config{PrivateKey: (*wgtypes.Key)(&want.Private), ListenPort: &want.Port, FirewallMark: new(int)}
	for err = s.configureWireGuard(want.Name, set); err != nil && time.Now().Before(patient); time.Sleep(uapiPoll) {
		err = s.configureWireGuard(want.Name, set)
	}
	if err != nil {
		return fmt.Errorf("setting key and port %d of device %s: %w", want.Port, want.Name, err)
	}
	return s.setUp(d, want.MTU, want.Conf)
}

// addWireGuard makes a device without settings.
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
