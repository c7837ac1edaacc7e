package ipsec

import (
	"cmp"
	"fmt"
	"net/netip"

	"subctl/cable"
	"subctl/cable/vxlan"
	"subctl/dataplane"
	"subctl/internal/prefix"
)

// Combined implements cable.Driver with VXLAN inside IPsec in transport mode. The traffic
// selectors are the VXLAN packets between two gateways' own addresses; source and destination
// port are the same, so that one pair of selectors suffices. Routes and next hop groups
// select the gateway, so several gateways can share a cluster's traffic.
//
// A blocking policy with lower priority than IPsec's own policies drops VXLAN packets while
// there are no keys. It stays while there is any cable.
type Combined struct{ Driver }

var _ cable.Driver = Combined{}

// suffix distinguishes the IKE identities of this driver from those of Driver. While a pair
// changes its cable, both may be up between the same gateways, and strongSwan keeps one IKE
// SA for each pair of identities.
const suffix = "/vxlan"

// Name implements cable.Driver.
func (Combined) Name() string { return cable.VXLANIPsec }

// Properties implements cable.Driver.
func (Combined) Properties() cable.Properties {
	return cable.Properties{Encrypts: true, Engine: cable.ProtocolIPsec, Parts: []string{cable.VXLAN, cable.IPsec}}
}

// Lacks implements cable.Driver. strongSwan's userspace ESP has no transport mode.
func (d Combined) Lacks(l cable.Local) error {
	if err := d.Driver.Lacks(l); err != nil {
		return err
	}
	if l.IPsec.Name != dataplane.EngineKernel {
		return fmt.Errorf(
			"this node's kernel has no IPsec, and %s has no transport mode, which %s requires: use %s, or %s",
			l.IPsec.Name, cable.VXLANIPsec, cable.IPsec, cable.VXLANWireGuard)
	}
	return nil
}

// Refuses implements cable.Driver. Transport mode does not work through NAT, which changes
// the addresses of the protected packet.
func (d Combined) Refuses(local cable.Local, peer cable.Peer) error {
	switch {
	case peer.NAT || peer.NATed || peer.InboundOnly:
		return fmt.Errorf(
			"cluster %s is behind NAT, through which IPsec in transport mode does not work: use %s, or %s",
			peer.Cluster, cable.IPsec, cable.VXLANWireGuard)
	case local.NAT:
		return fmt.Errorf(
			"this cluster is behind NAT (joined with --natt), through which IPsec in transport mode does not work: use %s or %s, or join with --natt=false if there is no NAT",
			cable.IPsec, cable.VXLANWireGuard)
	}
	return d.Driver.Refuses(local, peer)
}

// Device implements cable.Driver.
func (Combined) Device(cable.Config) string { return dataplane.VXLANIPsecDevice }

// Overhead implements cable.Driver.
func (Combined) Overhead(l cable.Local, p cable.Peer) int {
	return transportOverhead(cmp.Or(p.MTU, l.MTU), p.Config.Text(optESP), encapsulated(l, p))
}

// VXLANPort implements cable.OverVXLAN.
func (Combined) VXLANPort(cable.Local) int { return dataplane.VXLANIPsecPort }

// Plan implements cable.Driver.
func (d Combined) Plan(local cable.Local, peers []cable.Peer) (cable.Wiring, error) {
	w, err := base(local, peers)
	if err != nil || len(peers) == 0 {
		return w, err
	}
	block := dataplane.IPsecBlock{From: local.PrivateIP, Port: dataplane.VXLANIPsecPort}
	if err := w.State.Add(block); err != nil {
		return w, err
	}
	v := vxlan.Tunnel{
		Device:     dataplane.VXLANIPsecDevice,
		VNI:        dataplane.CableVNI,
		Port:       dataplane.VXLANIPsecPort,
		SourcePort: dataplane.VXLANIPsecPort,
		Net:        dataplane.VXLANIPsecNet,
		Hops:       dataplane.VXLANIPsecNexthopID,
		Self:       local.Gateway,
		Local:      local.PrivateIP,
		Guard:      block.Key(),
	}
	for _, p := range peers {
		v.MTU = max(v.MTU, cable.Cable{Peer: p, Driver: d}.MTU(local)) // routes have the MTU of narrower paths
	}
	inner := cable.Listen{Proto: "udp", Port: v.Port, IPsec: true, VXLAN: true}
	err = v.Inside(d, &w, inner, peers, func(p cable.Peer) (vxlan.Carrier, error) {
		t, err := tunnel(local, p)
		if err != nil {
			return vxlan.Carrier{}, err
		}
		t.Name = p.Name + suffix
		t.LocalID = local.Name + suffix
		t.RemoteID = p.Name + suffix
		t.Mode = dataplane.TransportMode
		t.Port = v.Port
		t.LocalTS = []netip.Prefix{
			prefix.Host(local.PrivateIP),
		}
		t.RemoteTS = []netip.Prefix{
			prefix.Host(p.Address),
		}
		t.ReqID = v.Hop(p.Gateway)
		return vxlan.Carrier{
			To:     p.Address,
			State:  t.Name,
			Device: v.Device,
			Needs:  []dataplane.Object{block, t},
		}, w.State.Add(t)
	})
	return w, err
}
