//go:build linux

package ike

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/dataplane/kernel/link"
	"subctl/dataplane/kernel/netlink"
	"subctl/dataplane/kernel/strongswan"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// standInAddrs gives the pod an address in each local network of a connection in which it has none:
// ESP in userspace refuses a tunnel otherwise (kernel_libipsec_ipsec.c, install_route). Each
// address of the network may belong to a host, even the first one, as in a /32. So the pod must not
// use the address itself: its local route, by which the kernel would answer ARP and deliver
// packets, is moved to charon's table. The kernel looks that table up last, and charon's routes
// find the address there. charon ignores addresses of the scopes host and link. The device is newer
// than the pod's others, so that the kernel prefers their addresses as sources of the pod's own
// packets.
func (s *IPsec) standInAddrs(r dataplane.IKERemote) error {
	own, stand, _, err := s.podAddrs()
	if err != nil {
		return err
	}
	for _, c := range r.Children {
		for _, n := range c.LocalTS {
			if !slices.ContainsFunc(slices.Concat(own, stand), n.Contains) {
				if err := s.standInAddr(n.Masked().Addr()); err != nil {
					return fmt.Errorf("adding an address in %v: %w", n, err)
				}
			}
		}
	}
	return nil
}

// podAddrs returns the addresses of the pod that charon sees: its own ones, and those that stand
// in, on their device.
func (s *IPsec) podAddrs() (own, stand []netip.Addr, dev vnl.Link, err error) {
	dev, err = s.nl.LinkByName(dataplane.CNFStandInDevice)
	if netlink.OrGone(err) != nil {
		return nil, nil, nil, err
	}
	all, errAddrs := netlink.Whole(func() ([]vnl.Addr, error) { return s.nl.AddrList(nil, vnl.FAMILY_V4) })
	if errAddrs != nil {
		return nil, nil, nil, fmt.Errorf("listing addresses: %w", errAddrs)
	}
	for _, a := range all {
		switch {
		case err == nil && a.LinkIndex == dev.Attrs().Index:
			stand = append(stand, netlink.Addr(a.IP))
		case a.Scope < unix.RT_SCOPE_LINK:
			own = append(own, netlink.Addr(a.IP))
		}
	}
	return own, stand, dev, nil
}

// standInAddr adds an address that stands in.
func (s *IPsec) standInAddr(ip netip.Addr) error {
	dev, err := s.nl.LinkByName(dataplane.CNFStandInDevice)
	if netlink.Gone(err) {
		if err := link.AddStandIn(s.nl, dataplane.CNFStandInDevice); err != nil {
			return err
		}
		dev, err = s.nl.LinkByName(dataplane.CNFStandInDevice)
	}
	if err != nil {
		return err
	}
	local := localRoute(dev, ip)
	if err := s.nl.RouteReplace(&local); err != nil {
		return err
	}
	if err := s.nl.AddrReplace(dev, &vnl.Addr{IPNet: local.Dst, Scope: unix.RT_SCOPE_SITE}); err != nil {
		return err
	}
	local.Table = unix.RT_TABLE_LOCAL
	return netlink.OrGone(s.nl.RouteDel(&local))
}

// localRoute returns the local route of an address that stands in.
func localRoute(dev vnl.Link, ip netip.Addr) vnl.Route {
	return vnl.Route{
		LinkIndex: dev.Attrs().Index,
		Dst:       ipNet(netip.PrefixFrom(ip, ip.BitLen())),
		Type:      unix.RTN_LOCAL,
		Scope:     unix.RT_SCOPE_HOST,
		Table:     dataplane.CharonTable,
	}
}

// idleStandIns returns the addresses that stand in for no network of the connections, and their
// device.
func (s *IPsec) idleStandIns(conns map[string]strongswan.Connection) (idle []netip.Addr, dev vnl.Link, err error) {
	if !s.owner.OwnsDevice(dataplane.CNFTunnelDevice) {
		return nil, nil, nil
	}
	own, stand, dev, err := s.podAddrs()
	if err != nil || len(stand) == 0 {
		return nil, nil, err
	}
	var networks []netip.Prefix
	for _, c := range conns {
		for _, text := range c.LocalTS {
			if n, err := netip.ParsePrefix(text); err == nil && !slices.ContainsFunc(own, n.Contains) {
				networks = append(networks, n)
			}
		}
	}
	needed := func(ip netip.Addr) bool {
		return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(ip) })
	}
	return slices.DeleteFunc(stand, needed), dev, nil
}

// sweepStandInAddrs removes the addresses that stand in for no network of a connection that is
// loaded now. The address goes last: it tells that there is something to remove.
func (s *IPsec) sweepStandInAddrs() error {
	conns, err := s.charon.Connections()
	if err != nil {
		return err
	}
	idle, dev, err := s.idleStandIns(conns)
	for _, ip := range idle {
		local := localRoute(dev, ip)
		failed := netlink.OrGone(s.nl.RouteDel(&local))
		if failed == nil {
			failed = netlink.OrGone(s.nl.AddrDel(dev, &vnl.Addr{IPNet: local.Dst}))
		}
		if failed != nil {
			err = errors.Join(err,
				fmt.Errorf("removing the address %v of device %s: %w", ip, dataplane.CNFStandInDevice, failed))
		}
	}
	return err
}
