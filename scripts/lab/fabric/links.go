package fabric

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The functions of this file work in the network namespace of the thread they run on.

func noLink(name string) (bool, error) {
	_, err := netlink.LinkByName(name)
	if isNoLink(err) {
		return true, nil
	}
	return false, err
}

func isNoLink(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding link %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting link %s up: %w", name, err)
	}
	return nil
}

// address gives a link an address, unless it is the zero Prefix.
func address(name string, addr netip.Prefix) error {
	if !addr.IsValid() {
		return nil
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding link %s: %w", name, err)
	}
	if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: ipnet(addr)}); err != nil {
		return fmt.Errorf("giving %s to %s: %w", addr, name, err)
	}
	return nil
}

func route(dst netip.Prefix, via netip.Addr) error {
	if err := netlink.RouteReplace(&netlink.Route{Dst: ipnet(dst.Masked()), Gw: via.AsSlice()}); err != nil {
		return fmt.Errorf("adding the route to %s via %s: %w", dst, via, err)
	}
	return nil
}

// bridge makes a bridge, which may have an address. Without a MAC address of its own, it would have
// the lowest one of its ports: when nodes come and go, what others send to it would be lost until
// they learn another one.
func bridge(name string, addr netip.Prefix) error {
	missing, err := noLink(name)
	if err != nil {
		return err
	}
	if missing {
		if err := netlink.LinkAdd(&netlink.Bridge{
			LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: ownMAC(name)},
		}); err != nil {
			return fmt.Errorf("making bridge %s: %w", name, err)
		}
	}
	return errors.Join(address(name, addr), up(name))
}

// ownMAC returns a locally administered unicast address for the name of a link.
func ownMAC(name string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(name))
	return append(net.HardwareAddr{0x02}, sum[:5]...)
}

func join(name, bridge string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding link %s: %w", name, err)
	}
	master, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("finding bridge %s: %w", bridge, err)
	}
	if link.Attrs().MasterIndex == master.Attrs().Index {
		return nil
	}
	return netlink.LinkSetMaster(link, master)
}

func deleteLink(name string) error {
	link, err := netlink.LinkByName(name)
	if isNoLink(err) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("deleting link %s: %w", name, err)
	}
	return nil
}

// deleteLinks deletes all there are, except what cannot be.
func deleteLinks() error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, link := range links {
		if link.Type() == "veth" || link.Type() == "bridge" {
			if err := deleteLink(link.Attrs().Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func ipnet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
