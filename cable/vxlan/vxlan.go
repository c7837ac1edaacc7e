// Package vxlan joins gateways with a plain VXLAN tunnel: no encryption, for
// networks that are private already.
//
// A VXLAN device usually learns: it floods ARP requests to every peer and
// remembers who answered. With n clusters that is n copies of every broadcast and
// a table that is wrong whenever a gateway moves. Here nothing is learned: each
// gateway's MAC is a function of its address (cable.VTEP), so a peer is three
// entries that never have to be asked for: a neighbour (VTEP to MAC), a
// forwarding entry (MAC to host) and a next hop. A lost peer is the absence of
// those three.
//
// VXLAN does not get through address translation: the outer packet's ports are
// not a connection that a translator could follow both ways, so Refuses says no.
package vxlan

import (
	"fmt"
	"net/netip"

	"subctl/cable"
	"subctl/dataplane"
)

// Name is the driver's name.
const Name = "vxlan"

// Driver implements cable.Driver.
type Driver struct{}

// Name implements cable.Driver.
func (Driver) Name() string { return Name }

// Device implements cable.Driver.
func (Driver) Device() string { return dataplane.CableDevice }

// Advertise implements cable.Driver: there is nothing a peer could not derive.
func (Driver) Advertise(cable.Local) map[string]string { return nil }

// Refuses implements cable.Driver.
func (Driver) Refuses(local cable.Local, peer cable.Gateway) error {
	switch {
	case peer.NAT:
		return fmt.Errorf("cluster %s is behind address translation (joined with --natt), which a vxlan cable does not get through: use an encrypted driver, or join it with --natt=false if there is none", peer.Cluster)
	case local.NAT:
		return fmt.Errorf("this cluster is behind address translation (joined with --natt), which a vxlan cable does not get through: use an encrypted driver, or join with --natt=false if there is none")
	case peer.Port != local.Port:
		return fmt.Errorf("cluster %s has its cable on UDP port %d and this cluster on %d, but a vxlan device sends to the port that it listens on: join both with the same --nattport", peer.Cluster, peer.Port, local.Port)
	}
	return nil
}

// Plan implements cable.Driver. It refuses two gateways of one VTEP.
func (Driver) Plan(local cable.Local, peers []cable.Gateway) (dataplane.State, []uint32, error) {
	own, mac := cable.VTEP(dataplane.CableVTEPNet, local.PrivateIP)
	s, err := dataplane.Of(
		dataplane.VXLAN{
			Name: dataplane.CableDevice, MAC: mac, VNI: dataplane.CableVNI, Local: local.PrivateIP,
			Port: local.Port, MTU: local.MTU - dataplane.VXLANOverhead,
			Conf: dataplane.Conf{RPFilter: 2, Forwarding: 1},
		},
		dataplane.Addr{Dev: dataplane.CableDevice, Prefix: netip.PrefixFrom(own, 8)},
	)
	if err != nil {
		return nil, nil, err
	}
	hops := make([]uint32, len(peers))
	for i, p := range peers {
		ip, mac := cable.VTEP(dataplane.CableVTEPNet, p.PrivateIP)
		hops[i] = cable.NexthopID(dataplane.CableNexthopID, ip)
		if err := s.Add(
			dataplane.FDB{Dev: dataplane.CableDevice, MAC: mac, Dst: p.PrivateIP},
			dataplane.Neigh{Dev: dataplane.CableDevice, IP: ip, MAC: mac},
			dataplane.Nexthop{ID: hops[i], Via: ip, Dev: dataplane.CableDevice},
		); err != nil {
			return nil, nil, fmt.Errorf("planning vxlan cable to %s: %w", p.Name, err)
		}
	}
	return s, hops, nil
}
