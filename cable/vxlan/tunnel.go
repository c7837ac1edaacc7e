package vxlan

import (
	"fmt"
	"net/netip"

	"subctl/cable"
	"subctl/dataplane"
)

// Tunnel is a VXLAN device between gateways.
type Tunnel struct {
	Device string
	// Over is the output device of outer packets, whatever the routes are, so that they never
	// leave unencrypted. Empty means any device.
	Over string
	VNI  int
	Port int // UDP port
	// SourcePort is the source port of outer packets, for an IPsec policy that selects them; 0
	// means a port that depends on the flow.
	SourcePort int
	Net        byte          // first octet of the addresses on the device
	Hops       uint32        // first octet of the IDs of its next hops
	Self       cable.Gateway // the gateway itself
	Local      netip.Addr    // source address of outer packets
	MTU        int           // MTU of the device, in bytes
	// Guard is dataplane.FDB.Guard of the peers.
	Guard dataplane.Key
}

// To adds the device and the entries for a peer to s, and returns the link. outer
// is the destination of outer packets, and hop the ID of the next hop.
func (t Tunnel) To(s dataplane.State, peer cable.Gateway, outer netip.Addr, hop uint32) (cable.Link, error) {
	own := t.Self.VTEP(t.Net)
	ip := peer.VTEP(t.Net)
	mac := cable.MAC(own)
	peerMAC := cable.MAC(ip)
	objs := []dataplane.Object{
		dataplane.VXLAN{
			Name:       t.Device,
			Dev:        t.Over,
			MAC:        mac,
			VNI:        t.VNI,
			Local:      t.Local,
			Port:       t.Port,
			SourcePort: t.SourcePort,
			MTU:        t.MTU,
			// Echoes come back with the gateway's own address. All neighbours are permanent.
			Conf: dataplane.Conf{RPFilter: 2, Forwarding: 1, AcceptLocal: 1, ARPIgnore: 8},
		},
		dataplane.Addr{Dev: t.Device, Prefix: netip.PrefixFrom(own, 8)},
		dataplane.FDB{Dev: t.Device, MAC: peerMAC, Dst: outer, Guard: t.Guard},
		dataplane.Neigh{Dev: t.Device, IP: ip, MAC: peerMAC},
		dataplane.Nexthop{ID: hop, Via: ip, Dev: t.Device},
	}
	return cable.Link{
		Hop:    hop,
		Device: t.Device,
		IP:     ip,
		From:   own,
		MAC:    peerMAC,
		Outer:  outer,
		Needs:  objs,
	}, s.Add(objs...)
}

// Carrier is the encrypted cable to a peer that carries a Tunnel.
type Carrier struct {
	To            netip.Addr // destination of outer packets
	State, Device string     // cable.Link.State and StateDevice
	Needs         []dataplane.Object
}

// Inside adds the tunnels to peers inside other cables to w. d is the combined driver, carrier
// returns the carrier to a peer, and inner describes the outer packets without their senders,
// which Inside sets.
func (t Tunnel) Inside(
	d cable.Driver,
	w *cable.Wiring,
	inner cable.Listen,
	peers []cable.Peer,
	carrier func(cable.Peer) (Carrier, error),
) error {
	for _, p := range peers {
		c, err := carrier(p)
		if err != nil {
			return fmt.Errorf("planning %s cable to %s: %w", d.Name(), p.Name, err)
		}
		link, err := t.To(w.State, p.Gateway, c.To, t.Hop(p.Gateway))
		if err != nil {
			return fmt.Errorf("planning %s cable to %s: %w", d.Name(), p.Name, err)
		}
		link.State, link.StateDevice, link.Needs = c.State, c.Device, append(link.Needs, c.Needs...)
		w.Links = append(w.Links, link)
		inner.From = append(inner.From, c.To)
	}
	w.Listens = append(w.Listens, inner)
	return nil
}

// Hop returns the ID of the next hop to a peer's gateway.
func (t Tunnel) Hop(g cable.Gateway) uint32 {
	return cable.NexthopID(t.Hops, g.VTEP(t.Net))
}
