package dataplane

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/internal/secret"
)

// PublicKey is the public half of a WireGuard key: a Curve25519 point of 32 bytes
// (RFC 7748, section 5).
type PublicKey [32]byte

// String returns the base64 of the key, as wg(8) prints it.
func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// WireGuard is a WireGuard device: the kernel's, or wireguard-go's where the kernel has no
// WireGuard. Its packets have no firewall mark.
type WireGuard struct {
	Name string
	// Private is the device's key. It is clamped (RFC 7748, section 5), because WireGuard
	// stores it that way.
	Private Secret
	Port    int // UDP: the device listens on it, and sends from it
	MTU     int // bytes, of the inner packets
	Conf    Conf
	// Guard is as VXLAN.Guard.
	Guard Key
}

// Key implements Object.
func (l WireGuard) Key() Key { return Key{KindLink, l.Name} }

// Needs implements Object.
func (l WireGuard) Needs() []Key { return guarded(nil, l.Guard) }

// Equal implements Object.
func (l WireGuard) Equal(o Object) bool {
	other, ok := o.(WireGuard)
	other.Guard = l.Guard
	return ok && other == l
}

// String implements Object.
func (l WireGuard) String() string {
	return fmt.Sprintf(
		"ip link add %[1]s mtu %[2]d up type wireguard\nwg set %[1]s private-key %[3]v listen-port %[4]d fwmark 0\n%[5]s",
		l.Name, l.MTU, l.Private, l.Port, l.Conf.command(l.Name))
}

// WireGuardPeer is a peer of a WireGuard device.
//
// Endpoints roam: packets to a peer are sent to the source of its last authenticated
// packet. So Endpoint is where a peer is looked for at first, and when it is silent. A peer
// that was observed and has recently agreed on keys has Seen set, and then equals a plan
// with any Endpoint. So a Sync never undoes roaming, and the planned address is tried once
// the last address does not answer any more.
type WireGuardPeer struct {
	Dev       string
	Public    PublicKey
	Preshared Secret
	Endpoint  netip.AddrPort // UDP; the zero AddrPort if only the peer initiates
	// Allowed are the networks that the peer may send from, and that are sent to the peer,
	// sorted. No two peers of a device can have the same network.
	Allowed   []netip.Prefix
	Keepalive int // seconds between empty packets that keep a translation alive; 0 for none
	Seen      bool
}

// Key implements Object.
func (p WireGuardPeer) Key() Key { return Key{KindPeer, p.Dev + " " + p.Public.String()} }

// Needs implements Object.
func (p WireGuardPeer) Needs() []Key { return onDev(p.Dev) }

// Equal implements Object.
func (p WireGuardPeer) Equal(o Object) bool {
	other, ok := o.(WireGuardPeer)
	return ok && p.Key() == other.Key() && p.Preshared == other.Preshared && p.Keepalive == other.Keepalive &&
		slices.Equal(p.Allowed, other.Allowed) && p.reaches(other)
}

// reaches reports whether the endpoint need not be changed to be equivalent to the other's.
// An endpoint cannot be removed, so a plan without one accepts any.
func (p WireGuardPeer) reaches(other WireGuardPeer) bool {
	return p.Seen || other.Seen || !other.Endpoint.IsValid() || p.Endpoint == other.Endpoint
}

// join implements joiner: a pair of gateways may have two cables through one peer, and each
// cable allows networks of its own.
func (p WireGuardPeer) join(o Object) (Object, bool) {
	other, ok := o.(WireGuardPeer)
	if !ok || p.Key() != other.Key() || p.Preshared != other.Preshared || p.Endpoint != other.Endpoint {
		return nil, false
	}
	p.Allowed = append(slices.Clone(p.Allowed), other.Allowed...)
	slices.SortFunc(p.Allowed, netip.Prefix.Compare)
	p.Allowed = slices.Compact(p.Allowed)
	if p.Keepalive == 0 || other.Keepalive != 0 && other.Keepalive < p.Keepalive {
		p.Keepalive = other.Keepalive
	}
	return p, true
}

// String implements Object.
func (p WireGuardPeer) String() string {
	allowed := make([]string, len(p.Allowed))
	for i, n := range p.Allowed {
		allowed[i] = n.String()
	}
	s := fmt.Sprintf("wg set %s peer %v preshared-key %v", p.Dev, p.Public, p.Preshared)
	if p.Endpoint.IsValid() {
		s += " endpoint " + p.Endpoint.String()
	}
	return s + fmt.Sprintf(" persistent-keepalive %d allowed-ips %s", p.Keepalive, strings.Join(allowed, ","))
}

// Secret is a key of 32 bytes that is never printed. The zero Secret is no key: it stands
// for keys where a plan is only shown.
type Secret = secret.Key
