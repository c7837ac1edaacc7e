package dataplane

import (
	"fmt"
	"net/netip"
)

// VXLAN is a vxlan device. It neither learns nor floods: every peer has an FDB entry and
// a Neigh entry.
type VXLAN struct {
	Name string
	// Dev is the device through which outer packets leave, whatever the routes; empty for
	// any. Its name must sort before Name, for it has to exist first.
	Dev string
	// MAC is in lower case, separated by colons. It is planned, not random: a device that
	// is recreated must have the address that its peers remember.
	MAC   string
	VNI   int
	Local netip.Addr // source address of the outer packets
	Port  int        // UDP: the device listens on it, and sends to it
	// SourcePort is the source port of the outer packets; 0 lets the kernel vary it by flow.
	SourcePort int
	MTU        int // bytes, of the inner packets
	Conf       Conf
	// Guard is an object of the plan without which the device must not carry packets; the zero Key
	// if there is none. The kernel does not know it.
	Guard Key
}

// Conf is net.ipv4.conf.<device>.
type Conf struct {
	// RPFilter is the setting rp_filter. With 2 (loose) the device accepts packets whose
	// source is reached through another device, as happens where several gateways lead to
	// one network. The kernel uses the greater of this and conf.all.rp_filter.
	RPFilter int
	// Forwarding is the setting forwarding. With 1 the node forwards packets from the device.
	Forwarding int
	// AcceptLocal is the setting accept_local. With 1 the device accepts packets whose source is an
	// address of the node.
	AcceptLocal int
	// ARPIgnore is the setting arp_ignore. With 8 the node answers no ARP requests from the device,
	// nor remembers who sent them. The kernel uses the greater of this and conf.all.arp_ignore.
	ARPIgnore int
}

// command returns what a person would type.
func (c Conf) command(dev string) string {
	s := fmt.Sprintf("sysctl -w net.ipv4.conf.%[1]s.rp_filter=%[2]d net.ipv4.conf.%[1]s.forwarding=%[3]d", dev,
		c.RPFilter, c.Forwarding)
	if c.AcceptLocal != 0 {
		s += fmt.Sprintf(" net.ipv4.conf.%s.accept_local=%d", dev, c.AcceptLocal)
	}
	if c.ARPIgnore != 0 {
		s += fmt.Sprintf(" net.ipv4.conf.%s.arp_ignore=%d", dev, c.ARPIgnore)
	}
	return s
}

// Key implements Object.
func (l VXLAN) Key() Key { return Key{KindLink, l.Name} }

// Needs implements Object.
func (l VXLAN) Needs() []Key {
	if l.Dev == "" {
		return guarded(nil, l.Guard)
	}
	return guarded(onDev(l.Dev), l.Guard)
}

// Equal implements Object.
func (l VXLAN) Equal(o Object) bool {
	other, ok := o.(VXLAN)
	other.Guard = l.Guard
	return ok && other == l
}

// String implements Object.
func (l VXLAN) String() string {
	s := fmt.Sprintf("ip link add %s address %s mtu %d up type vxlan id %d local %v dstport %d nolearning",
		l.Name, l.MAC, l.MTU, l.VNI, l.Local, l.Port)
	if l.Dev != "" {
		s += " dev " + l.Dev
	}
	if l.SourcePort != 0 {
		s += fmt.Sprintf(" srcport %d %d", l.SourcePort, l.SourcePort+1) // the second is not included
	}
	return s + "\n" + l.Conf.command(l.Name)
}

// inPlace reports whether a device or daemon can be changed into another without being
// replaced, and without losing what depends on it. (A new MAC clears the ARP table.)
func inPlace(old, new Object) bool {
	switch b := new.(type) {
	case VXLAN:
		a, ok := old.(VXLAN)
		a.MTU = b.MTU
		a.Conf = b.Conf
		return ok && a == b
	case WireGuard:
		a, ok := old.(WireGuard)
		return ok && a != WireGuard{Name: a.Name} // blank: another type of device
	case IPsecInterface:
		a, ok := old.(IPsecInterface)
		return ok && a.Conf != (Conf{}) // blank: another type of device
	case IKEDaemon:
		a, ok := old.(IKEDaemon)
		return ok && a.Port == b.Port // the sockets are opened once
	}
	return false
}

// Addr is an address on a device.
type Addr struct {
	Dev    string
	Prefix netip.Prefix
}

// Key implements Object.
func (a Addr) Key() Key { return Key{KindAddr, a.Dev + " " + a.Prefix.String()} }

// Needs implements Object.
func (a Addr) Needs() []Key { return onDev(a.Dev) }

// Equal implements Object.
func (a Addr) Equal(o Object) bool { return o == a }

// String implements Object.
func (a Addr) String() string { return fmt.Sprintf("ip addr add %v dev %s", a.Prefix, a.Dev) }

// FDB is an entry in the forwarding table of a vxlan device: frames for MAC are sent to the
// host Dst.
type FDB struct {
	Dev string
	MAC string
	Dst netip.Addr
	// Guard is an object of the plan without which packets to Dst must not leave; the zero Key if
	// there is none. The kernel does not know it.
	Guard Key
}

// Key implements Object.
func (f FDB) Key() Key { return Key{KindNeigh, "fdb " + f.Dev + " " + f.MAC} }

// Needs implements Object.
func (f FDB) Needs() []Key {
	return guarded(onDev(f.Dev), f.Guard)
}

// Equal implements Object.
func (f FDB) Equal(o Object) bool {
	other, ok := o.(FDB)
	other.Guard = f.Guard
	return ok && other == f
}

// String implements Object.
func (f FDB) String() string {
	return fmt.Sprintf("bridge fdb replace %s dev %s dst %v self permanent", f.MAC, f.Dev, f.Dst)
}

// Neigh is a permanent ARP entry, so that no request has to be sent.
type Neigh struct {
	Dev string
	IP  netip.Addr
	MAC string
}

// Key implements Object.
func (n Neigh) Key() Key { return Key{KindNeigh, "ip " + n.Dev + " " + n.IP.String()} }

// Needs implements Object.
func (n Neigh) Needs() []Key { return onDev(n.Dev) }

// Equal implements Object.
func (n Neigh) Equal(o Object) bool { return o == n }

// String implements Object.
func (n Neigh) String() string {
	return fmt.Sprintf("ip neigh replace %v lladdr %s dev %s nud permanent", n.IP, n.MAC, n.Dev)
}

func onDev(name string) []Key { return []Key{{KindLink, name}} }

// guarded returns the keys that an object depends on, and its guard if it has one.
func guarded(needs []Key, guard Key) []Key {
	if guard == (Key{}) {
		return needs
	}
	return append(needs, guard)
}

// Guarded returns a device or a chain that is put only if guard is there. Other objects are
// returned as they are.
func Guarded(o Object, guard Key) Object {
	switch o := o.(type) {
	case VXLAN:
		o.Guard = guard
		return o
	case WireGuard:
		o.Guard = guard
		return o
	case IPsecInterface:
		o.Guard = guard
		return o
	case Chain:
		o.Guard = guard
		return o
	}
	return o
}
