package dataplane

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// IKEDaemon is a strongSwan of our own, which negotiates the Tunnels of the node. With ESP
// in userspace it handles their packets, too, and the IPsecInterface is its own.
type IKEDaemon struct {
	Port  int  // UDP, of IKE and of ESP in UDP
	Debug bool // whether it logs more, though never a key
	// IKEPort is the UDP port of IKE before the two ends know that ESP has to be in UDP; 0 for any
	// free port.
	IKEPort int
	// Device gets the virtual addresses that other ends assign; "" if none are requested.
	Device string
	// Mark is set on all packets that the daemon sends, and on packets that IKERemotes have
	// encrypted: rules that lead into tunnels leave them out. 0 for none.
	Mark uint32
	// Unattended is true for a daemon that was observed running although this process has
	// not yet asked it to negotiate, and false in a plan. An agent that starts finds the
	// daemon of the agent before it that way, and adopts it.
	Unattended bool
}

// daemonKey is the key of the IKEDaemon: there is only one.
var daemonKey = Key{KindDaemon, "charon"}

// Key implements Object.
func (IKEDaemon) Key() Key { return daemonKey }

// Needs implements Object.
func (IKEDaemon) Needs() []Key { return nil }

// Equal implements Object.
func (d IKEDaemon) Equal(o Object) bool { return o == d }

// String implements Object.
func (d IKEDaemon) String() string {
	s := fmt.Sprintf("charon-systemd # strongswan.conf: port = %d, port_nat_t = %d; debug: %s", d.IKEPort, d.Port,
		yes(d.Debug))
	if d.Device != "" {
		s += "; install_virtual_ip_on = " + d.Device
	}
	if d.Mark != 0 {
		s += fmt.Sprintf("; fwmark = %#x/%#x", d.Mark, d.Mark)
	}
	if d.Unattended {
		s += "; unattended"
	}
	return s
}

// Attended returns the daemon as a plan describes it.
func (d IKEDaemon) Attended() IKEDaemon {
	d.Unattended = false
	return d
}

// change implements changer.
func (d IKEDaemon) change(old Object) string {
	o, ok := old.(IKEDaemon)
	switch {
	case !ok:
		return ""
	case o == IKEDaemon{}:
		return d.String() + ", in place of one that does not answer"
	case o.Unattended && o.Attended() == d:
		return d.String() + ": adopts the one that runs"
	}
	return ""
}

// IPsecInterface is the device through which packets enter and leave IPsec tunnels: an XFRM
// interface, or the TUN device of ESP in userspace, depending on the kernel.
type IPsecInterface struct {
	Name string
	MTU  int // bytes, of the inner packets
	Conf Conf
	// Guard is as VXLAN.Guard.
	Guard Key
}

// Key implements Object.
func (d IPsecInterface) Key() Key { return Key{KindLink, d.Name} }

// Needs implements Object.
func (d IPsecInterface) Needs() []Key { return guarded([]Key{daemonKey}, d.Guard) }

// Equal implements Object.
func (d IPsecInterface) Equal(o Object) bool {
	other, ok := o.(IPsecInterface)
	other.Guard = d.Guard
	return ok && other == d
}

// String implements Object.
func (d IPsecInterface) String() string {
	return fmt.Sprintf("ip link add %s mtu %d up type xfrm if_id %#x\n%s", d.Name, d.MTU, IPsecIfID,
		d.Conf.command(d.Name))
}

// Modes of a Tunnel (RFC 4301, section 4.1).
const (
	TunnelMode    = "tunnel"    // for packets that pass through the IPsecInterface
	TransportMode = "transport" // for packets between the two ends themselves
)

// Initiative specifies when this end of a Tunnel initiates it.
type Initiative string

// The initiatives. If both ends initiated at once, each would end up with two IKE security
// associations and delete one of them, not always the same.
const (
	InitiateFirst  Initiative = "first"  // at once
	InitiateSecond Initiative = "second" // after some time, in which the other end has not
	InitiateNever  Initiative = "never"  // only the other end initiates
)

// Tunnel is an IKEv2 connection to one gateway, with one child security association,
// as a section of swanctl.conf would describe it.
//
// A daemon does not return the secrets that it was given, so a loaded tunnel is compared
// with a plan by a fingerprint, which is the name of the child.
type Tunnel struct {
	Name       string
	Local      netip.Addr
	Remote     netip.Addr // address of the other end; the zero Addr if only the other end initiates
	LocalPort  int        // UDP: the port of the IKEDaemon
	RemotePort int        // UDP
	LocalID    string     // IKE identities, as fully qualified domain names (RFC 7296, section 3.5)
	RemoteID   string
	PSK        Secret // known to these two identities only
	Mode       string
	LocalTS    []netip.Prefix // traffic selectors: the networks that may use the tunnel at this end
	RemoteTS   []netip.Prefix // and at the other end
	Port       int            // restricts the selectors to UDP from and to this port; 0 for everything
	// identifies our policies and security associations: the ID of a next hop of IPsecNexthopID or
	// VXLANIPsecNexthopID
	ReqID       uint32
	IKE         string // proposals, as in swanctl.conf, separated by commas
	ESP         string
	IKELifetime time.Duration // after which keys are renewed
	ESPLifetime time.Duration
	DPDDelay    time.Duration // the silence after which the other end is asked for a sign of life
	Encap       bool          // whether ESP is in UDP even if no address translation is detected
	Initiative  Initiative
	Seen        string // the fingerprint of a tunnel that was observed, and empty in a plan
}

// Key implements Object.
func (t Tunnel) Key() Key { return Key{KindTunnel, t.Name} }

// Needs implements Object.
func (Tunnel) Needs() []Key { return []Key{daemonKey} }

// Equal implements Object.
func (t Tunnel) Equal(o Object) bool {
	other, ok := o.(Tunnel)
	return ok && t.Name == other.Name && t.Fingerprint() == other.Fingerprint()
}

// Fingerprint returns the initiative and 16 hexadecimal digits of the SHA-256 of everything
// that is planned. That includes the key: a hash of 32 random bytes does not reveal them.
func (t Tunnel) Fingerprint() string {
	if t.Seen != "" {
		return t.Seen
	}
	h := sha256.New()
	h.Write([]byte(t.String()))
	h.Write(t.PSK[:])
	return string(t.Initiative) + "-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// Selectors returns traffic selectors in the notation of swanctl.conf, such as
// "10.1.0.0/16" or "192.0.2.1/32[17/4504]". 17 is UDP: strongSwan would look its name up in
// /etc/protocols, which not every image has.
func (t Tunnel) Selectors(nets []netip.Prefix) []string {
	var out []string
	for _, n := range nets {
		s := n.String()
		if t.Port != 0 {
			s += fmt.Sprintf("[17/%d]", t.Port)
		}
		out = append(out, s)
	}
	return out
}

// RemoteAddrs returns the address at which the other end is looked for, and the addresses
// from which it may come: any, since it proves its identity and may be behind an unknown
// address translation.
func (t Tunnel) RemoteAddrs() []string {
	if !t.Remote.IsValid() {
		return []string{"%any"}
	}
	return []string{t.Remote.String(), "%any"}
}

// String implements Object.
func (t Tunnel) String() string {
	if t.Seen != "" {
		return fmt.Sprintf("swanctl --load-conns # %s, as child %s", t.Name, t.Seen)
	}
	var b strings.Builder
	line := func(depth int, format string, args ...any) {
		fmt.Fprintf(&b, strings.Repeat("  ", depth)+format+"\n", args...)
	}
	line(0, "swanctl --load-all # %s: initiates %s, with this in swanctl.conf:", t.Name, t.Initiative)
	line(0, "connections.%s {", t.Name)
	line(1, "local_addrs = %v", t.Local)
	line(1, "remote_addrs = %s", strings.Join(t.RemoteAddrs(), ", "))
	line(1, "local_port = %d", t.LocalPort)
	line(1, "remote_port = %d", t.RemotePort)
	line(1, "proposals = %s", t.IKE)
	line(1, "rekey_time = %v", t.IKELifetime)
	line(1, "dpd_delay = %v", t.DPDDelay)
	line(1, "encap = %s", yes(t.Encap))
	line(1, "local.id = %s", t.LocalID)
	line(1, "remote.id = %s", t.RemoteID)
	line(1, "children.esp {")
	line(2, "mode = %s", t.Mode)
	line(2, "local_ts = %s", strings.Join(t.Selectors(t.LocalTS), ", "))
	line(2, "remote_ts = %s", strings.Join(t.Selectors(t.RemoteTS), ", "))
	line(2, "esp_proposals = %s", t.ESP)
	line(2, "rekey_time = %v", t.ESPLifetime)
	line(2, "reqid = %#x", t.ReqID)
	line(1, "}")
	line(0, "}")
	fmt.Fprintf(&b, "secrets.ike.secret = %v", t.PSK)
	return b.String()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// IPsecBlock drops UDP packets from an address of the node to a port unless an IPsec policy
// selects them. Otherwise they would leave in clear while there is no tunnel.
type IPsecBlock struct {
	From netip.Addr
	Port int
}

// Key implements Object.
func (b IPsecBlock) Key() Key { return Key{KindTunnel, fmt.Sprintf("block %v %d", b.From, b.Port)} }

// Needs implements Object.
func (IPsecBlock) Needs() []Key { return nil }

// Equal implements Object.
func (b IPsecBlock) Equal(o Object) bool { return o == b }

// String implements Object.
func (b IPsecBlock) String() string {
	return fmt.Sprintf("ip xfrm policy add dir out src %v proto udp dport %d action block priority %d", b.From, b.Port,
		IPsecBlockPriority)
}

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
