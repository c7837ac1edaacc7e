// Package wireguard connects gateways with WireGuard. Driver uses WireGuard alone, Combined
// uses VXLAN inside WireGuard.
//
// WireGuard sends a packet to the peer whose AllowedIPs contain its destination, and accepts
// it only from the peer whose AllowedIPs contain its source. A network can therefore belong
// to only one peer, and Driver connects to one gateway of a cluster. With Combined, WireGuard
// carries VXLAN packets between the gateways' own addresses, and routes and next hop groups
// select the gateway. Combined stands in for Driver where a cluster has several gateways: see
// cable.StandIn.
//
// Both drivers share one device, with one key and one port. A pair that changes from one
// driver to the other keeps its keys and its peer, whose AllowedIPs are then the union for both.
// Package keys derives a gateway's key and the preshared key of a pair of clusters.
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
	"subctl/internal/prefix"
)

// Driver implements cable.Driver.
type Driver struct{}

var (
	_ cable.Driver     = Driver{}
	_ cable.Claimer    = Driver{}
	_ cable.Handshaker = Driver{}
)

// Name implements cable.Driver.
func (Driver) Name() string { return cable.WireGuard }

// Properties implements cable.Driver. A network can belong to only one peer, so MaxGateways is 1.
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
		return nil, errors.New("announcing a WireGuard key: the keys of this gateway are not available")
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

// Claims implements cable.Claimer. A WireGuard device identifies its peers by their keys. A
// gateway that announces another gateway's key could not use it, but would replace that peer.
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
		Why:  "WireGuard keys must be unique",
	}}
}

// Device implements cable.Driver.
func (Driver) Device(cable.Config) string { return dataplane.WireGuardDevice }

// StateOf implements cable.Handshaker.
func (Driver) StateOf(g cable.Gateway) (device, peer string) {
	key, err := peerKey(g)
	if err != nil {
		return dataplane.WireGuardDevice, "" // Refuses reports it
	}
	return dataplane.WireGuardDevice, key.String()
}

// Overhead implements cable.Driver.
//
// WireGuard pads packets to a multiple of 16 bytes, but not beyond the MTU of the device
// (section 5.4.6 of its paper, calculate_skb_padding in the kernel's
// drivers/net/wireguard/send.c). The MTU of the device is for the path with the largest MTU, so
// on other paths packets must fit including their padding.
func (Driver) Overhead(l cable.Local, p cable.Peer) int {
	if p.MTU == 0 || p.MTU >= l.MTU {
		return dataplane.WireGuardOverhead
	}
	return dataplane.WireGuardOverhead + (p.MTU-dataplane.WireGuardOverhead)%padding
}

// padding is the alignment to which WireGuard pads packets, in bytes.
const padding = 16

// Plan implements cable.Driver.
func (d Driver) Plan(local cable.Local, peers []cable.Peer) (cable.Wiring, error) {
	w, err := base(local, peers, func(p cable.Peer) []netip.Prefix { return p.Subnets })
	if err != nil {
		return w, err
	}
	holders := map[netip.Prefix]string{}
	for _, p := range peers {
		for _, n := range p.Subnets {
			if by, ok := holders[n]; ok {
				return w, fmt.Errorf("planning wireguard cable to %s: %v already belongs to %s", p.Name, n, by)
			}
			holders[n] = p.Name
		}
		ip := address(p.Gateway)
		hop := dataplane.Nexthop{ID: cable.NexthopID(dataplane.WireGuardNexthopID, ip), Dev: dataplane.WireGuardDevice}
		if err := w.State.Add(hop); err != nil {
			return w, fmt.Errorf("planning wireguard cable to %s: %w", p.Name, err)
		}
		key, _ := peerKey(p.Gateway) // base has returned its error
		w.Links = append(w.Links, cable.Link{
			Hop:         hop.ID,
			Device:      hop.Dev,
			IP:          ip,
			From:        address(local.Gateway),
			State:       key.String(),
			StateDevice: hop.Dev,
			Needs:       []dataplane.Object{ownAddr(local), hop, dataplane.WireGuardPeer{Dev: hop.Dev, Public: key}},
		})
	}
	return w, nil
}

// base returns the plan of the WireGuard device and its peers. The AllowedIPs of a peer are its
// own address and the networks that more returns.
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
			Name:    dataplane.WireGuardDevice,
			Private: private,
			Port:    port(local),
			MTU:     local.MTU - dataplane.WireGuardOverhead,
			Conf:    dataplane.Conf{RPFilter: 2, Forwarding: 1},
		},
		ownAddr(local),
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

// plannedPeer returns the peer of the device for a gateway.
func plannedPeer(local cable.Local, p cable.Peer, networks []netip.Prefix) (dataplane.WireGuardPeer, error) {
	key, keyErr := peerKey(p.Gateway)
	psk, pskErr := local.Keys.Pair(p.Cluster, p.PublicKey, keys.WireGuardPSK)
	to, portErr := p.Port(portKey, dataplane.WireGuardPort)
	out := dataplane.WireGuardPeer{
		Dev: dataplane.WireGuardDevice, Public: key, Preshared: psk, Keepalive: int(keepalive(local, p) / time.Second),
		Allowed: append(slices.Clone(networks), prefix.Host(address(p.Gateway))),
	}
	if !p.InboundOnly { // otherwise the peer starts the handshake
		out.Endpoint = netip.AddrPortFrom(p.Address, uint16(to))
	}
	slices.SortFunc(out.Allowed, netip.Prefix.Compare)
	return out, errors.Join(keyErr, pskErr, portErr)
}

// ownAddr returns this gateway's address on the device.
func ownAddr(l cable.Local) dataplane.Addr {
	return dataplane.Addr{Dev: dataplane.WireGuardDevice, Prefix: netip.PrefixFrom(address(l.Gateway), 8)}
}

// address returns a gateway's own address inside WireGuard.
func address(g cable.Gateway) netip.Addr { return g.VTEP(dataplane.WireGuardNet) }
