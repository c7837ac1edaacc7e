package wireguard

import (
	"net/netip"

	"subctl/cable"
	"subctl/cable/vxlan"
	"subctl/dataplane"
)

// Combined implements cable.Driver with VXLAN inside WireGuard. All outer packets are between
// the gateways' addresses inside WireGuard, so AllowedIPs contain only these. Settings, keys
// and ports belong to the device, which both drivers share.
type Combined struct{ Driver }

var (
	_ cable.Driver     = Combined{}
	_ cable.Claimer    = Combined{}
	_ cable.Handshaker = Combined{}
)

// Name implements cable.Driver.
func (Combined) Name() string { return cable.VXLANWireGuard }

// Properties implements cable.Driver.
func (Combined) Properties() cable.Properties {
	return cable.Properties{
		Encrypts: true, PassesNAT: true, Engine: cable.ProtocolWireGuard, Parts: []string{cable.VXLAN, cable.WireGuard},
	}
}

// Device implements cable.Driver.
func (Combined) Device(cable.Config) string { return dataplane.VXLANWireGuardDevice }

// Overhead implements cable.Driver.
func (d Combined) Overhead(l cable.Local, p cable.Peer) int {
	return d.Driver.Overhead(l, p) + dataplane.VXLANOverhead
}

// VXLANPort implements cable.OverVXLAN.
func (Combined) VXLANPort(cable.Local) int { return dataplane.VXLANWireGuardPort }

// Plan implements cable.Driver.
func (d Combined) Plan(local cable.Local, peers []cable.Peer) (cable.Wiring, error) {
	w, err := base(local, peers, func(cable.Peer) []netip.Prefix { return nil })
	if err != nil || len(peers) == 0 {
		return w, err
	}
	t := vxlan.Tunnel{
		Device: dataplane.VXLANWireGuardDevice, Over: dataplane.WireGuardDevice, VNI: dataplane.CableVNI,
		Port: dataplane.VXLANWireGuardPort, Net: dataplane.VXLANWireGuardNet, Hops: dataplane.VXLANWireGuardNexthopID,
		Self: local.Gateway, Local: address(local.Gateway),
		MTU: local.MTU - dataplane.WireGuardOverhead - dataplane.VXLANOverhead,
	}
	inner := cable.Listen{Proto: "udp", Port: t.Port, Device: t.Over, VXLAN: true}
	err = t.Inside(d, &w, inner, peers, func(p cable.Peer) (vxlan.Carrier, error) {
		key, err := peerKey(p.Gateway)
		needs := []dataplane.Object{ownAddr(local), dataplane.WireGuardPeer{Dev: t.Over, Public: key}}
		return vxlan.Carrier{To: address(p.Gateway), State: key.String(), Device: t.Over, Needs: needs}, err
	})
	return w, err
}
