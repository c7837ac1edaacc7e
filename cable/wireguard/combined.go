package wireguard

import (
	"fmt"
	"net/netip"

	"subctl/cable"
	"subctl/cable/vxlan"
	"subctl/dataplane"
)

// Combined implements cable.Driver: VXLAN inside WireGuard. All of its outer packets are
// between the gateways' addresses inside WireGuard, so that is all that a peer is allowed.
// Settings, keys and ports are those of the device, which both drivers share.
type Combined struct{ Driver }

var (
	_ cable.Driver  = Combined{}
	_ cable.Claimer = Combined{}
)

// Name implements cable.Driver.
func (Combined) Name() string { return cable.VXLANWireGuard }

// Claims implements cable.Claimer.
func (Combined) Claims(p cable.Peer) []cable.Claim { return keyClaims(p) }

// Device implements cable.Driver.
func (Combined) Device(cable.Config) string { return dataplane.VXLANWireGuardDevice }

// Overhead implements cable.Driver.
func (d Combined) Overhead(l cable.Local, p cable.Peer) int {
	return d.Driver.Overhead(l, p) + dataplane.VXLANOverhead
}

// Plan implements cable.Driver.
func (d Combined) Plan(local cable.Local, peers []cable.Peer) (cable.Wiring, error) {
	w, err := base(local, peers, func(cable.Peer) []netip.Prefix { return nil })
	if err != nil || len(peers) == 0 {
		return w, err
	}
	t := vxlan.Tunnel{
		Device: dataplane.VXLANWireGuardDevice, Over: dataplane.WireGuardDevice, VNI: dataplane.CableVNI,
		Port: dataplane.VXLANWireGuardPort, Net: dataplane.VXLANWireGuardNet, Hops: dataplane.VXLANWireGuardNexthopID,
		Self: local.PrivateIP, Local: address(local.Gateway), MTU: local.MTU - dataplane.WireGuardOverhead - dataplane.VXLANOverhead,
	}
	inner := cable.Listen{Proto: "udp", Port: t.Port, Device: dataplane.WireGuardDevice}
	for _, p := range peers {
		outer := address(p.Gateway)
		link, err := t.To(w.State, p.PrivateIP, outer, cable.NexthopID(t.Hops, outer))
		if err != nil {
			return w, fmt.Errorf("planning %s cable to %s: %w", d.Name(), p.Name, err)
		}
		key, _ := peerKey(p) // base has read it
		link.State, link.StateDevice = key.String(), dataplane.WireGuardDevice
		w.Links = append(w.Links, link)
		inner.From = append(inner.From, outer)
	}
	w.Listens = append(w.Listens, inner)
	return w, nil
}
