//go:build linux

package kernel

import (
	"bytes"
	"fmt"
	"net"

	"subctl/dataplane"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// device is what the kernel says of a network device.
type device struct {
	index int
	name  string
	up    bool
	conf  dataplane.Conf
	link  netlink.Link
}

const skipStats = 1 << 3 // RTEXT_FILTER_SKIP_STATS, linux/rtnetlink.h

// getLink asks for one device, by name or by index: a node may have hundreds, so
// none are listed.
func (h *Host) getLink(name string, index int) (*device, error) {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	b := putU32(msg.Serialize(), unix.IFLA_EXT_MASK, skipStats)
	if name != "" {
		b = putString(b, unix.IFLA_IFNAME, name)
	}
	msgs, err := h.conn.request(unix.NETLINK_ROUTE, unix.RTM_GETLINK, 0, b)
	if err != nil {
		return nil, err
	}
	if len(msgs) != 1 {
		return nil, fmt.Errorf("device %q (index %d): got %d answers", name, index, len(msgs))
	}
	l, err := netlink.LinkDeserialize(nil, msgs[0])
	if err != nil {
		return nil, fmt.Errorf("reading device %q (index %d): %w", name, index, err)
	}
	a := l.Attrs()
	h.learn(a.Name, a.Index)
	return &device{
		index: a.Index, name: a.Name, link: l,
		up:   a.RawFlags&unix.IFF_UP != 0,
		conf: readConf(msgs[0][msg.Len():]),
	}, nil
}

// links are vxlan devices.
type links struct{ *Host }

func (s links) list() (out []dataplane.Object, err error) {
	for _, name := range s.owner.Devices {
		switch d, err := s.getLink(name, 0); {
		case err == nil:
			out = append(out, d.vxlan())
		case !gone(err):
			return nil, fmt.Errorf("looking for device %s: %w", name, err)
		}
	}
	return out, nil
}

// vxlan is d as a plan would have it. A device of another type, or set up in a
// way that no plan asks for, is blank but for its name; so is one that is down,
// for the kernel has taken all routes and next hops off it.
func (d *device) vxlan() dataplane.VXLAN {
	v, ok := d.link.(*netlink.Vxlan)
	if !ok || !d.up || v.Learning || v.FlowBased || v.VtepDevIndex != 0 || len(v.Group) > 0 {
		return dataplane.VXLAN{Name: d.name}
	}
	return dataplane.VXLAN{
		Name: d.name, MAC: v.HardwareAddr.String(), VNI: v.VxlanId, Local: addr(v.SrcAddr), Port: v.Port, MTU: v.MTU, Conf: d.conf,
	}
}

// put alters the device in place if it can: a new one loses all that stands on it.
func (s links) put(_, want dataplane.Object) error {
	v := want.(dataplane.VXLAN)
	mac, err := net.ParseMAC(v.MAC)
	if err != nil {
		return fmt.Errorf("adding device %s: %w", v.Name, err)
	}
	d, err := s.getLink(v.Name, 0)
	if err != nil && !gone(err) {
		return fmt.Errorf("looking for device %s: %w", v.Name, err)
	}
	if d != nil && !d.fits(v) {
		if err := s.del(want); err != nil {
			return err
		}
		d = nil
	}
	if d == nil {
		err := s.nl.LinkAdd(&netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: v.Name, MTU: v.MTU, HardwareAddr: mac},
			VxlanId:   v.VNI, SrcAddr: v.Local.AsSlice(), Port: v.Port, // Learning is off unless asked for
		})
		if err != nil {
			return fmt.Errorf("adding device %s: %w", v.Name, err)
		}
		if d, err = s.getLink(v.Name, 0); err != nil {
			return fmt.Errorf("looking for device %s just added: %w", v.Name, err)
		}
	}
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index, msg.Flags, msg.Change = int32(d.index), unix.IFF_UP, unix.IFF_UP
	b := putU32(msg.Serialize(), unix.IFLA_MTU, uint32(v.MTU))
	if !bytes.Equal(mac, d.link.Attrs().HardwareAddr) { // even to set the same one clears the ARP table
		b = putAttr(b, unix.IFLA_ADDRESS, mac)
	}
	if err := s.conn.route(unix.RTM_SETLINK, 0, putConf(b, v.Conf)); err != nil {
		return fmt.Errorf("setting up device %s: %w", v.Name, err)
	}
	return nil
}

// fits reports whether d can be made v without being made anew.
func (d *device) fits(v dataplane.VXLAN) bool {
	up := *d
	up.up = true
	have := up.vxlan()
	return have.VNI == v.VNI && have.Local == v.Local && have.Port == v.Port
}

func (s links) del(old dataplane.Object) error {
	name := old.(dataplane.VXLAN).Name
	i, err := s.index(name)
	if err == nil {
		s.unlearn(name)
		msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
		msg.Index = int32(i)
		err = s.conn.route(unix.RTM_DELLINK, 0, msg.Serialize())
	}
	if err := orGone(err); err != nil {
		return fmt.Errorf("removing device %s: %w", name, err)
	}
	return nil
}
