//go:build linux

package route

import (
	"fmt"
	"net/netip"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// addrs are the IPv4 addresses of our devices, all of them, except those of CNFTunnelDevice, which
// charon adds and removes. (The IPv6 address that the kernel adds to each device is in no plan.)
type addrs struct{ *Routing }

func (addrs) Kinds() []dataplane.Kind { return []dataplane.Kind{dataplane.KindAddr} }

func (s addrs) List() (out []dataplane.Object, err error) {
	devs, err := s.devices.Own()
	if err != nil {
		return nil, err
	}
	for name, index := range devs {
		if name == dataplane.CNFTunnelDevice {
			continue
		}
		ps, err := s.prefixes(index)
		if netlink.Gone(err) {
			continue // the device was removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("listing addresses of %s: %w", name, err)
		}
		for _, p := range ps {
			out = append(out, dataplane.Addr{Dev: name, Prefix: p})
		}
	}
	return out, nil
}

// prefixes returns the IPv4 addresses of a device.
func (s addrs) prefixes(index int) (out []netip.Prefix, err error) {
	msgs, err := s.conn.Dump(unix.NETLINK_ROUTE, unix.RTM_GETADDR, ifAddrmsg(unix.AF_INET, 0, index))
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		msg := nl.DeserializeIfAddrmsg(m)
		if int(msg.Index) != index {
			continue // a kernel that does not filter
		}
		for t, v := range netlink.Attrs(m[msg.Len():]) {
			if t == unix.IFA_LOCAL {
				out = append(out, netip.PrefixFrom(netlink.Addr(v), int(msg.Prefixlen)))
			}
		}
	}
	return out, nil
}

func (s addrs) Put(_, want dataplane.Object) error {
	a := want.(dataplane.Addr)
	if err := s.do(unix.RTM_NEWADDR, netlink.Replace, a); err != nil {
		return fmt.Errorf("adding address %v on %s: %w", a.Prefix, a.Dev, err)
	}
	return nil
}

func (s addrs) Delete(old dataplane.Object) error {
	a := old.(dataplane.Addr)
	if err := netlink.OrGone(s.do(unix.RTM_DELADDR, 0, a)); err != nil {
		return fmt.Errorf("removing address %v of %s: %w", a.Prefix, a.Dev, err)
	}
	return nil
}

func (s addrs) do(typ, flags int, a dataplane.Addr) error {
	i, err := s.devices.Index(a.Dev)
	if err != nil {
		return err
	}
	ip := a.Prefix.Addr()
	b := ifAddrmsg(netlink.Family(ip), a.Prefix.Bits(), i)
	b = netlink.PutAttr(b, unix.IFA_LOCAL, ip.AsSlice())
	return s.conn.Change(typ, flags, netlink.PutAttr(b, unix.IFA_ADDRESS, ip.AsSlice()))
}

func ifAddrmsg(family uint8, bits, index int) []byte {
	msg := nl.NewIfAddrmsg(int(family))
	msg.Prefixlen = uint8(bits)
	msg.Index = uint32(index)
	return msg.Serialize()
}
