package dataplane

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// PublicKey is the public half of a WireGuard key: a Curve25519 point of 32 bytes
// (RFC 7748, section 5).
type PublicKey [32]byte

// String returns the base64 of the key, as wg(8) prints it.
func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// WireGuard is a WireGuard device: of the kernel, or of wireguard-go where the kernel
// has none. Its packets have no firewall mark.
type WireGuard struct {
	Name string
	// Private is the device's key, clamped (RFC 7748, section 5): that is how WireGuard
	// keeps it, whatever it is given.
	Private Secret
	Port    int // UDP, both source and destination of what peers send
	MTU     int // bytes, of the inner packets
	Conf    Conf
}

// Clamp sets the bits of a private key that every Curve25519 key has alike (RFC 7748,
// section 5).
func (k Secret) Clamp() Secret {
	k[0] &= 0xf8
	k[31] = k[31]&0x7f | 0x40
	return k
}

// Key implements Object.
func (l WireGuard) Key() Key { return Key{KindLink, l.Name} }

// Needs implements Object.
func (WireGuard) Needs() []Key { return nil }

// Equal implements Object.
func (l WireGuard) Equal(o Object) bool { return o == l }

// String implements Object.
func (l WireGuard) String() string {
	return fmt.Sprintf("ip link add %[1]s mtu %[2]d up type wireguard\nwg set %[1]s private-key %[3]v listen-port %[4]d fwmark 0\n%[5]s",
		l.Name, l.MTU, l.Private, l.Port, l.Conf.command(l.Name))
}

// WireGuardPeer is who may send through a WireGuard device, and what.
//
// Endpoints roam: a peer's packets go to where its last authenticated ones came from,
// so Endpoint is where to begin, and where to look for a peer that is not heard of any
// more. Seen is set in a peer that was observed and has agreed on keys lately: it is
// where it is, and any planned Endpoint is as good. So a Sync never fights roaming, and
// the planned address is tried once the last one does not answer any more.
type WireGuardPeer struct {
	Dev       string
	Public    PublicKey
	Preshared Secret
	Endpoint  netip.AddrPort // UDP; the zero AddrPort waits for the peer to come
	// Allowed are the sources that the peer may have, and the destinations that are sent
	// to it; sorted. No two peers of a device can have the same network.
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

// reaches says whether the endpoint need not be set to be as the other's. One that is
// set cannot be taken away, so a plan without one agrees to any.
func (p WireGuardPeer) reaches(other WireGuardPeer) bool {
	return p.Seen || other.Seen || !other.Endpoint.IsValid() || p.Endpoint == other.Endpoint
}

// join implements joiner: a pair of gateways may have two cables through one peer, each
// of which allows networks of its own.
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
