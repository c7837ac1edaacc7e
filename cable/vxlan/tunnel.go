package vxlan

import (
	"fmt"
	"net/netip"

	"subctl/cable"
	"subctl/dataplane"
)

// Tunnel is one VXLAN device between gateways.
type Tunnel struct {
	Device string
	// Over is the device that outer packets leave by, whatever routes say: what is
	// encrypted there never leaves otherwise. Empty for any.
	Over string
	VNI  int
	Port int // UDP
	// SourcePort fixes the source port of outer packets, for an IPsec policy that
	// selects them; 0 lets the kernel vary it by flow.
	SourcePort int
	Net        byte       // first octet of the addresses on it
	Hops       uint32     // first octet of its next hops' IDs
	Self       netip.Addr // the gateway's own address: three octets of it make the VTEP
	Local      netip.Addr // source of the outer packets
	MTU        int        // of the device, in bytes
}

// To adds the device, and the way over it to a peer whose own address is peer and
// whose VXLAN packets go to outer.
func (t Tunnel) To(s dataplane.State, peer, outer netip.Addr, hop uint32) (cable.Link, error) {
	own, mac := cable.VTEP(t.Net, t.Self)
	ip, peerMAC := cable.VTEP(t.Net, peer)
	link := cable.Link{Hop: hop, Device: t.Device, IP: ip, From: own}
	return link, s.Add(
		dataplane.VXLAN{
			Name: t.Device, Dev: t.Over, MAC: mac, VNI: t.VNI, Local: t.Local, Port: t.Port, SourcePort: t.SourcePort, MTU: t.MTU,
			Conf: dataplane.Conf{RPFilter: 2, Forwarding: 1},
		},
		dataplane.Addr{Dev: t.Device, Prefix: netip.PrefixFrom(own, 8)},
		dataplane.FDB{Dev: t.Device, MAC: peerMAC, Dst: outer},
		dataplane.Neigh{Dev: t.Device, IP: ip, MAC: peerMAC},
		dataplane.Nexthop{ID: hop, Via: ip, Dev: t.Device},
	)
}

// Carrier is the cable of another protocol that a Tunnel to one peer is inside of.
type Carrier struct {
	To            netip.Addr // where outer packets go
	State, Device string     // cable.Link.State and StateDevice
}

// Inside adds the tunnels to peers that are inside other cables: d is the driver that
// combines the two, carrier returns the cable to a peer, and inner specifies how outer
// packets arrive, except from whom.
func (t Tunnel) Inside(d cable.Driver, w *cable.Wiring, inner cable.Listen, peers []cable.Peer, carrier func(cable.Peer) (Carrier, error)) error {
	for _, p := range peers {
		c, err := carrier(p)
		if err != nil {
			return fmt.Errorf("planning %s cable to %s: %w", d.Name(), p.Name, err)
		}
		link, err := t.To(w.State, p.PrivateIP, c.To, t.Hop(p.Gateway))
		if err != nil {
			return fmt.Errorf("planning %s cable to %s: %w", d.Name(), p.Name, err)
		}
		link.State, link.StateDevice = c.State, c.Device
		w.Links = append(w.Links, link)
		inner.From = append(inner.From, c.To)
	}
	w.Listens = append(w.Listens, inner)
	return nil
}

// Hop returns the ID of the next hop to a peer's gateway.
func (t Tunnel) Hop(g cable.Gateway) uint32 {
	return cable.NexthopID(t.Hops, cable.VTEPOf(t.Net, g.PrivateIP))
}
