//go:build linux

package link

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"
	"subctl/dataplane/kernel/strongswan"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// IPsecEngine returns what handles IPsec packets on the node. It looks once.
func IPsecEngine() dataplane.Engine { return ipsecEngine() }

var ipsecEngine = sync.OnceValue(func() dataplane.Engine { return chooseEngine("/", probeESP) })

// chooseEngine returns the kernel if it has ESP, else strongSwan itself, or an Engine that
// names what is missing for either. The files of the image are under root.
func chooseEngine(root string, probeESP func() error) dataplane.Engine {
	if err := strongswan.Missing(root); err != nil {
		return dataplane.Engine{Missing: err.Error()}
	}
	kernelErr := probeESP()
	if kernelErr == nil {
		return dataplane.Engine{Name: dataplane.EngineKernel}
	}
	if err := strongswan.MissingUserspace(root); err != nil {
		return dataplane.Engine{Missing: fmt.Sprintf("IPsec in the kernel (%v), or in userspace (%v)", kernelErr, err)}
	}
	return dataplane.Engine{Name: strongswan.Engine}
}

// probeESP adds a security association and an XFRM interface, which loads the modules that
// they need, and removes them again. There is no other way to find out: modules that are
// not loaded yet are listed nowhere.
//
// The agents of a node may probe at the same moment: an object that exists already was
// added by another agent, or by an agent that was killed, and an object that is gone was
// removed by another agent.
func probeESP() error {
	h, err := vnl.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_XFRM)
	if err != nil {
		return fmt.Errorf("opening netlink socket: %w", err)
	}
	defer h.Close()
	sa := &vnl.XfrmState{
		Src: net.IPv4(127, 0, 0, 1), Dst: net.IPv4(127, 0, 0, 2), Proto: vnl.XFRM_PROTO_ESP, Mode: vnl.XFRM_MODE_TUNNEL,
		Spi: probeID, Reqid: probeID, Ifid: probeIfID,
		Aead: &vnl.XfrmStateAlgo{Name: "rfc4106(gcm(aes))", Key: make([]byte, 20), ICVLen: 128},
	}
	if err := h.XfrmStateAdd(sa); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("no ESP: %w", err)
	}
	errs := []error{netlink.OrGone(h.XfrmStateDel(sa))}
	dev := &vnl.Xfrmi{LinkAttrs: vnl.LinkAttrs{Name: probeDevice}, Ifid: probeIfID}
	if err := h.LinkAdd(dev); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("no XFRM interfaces: %w", err)
	}
	return errors.Join(append(errs, delLink(h, dev.Name))...)
}

// delLink removes a device. It is no error if there is none.
func delLink(h *vnl.Handle, name string) error {
	l, err := h.LinkByName(name)
	if err != nil {
		return netlink.OrGone(err)
	}
	return netlink.OrGone(h.LinkDel(l))
}

// The objects that probeESP adds.
const (
	probeDevice = "subctl-probe"
	probeID     = 0x1ffffffe // in no plan: next hops begin at 0x10 and groups end with 24 bits of hash
	probeIfID   = dataplane.IPsecIfID + 1
)
