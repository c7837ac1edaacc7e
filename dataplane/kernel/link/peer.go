//go:build linux

package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// rejectAfter is the maximum age of keys: REJECT_AFTER_TIME in section 6.1 of the WireGuard
// paper. A peer that agreed on keys less than that ago can be reached.
const rejectAfter = 180 * time.Second

// peers are the peers of the owner's WireGuard devices, all of them.
type peers struct{ *Devices }

func (peers) Kinds() []dataplane.Kind { return []dataplane.Kind{dataplane.KindPeer} }

// List returns the peers of the devices that links has read: WireGuard lists a device with
// its peers.
func (s peers) List() (out []dataplane.Object, err error) {
	for name, w := range s.read {
		if w == nil {
			continue
		}
		for _, p := range w.Peers {
			out = append(out, observedPeer(name, p))
		}
	}
	return out, nil
}

// eachPeer calls f for every peer of the owner's WireGuard devices.
func (s *Devices) eachPeer(f func(dev string, p wgtypes.Peer)) error {
	for _, name := range s.owner.Devices {
		if !isWireGuard(name) {
			continue
		}
		w, err := s.wireGuardOf(name)
		if err != nil {
			return err
		}
		if w == nil {
			continue
		}
		for _, p := range w.Peers {
			f(name, p)
		}
	}
	return nil
}

// wireGuardOf returns a device as WireGuard reports it, or nil if there is none.
func (s *Devices) wireGuardOf(name string) (*wgtypes.Device, error) {
	d, err := s.getLink(name, 0)
	if netlink.Gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for device %s: %w", name, err)
	}
	return s.readWireGuard(d)
}

// observedPeer returns a peer as a plan describes it.
func observedPeer(dev string, p wgtypes.Peer) dataplane.WireGuardPeer {
	out := dataplane.WireGuardPeer{
		Dev: dev, Public: dataplane.PublicKey(p.PublicKey), Preshared: dataplane.Secret(p.PresharedKey),
		Keepalive: int(p.PersistentKeepaliveInterval / time.Second), Seen: seen(p),
	}
	if !out.Seen {
		out.Endpoint = endpoint(p)
	}
	for _, n := range p.AllowedIPs {
		ones, _ := n.Mask.Size()
		out.Allowed = append(out.Allowed, netip.PrefixFrom(netlink.Addr(n.IP), ones))
	}
	slices.SortFunc(out.Allowed, netip.Prefix.Compare)
	return out
}

// seen reports whether a peer can be reached at its present endpoint.
func seen(p wgtypes.Peer) bool {
	return p.Endpoint != nil && !p.LastHandshakeTime.IsZero() && time.Since(p.LastHandshakeTime) < rejectAfter
}

// endpoint returns the present endpoint of a peer, or the zero AddrPort if it has none.
func endpoint(p wgtypes.Peer) netip.AddrPort {
	if p.Endpoint == nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(netlink.Addr(p.Endpoint.IP), uint16(p.Endpoint.Port))
}

// put changes no more than it must: a peer that was seen keeps its endpoint, and networks
// that the peer keeps are not removed meanwhile, as they would be if all were replaced.
func (s peers) Put(old, want dataplane.Object) error {
	p := want.(dataplane.WireGuardPeer)
	keepalive := time.Duration(p.Keepalive) * time.Second
	c := wgtypes.PeerConfig{
		PublicKey: wgtypes.Key(
			p.Public),
		PresharedKey:                (*wgtypes.Key)(&p.Preshared),
		PersistentKeepaliveInterval: &keepalive,
		ReplaceAllowedIPs:           true,
	}
	have, known := old.(dataplane.WireGuardPeer)
	if known {
		c.ReplaceAllowedIPs = slices.ContainsFunc(have.Allowed,
			func(n netip.Prefix) bool { return !slices.Contains(p.Allowed, n) })
	}
	if p.Endpoint.IsValid() && !have.Seen {
		c.Endpoint = net.UDPAddrFromAddrPort(p.Endpoint)
	}
	for _, n := range p.Allowed {
		c.AllowedIPs = append(c.AllowedIPs,
			net.IPNet{IP: n.Addr().AsSlice(), Mask: net.CIDRMask(n.Bits(), n.Addr().BitLen())})
	}
	err := ErrShownOnly
	if p.Preshared != (dataplane.Secret{}) {
		err = s.configure(p.Dev, c)
	}
	if err != nil {
		return fmt.Errorf("adding peer %v to %s: %w", p.Public, p.Dev, err)
	}
	return nil
}

func (s peers) Delete(old dataplane.Object) error {
	p := old.(dataplane.WireGuardPeer)
	err := s.configure(p.Dev, wgtypes.PeerConfig{PublicKey: wgtypes.Key(p.Public), Remove: true, UpdateOnly: true})
	if err != nil && !errors.Is(err, os.ErrNotExist) && !netlink.Gone(err) {
		return fmt.Errorf("removing peer %v of %s: %w", p.Public, p.Dev, err)
	}
	return nil
}

func (s peers) configure(dev string, p wgtypes.PeerConfig) error {
	d, err := s.getLink(dev, 0)
	if err != nil {
		return err
	}
	if !s.serves(d) {
		return fmt.Errorf("no WireGuard behind the device: %w", os.ErrNotExist)
	}
	return s.configureWireGuard(dev, wgtypes.Config{Peers: []wgtypes.PeerConfig{p}})
}
