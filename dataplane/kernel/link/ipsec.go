//go:build linux

package link

import (
	"errors"
	"fmt"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	vnl "github.com/vishvananda/netlink"
)

// ipsecLink returns d as a plan describes it. If the device does not lead into our tunnels,
// or is down, only the name is set.
func (s *Devices) ipsecLink(d *device) dataplane.IPsecInterface {
	if !d.up || !s.leadsToIPsec(d) {
		return dataplane.IPsecInterface{Name: d.name}
	}
	return dataplane.IPsecInterface{Name: d.name, MTU: d.link.Attrs().MTU, Conf: d.conf}
}

// leadsToIPsec reports whether a device is the XFRM interface of our policies or, with ESP
// in userspace, the TUN device of our daemon.
func (s *Devices) leadsToIPsec(d *device) bool {
	if x, ok := d.link.(*vnl.Xfrmi); ok {
		set, _ := s.charon.Running()
		return x.Ifid == dataplane.IPsecIfID && !set.Userspace
	}
	return d.name == s.charon.Device()
}

// putIPsecLink creates the XFRM interface, or renames the TUN device that charon has
// created.
func (s links) putIPsecLink(want dataplane.IPsecInterface) error {
	d, err := s.ensure(want.Name, s.leadsToIPsec, func() error { return s.addIPsecLink(want.Name) })
	if err != nil {
		return err
	}
	return s.setUp(d, want.MTU, want.Conf)
}

func (s links) addIPsecLink(name string) error {
	if ipsecEngine().Name == dataplane.EngineKernel {
		return s.nl.LinkAdd(&vnl.Xfrmi{LinkAttrs: vnl.LinkAttrs{Name: name}, Ifid: dataplane.IPsecIfID})
	}
	tun := s.charon.Device()
	if tun == "" {
		return errors.New("charon has no TUN device")
	}
	d, err := s.getLink(tun, 0)
	if err != nil {
		return fmt.Errorf("looking for charon's device %s: %w", tun, err)
	}
	s.unlearn(tun)
	// A device that is up cannot be renamed. charon continues with the open file.
	if err := s.nl.LinkSetDown(d.link); err != nil {
		return err
	}
	if err := s.nl.LinkSetName(d.link, name); err != nil {
		return err
	}
	if err := AddStandIn(s.nl, tun); err != nil {
		return errors.Join(err, s.nl.LinkSetName(d.link, tun)) // as if nothing had been done
	}
	return nil
}

// With ESP in userspace charon insists on a route to the networks of a tunnel through its
// device, by the original name (kernel_libipsec_ipsec.c, install_route: no setting turns
// that off), and there is no tunnel without it. So a device without any function gets the
// original name, and charon's routes are in a table that is looked up after all others.

// standInAlias identifies such a device.
const standInAlias = "subctl: stands in for " + dataplane.IPsecDevice

// AddStandIn adds a device without any function that has a name, for charon.
func AddStandIn(h *vnl.Handle, name string) error {
	// A TUN device that no process has open: the node has TUN devices, for charon has one.
	dev := &vnl.Tuntap{LinkAttrs: vnl.LinkAttrs{Name: name}, Mode: vnl.TUNTAP_MODE_TUN}
	if err := h.LinkAdd(dev); err != nil {
		return fmt.Errorf("adding device %s: %w", name, err)
	}
	return errors.Join(h.LinkSetAlias(dev, standInAlias), h.LinkSetUp(dev))
}

// RemoveStandIns removes the devices that AddStandIn has added.
func RemoveStandIns(h *vnl.Handle) error {
	links, err := netlink.Whole(h.LinkList)
	if err != nil {
		return fmt.Errorf("listing devices: %w", err)
	}
	for _, l := range links {
		if l.Attrs().Alias != standInAlias {
			continue
		}
		if err := netlink.OrGone(h.LinkDel(l)); err != nil {
			return fmt.Errorf("removing device %s: %w", l.Attrs().Name, err)
		}
	}
	return nil
}
