//go:build linux

package kernel

import (
	"errors"
	"fmt"

	"subctl/dataplane"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ipsecLink is d as a plan would have it; blank but for its name if it is not what
// leads into our tunnels, or is down.
func (h *Host) ipsecLink(d *device) dataplane.IPsecInterface {
	if !d.up || !h.leadsToIPsec(d) {
		return dataplane.IPsecInterface{Name: d.name}
	}
	return dataplane.IPsecInterface{Name: d.name, MTU: d.link.Attrs().MTU, Conf: d.conf}
}

// leadsToIPsec says whether a device is the XFRM interface of our policies, or in
// userspace ESP the TUN device of our daemon.
func (h *Host) leadsToIPsec(d *device) bool {
	if ipsecEngine().Name == dataplane.EngineKernel {
		x, ok := d.link.(*netlink.Xfrmi)
		return ok && x.Ifid == dataplane.IPsecIfID
	}
	return d.name == h.charon.tun()
}

// putIPsecLink makes the XFRM interface, or takes the TUN device that charon has made
// and gives it its name.
func (s links) putIPsecLink(want dataplane.IPsecInterface) error {
	d, err := s.ensure(want.Name, s.leadsToIPsec, func() error { return s.addIPsecLink(want.Name) })
	if err != nil {
		return err
	}
	return s.setUp(d, want.MTU, want.Conf)
}

func (s links) addIPsecLink(name string) error {
	if ipsecEngine().Name == dataplane.EngineKernel {
		return s.nl.LinkAdd(&netlink.Xfrmi{LinkAttrs: netlink.LinkAttrs{Name: name}, Ifid: dataplane.IPsecIfID})
	}
	tun := s.charon.tun()
	if tun == "" {
		return errors.New("charon has no TUN device")
	}
	d, err := s.getLink(tun, 0)
	if err != nil {
		return fmt.Errorf("looking for charon's device %s: %w", tun, err)
	}
	s.unlearn(tun)
	// A device that is up cannot have another name. charon goes on with the open file.
	if err := s.nl.LinkSetDown(d.link); err != nil {
		return err
	}
	if err := s.nl.LinkSetName(d.link, name); err != nil {
		return err
	}
	if err := addStandIn(s.nl, tun); err != nil {
		return errors.Join(err, s.nl.LinkSetName(d.link, tun)) // as if nothing had been done
	}
	return nil
}

// In userspace ESP charon insists on a route to what a tunnel leads to, through the
// device as it named it (kernel_libipsec_ipsec.c, install_route: no setting turns that
// off), and without it there is no tunnel. So a device that does nothing takes the old
// name, and charon's routes are in a table that is looked up after all others.

// standInAlias is how such a device is told from others of its kind.
const standInAlias = "subctl: stands in for " + dataplane.IPsecDevice

func addStandIn(h *netlink.Handle, name string) error {
	// A TUN device that nobody has open: where charon can have one, there can be another.
	dev := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TUN}
	if err := h.LinkAdd(dev); err != nil {
		return fmt.Errorf("adding device %s: %w", name, err)
	}
	return errors.Join(h.LinkSetAlias(dev, standInAlias), h.LinkSetUp(dev))
}

// sweepRoutes removes stand-ins, and the rule that a charon left that was killed. Its
// routes went with its device. The rule goes last: by it the others are known to be there.
func sweepRoutes() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening netlink socket: %w", err)
	}
	defer h.Close()
	links, err := whole(h.LinkList)
	if err != nil {
		return fmt.Errorf("listing devices: %w", err)
	}
	for _, l := range links {
		if l.Attrs().Alias != standInAlias {
			continue
		}
		if err := orGone(h.LinkDel(l)); err != nil {
			return fmt.Errorf("removing device %s: %w", l.Attrs().Name, err)
		}
	}
	rules, err := charonRules(h)
	for _, r := range rules {
		err = errors.Join(err, orGone(h.RuleDel(&r)))
	}
	return err
}

// charonRules are those that a charon makes when it starts, and removes when it ends.
func charonRules(h *netlink.Handle) ([]netlink.Rule, error) {
	rules, err := whole(func() ([]netlink.Rule, error) {
		return h.RuleListFiltered(netlink.FAMILY_ALL, &netlink.Rule{Table: dataplane.CharonTable}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("listing rules: %w", err)
	}
	return rules, nil
}
