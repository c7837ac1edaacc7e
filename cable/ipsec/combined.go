package ipsec

import (
	"cmp"
	"fmt"
	"net/netip"

	"subctl/cable"
	"subctl/cable/vxlan"
	"subctl/dataplane"
)

// Combined implements cable.Driver: VXLAN inside IPsec in transport mode. IPsec takes
// what goes between two gateways' own addresses and is VXLAN by its port, which is the
// same at both ends so that one pair of selectors is enough; routes and next hop groups
// say which gateway a packet goes by, so several can share a cluster's traffic.
//
// A block of lower priority than IPsec's own policies keeps the port's packets in when
// there are no keys. It stays while there is any cable.
type Combined struct{ Driver }

var _ cable.Driver = Combined{}

// suffix makes the identities of a transport tunnel different from those of a tunnel
// between the same gateways, of which there may be one while a pair changes its cable:
// a gateway has one negotiation with each identity.
const suffix = "/vxlan"

// Name implements cable.Driver.
func (Combined) Name() string { return cable.VXLANIPsec }

// Properties implements cable.Driver.
func (Combined) Properties() cable.Properties {
	return cable.Properties{Encrypts: true, Engine: cable.ProtocolIPsec, Parts: []string{cable.VXLAN, cable.IPsec}}
}

// Lacks implements cable.Driver: strongSwan's userspace ESP has no transport mode.
func (d Combined) Lacks(l cable.Local) error {
	if err := d.Driver.Lacks(l); err != nil {
		return err
	}
	if l.IPsec.Name != dataplane.EngineKernel {
		return fmt.Errorf("this node's kernel has no IPsec, and %s cannot do transport mode, which %s is made of: use %s, or %s", l.IPsec.Name, cable.VXLANIPsec, cable.IPsec, cable.VXLANWireGuard)
	}
	return nil
}

// Refuses implements cable.Driver. Transport mode protects the packet that was sent, of
// which a translator would change the addresses.
func (d Combined) Refuses(local cable.Local, peer cable.Peer) error {
	switch {
	case peer.NAT || peer.NATed || peer.InboundOnly:
		return fmt.Errorf("cluster %s is behind address translation, which IPsec in transport mode does not get through: use %s, or %s", peer.Cluster, cable.IPsec, cable.VXLANWireGuard)
	case local.NAT:
		return fmt.Errorf("this cluster is behind address translation (joined with --natt), which IPsec in transport mode does not get through: use %s or %s, or join with --natt=false if there is none", cable.IPsec, cable.VXLANWireGuard)
	}
	return d.Driver.Refuses(local, peer)
}

// Device implements cable.Driver.
func (Combined) Device(cable.Config) string { return dataplane.VXLANIPsecDevice }

// Overhead implements cable.Driver.
func (Combined) Overhead(l cable.Local, p cable.Peer) int {
	return transportOverhead(cmp.Or(p.MTU, l.MTU), p.Config.Text(optESP), encapsulated(l, p))
}

// Plan implements cable.Driver.
func (d Combined) Plan(local cable.Local, peers []cable.Peer) (cable.Wiring, error) {
	w, err := base(local, peers)
	if err != nil || len(peers) == 0 {
		return w, err
	}
	if err := w.State.Add(dataplane.IPsecBlock{From: local.PrivateIP, Port: dataplane.VXLANIPsecPort}); err != nil {
		return w, err
	}
	v := vxlan.Tunnel{
		Device: dataplane.VXLANIPsecDevice, VNI: dataplane.CableVNI, Port: dataplane.VXLANIPsecPort, SourcePort: dataplane.VXLANIPsecPort,
		Net: dataplane.VXLANIPsecNet, Hops: dataplane.VXLANIPsecNexthopID, Self: local.PrivateIP, Local: local.PrivateIP,
	}
	for _, p := range peers {
		v.MTU = max(v.MTU, cable.Cable{Peer: p, Driver: d}.MTU(local)) // routes know of narrower paths
	}
	inner := cable.Listen{Proto: "udp", Port: v.Port, IPsec: true}
	err = v.Inside(d, &w, inner, peers, func(p cable.Peer) (vxlan.Carrier, error) {
		t, err := tunnel(local, p)
		if err != nil {
			return vxlan.Carrier{}, err
		}
		t.Name, t.LocalID, t.RemoteID, t.Mode, t.Port = p.Name+suffix, local.Name+suffix, p.Name+suffix, dataplane.TransportMode, v.Port
		t.LocalTS, t.RemoteTS = []netip.Prefix{netip.PrefixFrom(local.PrivateIP, 32)}, []netip.Prefix{netip.PrefixFrom(p.Address, 32)}
		t.ReqID = v.Hop(p.Gateway)
		return vxlan.Carrier{To: p.Address, State: t.Name, Device: v.Device}, w.State.Add(t)
	})
	return w, err
}
