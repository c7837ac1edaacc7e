//go:build linux

package kernel

import (
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tunnels are the tunnels that our strongSwan has loaded, and the policies that keep
// packets that belong in a tunnel from leaving in clear.
type tunnels struct{ *Host }

func (s tunnels) list() (out []dataplane.Object, err error) {
	if !s.ownsIPsec {
		return nil, nil
	}
	have, err := s.ipsec()
	if err != nil {
		return nil, err
	}
	out = blocks(have.policies)
	for name, c := range have.conns {
		if s.owner.OwnsDevice(dataplane.IPsecDevice) {
			out = append(out, dataplane.Tunnel{Name: name, Seen: c.Child})
		}
	}
	for _, r := range s.charon.Remotes(have.conns) {
		out = append(out, r)
	}
	return out, nil
}

var _ dataplane.Remoter = (*Host)(nil)

// RemoteStates implements dataplane.Remoter.
func (h *Host) RemoteStates() ([]dataplane.RemoteState, error) { return h.charon.RemoteStates() }

// putRemote loads a connection of a CNF.
func (s tunnels) putRemote(r dataplane.IKERemote) error {
	var ifID uint32
	userspace := ipsecEngine().Name != dataplane.EngineKernel
	if !userspace {
		ifID = dataplane.IPsecIfID
	}
	if userspace {
		if err := s.standInAddrs(r); err != nil {
			return fmt.Errorf("adding the IPsec connection %s: %w", r.Name, err)
		}
	}
	set, _ := s.charon.Running()
	if err := s.charon.LoadRemote(r, ifID, set.Mark, userspace); err != nil {
		return fmt.Errorf("adding the IPsec connection %s: %w", r.Name, err)
	}
	return nil
}

func (s tunnels) put(_, want dataplane.Object) error {
	if b, ok := want.(dataplane.IPsecBlock); ok {
		return s.xfrm.block(b)
	}
	if r, ok := want.(dataplane.IKERemote); ok {
		return s.putRemote(r)
	}
	t := want.(dataplane.Tunnel)
	if t.PSK == (dataplane.Secret{}) {
		return fmt.Errorf("adding tunnel %s: it has no key", t.Name)
	}
	var ifID uint32
	if t.Mode == dataplane.TunnelMode && ipsecEngine().Name == dataplane.EngineKernel {
		ifID = dataplane.IPsecIfID
	}
	if err := s.charon.Load(t, ifID); err != nil {
		return fmt.Errorf("adding tunnel %s: %w", t.Name, err)
	}
	return nil
}

func (s tunnels) del(old dataplane.Object) error {
	if b, ok := old.(dataplane.IPsecBlock); ok {
		return s.xfrm.unblock(b)
	}
	if r, ok := old.(dataplane.IKERemote); ok {
		if err := s.charon.UnloadRemote(r.Name, ""); err != nil {
			return fmt.Errorf("removing the IPsec connection %s: %w", r.Name, err)
		}
		return nil
	}
	if err := s.charon.Unload(old.Key().Name); err != nil {
		return fmt.Errorf("removing tunnel %s: %w", old.Key().Name, err)
	}
	return nil
}

// standInAddrs gives the pod an address in each local network of a connection in which it has none: ESP in userspace refuses a
// tunnel otherwise (kernel_libipsec_ipsec.c, install_route). Each address of the network may belong to a host, even the first one, as in a
// /32. So the pod must not use the address itself: its local route, by which the kernel would answer ARP and deliver packets, is moved to
// charon's table. The kernel looks that table up last, and charon's routes find the address there. charon ignores addresses of the scopes host
// and link. The device is newer than the pod's others, so that the kernel prefers their addresses as sources of the pod's own packets.
func (s tunnels) standInAddrs(r dataplane.IKERemote) error {
	all, err := netlink.Whole(func() ([]vnl.Addr, error) { return s.nl.AddrList(nil, vnl.FAMILY_V4) })
	if err != nil {
		return fmt.Errorf("listing addresses: %w", err)
	}
	have := slices.DeleteFunc(all, func(a vnl.Addr) bool { return a.Scope >= unix.RT_SCOPE_LINK })
	for _, c := range r.Children {
		for _, n := range c.LocalTS {
			if !slices.ContainsFunc(have, func(a vnl.Addr) bool { return n.Contains(netlink.Addr(a.IP)) }) {
				if err := s.standInAddr(n.Masked().Addr()); err != nil {
					return fmt.Errorf("adding an address in %v: %w", n, err)
				}
			}
		}
	}
	return nil
}

func (s tunnels) standInAddr(ip netip.Addr) error {
	dev, err := s.nl.LinkByName(dataplane.CNFStandInDevice)
	if netlink.Gone(err) {
		if err := addStandIn(s.nl, dataplane.CNFStandInDevice); err != nil {
			return err
		}
		dev, err = s.nl.LinkByName(dataplane.CNFStandInDevice)
	}
	if err != nil {
		return err
	}
	own := ipNet(netip.PrefixFrom(ip, ip.BitLen()))
	local := vnl.Route{LinkIndex: dev.Attrs().Index, Dst: own, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Table: dataplane.CharonTable}
	if err := s.nl.RouteReplace(&local); err != nil {
		return err
	}
	if err := s.nl.AddrReplace(dev, &vnl.Addr{IPNet: own, Scope: unix.RT_SCOPE_SITE}); err != nil {
		return err
	}
	local.Table = unix.RT_TABLE_LOCAL
	return netlink.OrGone(s.nl.RouteDel(&local))
}
