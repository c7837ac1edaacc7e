package vxlan

import (
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
