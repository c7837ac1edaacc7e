package dataplane

import (
	"fmt"
	"net/netip"
)

// What an IKE daemon leaves on a node when it is killed, or a connection when it is removed, are
// objects of KindRemains. No plan contains them, so Sync removes them, with two exceptions. While a
// planned daemon has not been started yet, Diff leaves them alone, because they need it. And a
// running daemon may still use the security associations of the daemon before it: they are not
// observed as remains until it has negotiated others, or has had enough time to do so.

// IPsecSA is a security association whose IKE daemon is gone.
type IPsecSA struct {
	Src, Dst netip.Addr // of the outer packets
	SPI      uint32
	ReqID    uint32
}

// Key implements Object.
func (s IPsecSA) Key() Key { return Key{KindRemains, fmt.Sprintf("state %v %#x", s.Dst, s.SPI)} }

// Needs implements Object.
func (IPsecSA) Needs() []Key { return []Key{daemonKey} }

// Equal implements Object.
func (s IPsecSA) Equal(o Object) bool { return o == s }

// String implements Object.
func (s IPsecSA) String() string {
	return fmt.Sprintf("ip xfrm state add src %v dst %v proto esp spi %#x reqid %#x # of an IKE daemon that is gone",
		s.Src, s.Dst, s.SPI, s.ReqID)
}

// IPsecPolicy is a policy whose IKE daemon is gone.
type IPsecPolicy struct {
	Src, Dst netip.Prefix // of the inner packets
	Port     int          // UDP, both source and destination; 0 for everything
	Dir      string       // "in", "out" or "fwd"
	IfID     uint32       // of the XFRM interface; 0 for none
	Index    int          // by which the kernel tells policies apart
	ReqID    uint32
}

// Key implements Object. The name sorts before the names of IPsecSAs, so policies are
// removed last: the security associations of transport mode are known by the policies,
// which let nothing pass once the keys are gone.
func (p IPsecPolicy) Key() Key { return Key{KindRemains, fmt.Sprintf("policy %s %d", p.Dir, p.Index)} }

// Needs implements Object.
func (IPsecPolicy) Needs() []Key { return []Key{daemonKey} }

// Equal implements Object.
func (p IPsecPolicy) Equal(o Object) bool { return o == p }

// String implements Object.
func (p IPsecPolicy) String() string {
	s := fmt.Sprintf("ip xfrm policy add src %v dst %v", p.Src, p.Dst)
	if p.Port != 0 {
		s += fmt.Sprintf(" proto udp sport %[1]d dport %[1]d", p.Port)
	}
	s += fmt.Sprintf(" dir %s index %d tmpl proto esp reqid %#x", p.Dir, p.Index, p.ReqID)
	if p.IfID != 0 {
		s += fmt.Sprintf(" if_id %#x", p.IfID)
	}
	return s + " # of an IKE daemon that is gone"
}

// StandInAddr is an address on the device CNFStandInDevice that stands in for no network of a
// connection any more.
type StandInAddr struct{ IP netip.Addr }

// Key implements Object.
func (a StandInAddr) Key() Key { return Key{KindRemains, "stand-in " + a.IP.String()} }

// Needs implements Object.
func (StandInAddr) Needs() []Key { return []Key{daemonKey} }

// Equal implements Object.
func (a StandInAddr) Equal(o Object) bool { return o == a }

// String implements Object.
func (a StandInAddr) String() string {
	return fmt.Sprintf("ip addr add %v/32 dev %s # for a connection that is gone", a.IP, CNFStandInDevice)
}

// IKERemains are the files of an IKE daemon that is gone and, if it handled ESP in
// userspace, its rule and the devices that stand in for its own.
type IKERemains struct{}

// Key implements Object. The name sorts before all others of the kind.
func (IKERemains) Key() Key { return Key{KindRemains, "daemon"} }

// Needs implements Object.
func (IKERemains) Needs() []Key { return []Key{daemonKey} }

// Equal implements Object.
func (r IKERemains) Equal(o Object) bool { return o == r }

// String implements Object.
func (IKERemains) String() string {
	return fmt.Sprintf("charon-systemd # is gone; its files, and the rule with priority %d, are left", CharonPriority)
}
