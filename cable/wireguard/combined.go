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
type Combined struct{}

var (
	_ cable.Driver  = Combined{}
	_ cable.Claimer = Combined{}
)

// Name implements cable.Driver.
func (Combined) Name() string { return cable.VXLANWireGuard }

// Options implements cable.Driver: those of the device that both drivers share, and of
// the pair.
func (Combined) Options() []cable.Option { return Driver{}.Options() }

// Lacks implements cable.Driver.
func (Combined) Lacks(l cable.Local) error { return Driver{}.Lacks(l) }

// Advertise implements cable.Driver.
func (Combined) Advertise(l cable.Local) (map[string]string, error) { return Driver{}.Advertise(l) }

// Refuses implements cable.Driver.
func (Combined) Refuses(local cable.Local, peer cable.Peer) error {
	return Driver{}.Refuses(local, peer)
}

// Claims implements cable.Claimer: a peer is told by its key, so nobody else may have it.
// Who announces somebody else's could not use it, but would take its place.
func (Combined) Claims(p cable.Peer) []cable.Claim {
	key, err := peerKey(p)
	if err != nil {
		return nil
	}
	return []cable.Claim{{
		What: "WireGuard key " + key.String(), Announced: true,
		Why: "a gateway has a key of its own, and this one announces that of another",
	}}
}

// Device implements cable.Driver.
func (Combined) Device(cable.Config) string { return dataplane.VXLANWireGuardDevice }

// Overhead implements cable.Driver.
func (Combined) Overhead(l cable.Local, p cable.Peer) int {
	return Driver{}.Overhead(l, p) + dataplane.VXLANOverhead
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
