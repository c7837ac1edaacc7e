//go:build linux

package link

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	vnl "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// device is a network device as the kernel reports it.
type device struct {
	index int
	name  string
	up    bool
	conf  dataplane.Conf
	link  vnl.Link
}

const skipStats = 1 << 3 // RTEXT_FILTER_SKIP_STATS, linux/rtnetlink.h

// getLink returns one device, by name or by index. It does not list the devices: a node may
// have hundreds.
func (s *Devices) getLink(name string, index int) (*device, error) {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	b := netlink.PutU32(msg.Serialize(), unix.IFLA_EXT_MASK, skipStats)
	if name != "" {
		b = netlink.PutString(b, unix.IFLA_IFNAME, name)
	}
	msgs, err := s.conn.Request(unix.NETLINK_ROUTE, unix.RTM_GETLINK, 0, b)
	if err != nil {
		return nil, err
	}
	if len(msgs) != 1 {
		return nil, fmt.Errorf("device %q (index %d): got %d answers", name, index, len(msgs))
	}
	l, err := vnl.LinkDeserialize(nil, msgs[0])
	if err != nil {
		return nil, fmt.Errorf("reading device %q (index %d): %w", name, index, err)
	}
	a := l.Attrs()
	s.learn(a.Name, a.Index)
	return &device{
		index: a.Index, name: a.Name, link: l,
		up:   a.RawFlags&unix.IFF_UP != 0,
		conf: readConf(msgs[0][msg.Len():]),
	}, nil
}

// links are the owner's devices.
type links struct{ *Devices }

func (links) Kinds() []dataplane.Kind { return []dataplane.Kind{dataplane.KindLink} }

func (s links) List() (out []dataplane.Object, err error) {
	devs, err := s.ownDevices()
	if err != nil {
		return nil, err
	}
	for _, d := range devs {
		o, err := s.observe(d)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

// ownDevices returns the owner's devices, as they were when this Observe first looked.
func (s *Devices) ownDevices() ([]*device, error) {
	if s.links != nil {
		return s.links, nil
	}
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	out := []*device{}
	for _, name := range names {
		d, err := s.getLink(name, 0)
		if netlink.Gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking for device %s: %w", name, err)
		}
		if isOurs(d) {
			out = append(out, d)
		}
	}
	s.links = out
	return out, nil
}

// isOurs reports whether a device with a name of ours is ours: of the kind that the name stands
// for, whatever its settings.
func isOurs(d *device) bool {
	switch l := d.link.(type) {
	case *vnl.Vxlan:
		return l.VxlanId == vniOf(d.name)
	case *vnl.Wireguard:
		return isWireGuard(d.name)
	case *vnl.Xfrmi:
		return isIPsec(d.name) && l.Ifid == dataplane.IPsecIfID
	case *vnl.Tuntap: // of wireguard-go, or of charon
		return isWireGuard(d.name) || isIPsec(d.name)
	}
	return false
}

// vniOf returns the network identifier of the VXLAN device with a name of ours; -1 if the name is
// not one of a VXLAN device.
func vniOf(name string) int {
	switch name {
	case dataplane.IntraDevice:
		return dataplane.IntraVNI
	case dataplane.VXLANDevice, dataplane.VXLANWireGuardDevice, dataplane.VXLANIPsecDevice:
		return dataplane.CableVNI
	}
	digits, is := strings.CutPrefix(name, dataplane.VXLANDevicePrefix)
	vni, err := strconv.Atoi(digits)
	if !is || err != nil {
		return -1
	}
	return vni
}

func isIPsec(name string) bool {
	return name == dataplane.IPsecDevice || name == dataplane.CNFTunnelDevice
}

// names returns the names that the owner's devices have or could have.
func (s *Devices) names() ([]string, error) {
	names := slices.Clone(s.owner.Devices)
	if len(s.owner.Prefixes) == 0 {
		return names, nil
	}
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	b := netlink.PutU32(msg.Serialize(), unix.IFLA_EXT_MASK, skipStats)
	// or the kernel lists all devices
	b = netlink.PutAttr(b, unix.IFLA_LINKINFO|unix.NLA_F_NESTED, netlink.PutString(nil, nl.IFLA_INFO_KIND, "vxlan"))
	msgs, err := s.conn.Dump(unix.NETLINK_ROUTE, unix.RTM_GETLINK, b)
	if err != nil {
		return nil, fmt.Errorf("listing vxlan devices: %w", err)
	}
	for _, m := range msgs {
		for t, v := range netlink.Attrs(m[msg.Len():]) {
			if name := netlink.Text(v); t == unix.IFLA_IFNAME && s.owner.OwnsDevice(name) &&
				!slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// observe returns the object that a plan would hold for the device.
func (s links) observe(d *device) (dataplane.Object, error) {
	switch {
	case isWireGuard(d.name):
		return s.wireGuard(d)
	case isIPsec(d.name):
		return s.ipsecLink(d), nil
	}
	return s.vxlan(d)
}

// put creates the device, or repairs it.
func (s links) Put(_, want dataplane.Object) error {
	switch w := want.(type) {
	case dataplane.WireGuard:
		return s.putWireGuard(w)
	case dataplane.IPsecInterface:
		return s.putIPsecLink(w)
	case dataplane.VXLAN:
		return s.putVXLAN(w)
	}
	return fmt.Errorf("no such kind of device: %T", want)
}

// ensure returns the device with a name. If there is none, or it does not fit, the device is
// created with add.
func (s links) ensure(name string, fits func(*device) bool, add func() error) (*device, error) {
	d, err := s.getLink(name, 0)
	if err != nil && !netlink.Gone(err) {
		return nil, fmt.Errorf("looking for device %s: %w", name, err)
	}
	if d != nil && !isOurs(d) {
		return nil, fmt.Errorf("device %s belongs to another program (its kind is %q): rename it with: ip link set "+
			"%[1]s down; ip link set %[1]s name NEWNAME; or remove it with: ip link del %[1]s", name, d.link.Type())
	}
	if d != nil && fits(d) {
		return d, nil
	}
	if d != nil {
		if err := s.remove(name); err != nil {
			return nil, err
		}
	}
	if err := add(); err != nil {
		return nil, fmt.Errorf("adding device %s: %w", name, err)
	}
	if d, err = s.getLink(name, 0); err != nil {
		return nil, fmt.Errorf("looking for device %s just added: %w", name, err)
	}
	return d, nil
}

// setUp sets a device up, and changes its settings and more attributes.
func (s links) setUp(d *device, mtu int, c dataplane.Conf, more ...byte) error {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(d.index)
	msg.Flags = unix.IFF_UP
	msg.Change = unix.IFF_UP
	b := append(netlink.PutU32(msg.Serialize(), unix.IFLA_MTU, uint32(mtu)), more...)
	if err := s.conn.Change(unix.RTM_SETLINK, 0, putConf(b, c)); err != nil {
		return fmt.Errorf("setting up device %s: %w", d.name, err)
	}
	return nil
}

func (s links) Delete(old dataplane.Object) error { return s.remove(old.Key().Name) }

// remove removes a device, and the process behind it. It is no error if there is none.
func (s links) remove(name string) error {
	if isWireGuard(name) {
		if err := s.stopUserspace(name); err != nil {
			return fmt.Errorf("removing device %s: %w", name, err)
		}
	}
	i, err := s.Index(name)
	if err == nil {
		s.unlearn(name)
		msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
		msg.Index = int32(i)
		err = s.conn.Change(unix.RTM_DELLINK, 0, msg.Serialize())
	}
	if err := netlink.OrGone(err); err != nil {
		return fmt.Errorf("removing device %s: %w", name, err)
	}
	return nil
}
