//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"subctl/dataplane"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// engineLibipsec is the strongSwan plugin that does ESP in userspace.
const engineLibipsec = "kernel-libipsec"

// ipsecEngine finds out, once, what handles IPsec packets on the node.
var ipsecEngine = sync.OnceValue(func() dataplane.Engine { return chooseEngine("/", probeESP) })

// chooseEngine is the kernel if it can do ESP, else strongSwan itself; or what is missing
// for either. The files of the image are under root.
func chooseEngine(root string, probeESP func() error) dataplane.Engine {
	if err := checkCharon(root); err != nil {
		return dataplane.Engine{Missing: err.Error()}
	}
	kernelErr := probeESP()
	if kernelErr == nil {
		return dataplane.Engine{Name: dataplane.EngineKernel}
	}
	if err := checkLibipsec(root); err != nil {
		return dataplane.Engine{Missing: fmt.Sprintf("IPsec in the kernel (%v), or in userspace (%v)", kernelErr, err)}
	}
	return dataplane.Engine{Name: engineLibipsec}
}

// probeESP asks the kernel for a security association and an XFRM interface, which
// loads the modules they need, and removes them again. There is no other way to ask:
// modules that are not loaded yet are listed nowhere.
//
// The agents of a node may ask at the same moment: what is there already was made by
// another of them, or by one that was killed, and what is gone was removed by another.
func probeESP() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_XFRM)
	if err != nil {
		return fmt.Errorf("opening netlink socket: %w", err)
	}
	defer h.Close()
	sa := &netlink.XfrmState{
		Src: net.IPv4(127, 0, 0, 1), Dst: net.IPv4(127, 0, 0, 2), Proto: netlink.XFRM_PROTO_ESP, Mode: netlink.XFRM_MODE_TUNNEL,
		Spi: probeID, Reqid: probeID, Ifid: probeIfID,
		Aead: &netlink.XfrmStateAlgo{Name: "rfc4106(gcm(aes))", Key: make([]byte, 20), ICVLen: 128},
	}
	if err := h.XfrmStateAdd(sa); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("no ESP: %w", err)
	}
	errs := []error{orGone(h.XfrmStateDel(sa))}
	dev := &netlink.Xfrmi{LinkAttrs: netlink.LinkAttrs{Name: probeDevice}, Ifid: probeIfID}
	if err := h.LinkAdd(dev); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("no XFRM interfaces: %w", err)
	}
	return errors.Join(append(errs, delLink(h, dev.Name))...)
}

// delLink removes a device. Gone already is fine.
func delLink(h *netlink.Handle, name string) error {
	l, err := h.LinkByName(name)
	if err != nil {
		return orGone(err)
	}
	return orGone(h.LinkDel(l))
}

// What probeESP makes for a moment.
const (
	probeDevice = "subctl-probe"
	probeID     = 0x1ffffffe // in no plan: next hops begin at 0x10 and groups end with 24 bits of hash
	probeIfID   = dataplane.IPsecIfID + 1
)

// checkLibipsec says what is missing for ESP in userspace.
func checkLibipsec(root string) error {
	for _, file := range []string{pluginDir + "/libstrongswan-" + engineLibipsec + ".so", tunFile} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			return fmt.Errorf("no %s", file)
		}
	}
	return nil
}
