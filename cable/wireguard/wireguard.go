// Package wireguard joins gateways with WireGuard: Driver with WireGuard alone, and
// Combined with VXLAN inside it.
//
// WireGuard sends a packet to the peer that its destination belongs to (AllowedIPs), and
// accepts it from the peer that its source belongs to. So a network leads to one gateway,
// and Driver connects one gateway of a cluster. With Combined, WireGuard carries VXLAN
// packets between the gateways' own addresses, and routes and next hop groups choose the
// gateway.
//
// Both share one device, with one key and one port: a pair that changes from the one to
// the other keeps its keys and its peer, which allows what both of them need. A gateway's
// key and the preshared key of a pair of clusters come from package keys.
package wireguard

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"subctl/cable"
	"subctl/cable/keys"
	"subctl/dataplane"
)

// Driver implements cable.Driver.
type Driver struct{}

var (
	_ cable.Driver  = Driver{}
	_ cable.Claimer = Driver{}
)

// Name implements cable.Driver.
func (Driver) Name() string { return cable.WireGuard }

// Properties implements cable.Driver: the networks of a cluster lead to one of its gateways.
func (Driver) Properties() cable.Properties {
	return cable.Properties{Encrypts: true, PassesNAT: true, MaxGateways: 1, Engine: cable.ProtocolWireGuard}
}

// Options implements cable.Driver.
func (Driver) Options() []cable.Option {
	return []cable.Option{optPort, optKeepalive, cable.OptionMTU}
}

// Lacks implements cable.Driver.
func (Driver) Lacks(l cable.Local) error {
	if err := l.LacksEngine(cable.ProtocolWireGuard); err != nil {
		return err
	}
	_, err := l.Keys.WireGuard(l.Name)
	return err
}

// Advertise implements cable.Driver.
func (Driver) Advertise(l cable.Local) (map[string]string, error) {
	own, err := ownKey(l)
	if err != nil {
		return nil, err
	}
	if own == (dataplane.PublicKey{}) {
		return nil, errors.New("announcing a WireGuard key: this gateway's keys are not at hand")
	}
	return map[string]string{
		publicKeyKey: own.String(),
		deviceKey:    dataplane.WireGuardDevice,
		portKey:      strconv.Itoa(port(l)),
	}, nil
}

// Refuses implements cable.Driver.
func (Driver) Refuses(local cable.Local, peer cable.Peer) error {
	theirs, err := peerKey(peer.Gateway)
	if err != nil {
		return err
	}
	own, err := ownKey(local)
	if err != nil {
		return err
	}
	if own != (dataplane.PublicKey{}) && theirs == own {
		return fmt.Errorf("cluster %s announces this gateway's own WireGuard key", peer.Cluster)
	}
	if _, err := peer.Port(portKey, dataplane.WireGuardPort); err != nil {
		return err
	}
	return local.RefusesKeys(peer, keys.WireGuardPSK, "preshared key")
}

// Claims implements cable.Claimer: a WireGuard device tells its peers by their keys. A
// gateway that announces another's key could not use it, but would take its place.
func (Driver) Claims(g cable.Gateway) []cable.Claim {
	if g.Config[publicKeyKey] == "" {
		return nil
	}
	key, err := peerKey(g)
	if err != nil {
		return nil
	}
	return []cable.Claim{{
		What: "WireGuard key " + key.String(),
		Why:  "a gateway has a key of its own, and this one announces that of another",
	}}
}

// Device implements cable.Driver.
func (Driver) Device(cable.Config) string { return dataplane.WireGuardDevice }

// Overhead implements cable.Driver.
//
// WireGuard pads what it encrypts to a multiple of 16 bytes, but not beyond the MTU of the
// device (section 5.4.6 of its paper, calculate_skb_padding in the kernel's
// drivers/net/wireguard/send.c). That MTU is what the widest path leaves, so packets on a
// narrower one have to fit with their padding.
func (Driver) Overhead(l cable.Local, p cable.Peer) int {
	if p.MTU == 0 || p.MTU >= l.MTU {
		return dataplane.WireGuardOverhead
	}
	return dataplane.WireGuardOverhead + (p.MTU-dataplane.WireGuardOverhead)%padding
}

// padding is the size in bytes that WireGuard pads packets to a multiple of.
const padding = 16

// Plan implements cable.Driver.
func (d Driver) Plan(local cable.Local, peers []cable.Peer) (cable.Wiring, error) {
	w, err := base(local, peers, func(p cable.Peer) []netip.Prefix { return p.Subnets })
	if err != nil {
		return w, err
	}
	leads := map[netip.Prefix]string{}
	for _, p := range peers {
		for _, n := range p.Subnets {
			if by, ok := leads[n]; ok {
				return w, fmt.Errorf("planning wireguard cable to %s: %v leads to %s already", p.Name, n, by)
			}
			leads[n] = p.Name
		}
		ip := address(p.Gateway)
		hop := dataplane.Nexthop{ID: cable.NexthopID(dataplane.WireGuardNexthopID, ip), Dev: dataplane.WireGuardDevice}
		if err := w.State.Add(hop); err != nil {
			return w, fmt.Errorf("planning wireguard cable to %s: %w", p.Name, err)
		}
		key, _ := peerKey(p.Gateway) // base has read it
		w.Links = append(w.Links, cable.Link{
			Hop: hop.ID, Device: hop.Dev, IP: ip, From: address(local.Gateway), State: key.String(), StateDevice: hop.Dev,
		})
	}
	return w, nil
}

// base plans the WireGuard device and its peers, each of which may send from its own
// address, and from more networks.
func base(local cable.Local, peers []cable.Peer, more func(cable.Peer) []netip.Prefix) (cable.Wiring, error) {
	w := cable.Wiring{State: dataplane.State{}}
	if len(peers) == 0 {
		return w, nil
	}
	private, err := privateKey(local)
	if err != nil {
		return w, fmt.Errorf("planning WireGuard: %w", err)
	}
	w.Listens = []cable.Listen{{Proto: "udp", Port: port(local)}}
	objs := []dataplane.Object{
		dataplane.WireGuard{
			Name: dataplane.WireGuardDevice, Private: private, Port: port(local), MTU: local.MTU - dataplane.WireGuardOverhead,
			Conf: dataplane.Conf{RPFilter: 2, Forwarding: 1},
		},
		dataplane.Addr{Dev: dataplane.WireGuardDevice, Prefix: netip.PrefixFrom(address(local.Gateway), 8)},
	}
	for _, p := range peers {
		planned, err := plannedPeer(local, p, more(p))
		if err != nil {
			return w, fmt.Errorf("planning WireGuard peer %s: %w", p.Name, err)
		}
		objs = append(objs, planned)
	}
	return w, w.State.Add(objs...)
}

// plannedPeer is a gateway as a peer of the device.
func plannedPeer(local cable.Local, p cable.Peer, networks []netip.Prefix) (dataplane.WireGuardPeer, error) {
	key, keyErr := peerKey(p.Gateway)
	psk, pskErr := local.Keys.Pair(p.Cluster, p.PublicKey, keys.WireGuardPSK)
	to, portErr := p.Port(portKey, dataplane.WireGuardPort)
	out := dataplane.WireGuardPeer{
		Dev: dataplane.WireGuardDevice, Public: key, Preshared: psk, Keepalive: int(keepalive(local, p) / time.Second),
		Allowed: append(slices.Clone(networks), netip.PrefixFrom(address(p.Gateway), 32)),
	}
	if !p.InboundOnly { // else it comes to us
		out.Endpoint = netip.AddrPortFrom(p.Address, uint16(to))
	}
	slices.SortFunc(out.Allowed, netip.Prefix.Compare)
	return out, errors.Join(keyErr, pskErr, portErr)
}

// address is a gateway's own address inside WireGuard.
func address(g cable.Gateway) netip.Addr { return cable.VTEPOf(dataplane.WireGuardNet, g.PrivateIP) }
