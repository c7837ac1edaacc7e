// Package vxlan connects gateways with VXLAN tunnels: plain tunnels without encryption, for
// private networks, and tunnels inside another, encrypted cable (Tunnel, which the drivers
// Combined of packages wireguard and ipsec use).
//
// A VXLAN device usually learns: it floods ARP requests to every peer and records the
// replies. With n clusters this sends n copies of every broadcast, and the
// table is wrong whenever a gateway moves. Here nothing is learned. Each gateway's MAC
// address is a function of its IP address on the device (cable.MAC), so a peer has three permanent
// entries: a neighbor (VTEP to MAC), a forwarding entry (MAC to host) and a next hop.
//
// VXLAN does not work through NAT: the two directions use different source ports, and a NAT
// router cannot associate them. Refuses returns an error in this case.
package vxlan

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"

	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/prefix"
)

// Name is the driver's name.
const Name = cable.VXLAN

// Driver implements cable.Driver.
type Driver struct{}

var (
	_ cable.Driver    = Driver{}
	_ cable.Announcer = Driver{}
)

// Name implements cable.Driver.
func (Driver) Name() string { return Name }

// Properties implements cable.Driver.
func (Driver) Properties() cable.Properties { return cable.Properties{} }

// Options implements cable.Driver.
func (Driver) Options() []cable.Option { return []cable.Option{optVNI, optPort, cable.OptionMTU} }

// Lacks implements cable.Driver. Every kernel has VXLAN.
func (Driver) Lacks(cable.Local) error { return nil }

// Advertise implements cable.Driver.
func (Driver) Advertise(l cable.Local) (map[string]string, error) {
	own := l.Settings[Name]
	return map[string]string{
		portKey: strconv.Itoa(own.Number(optPort)),
		vniKey:  strconv.Itoa(own.Number(optVNI)),
	}, nil
}

// Refuses implements cable.Driver.
func (Driver) Refuses(local cable.Local, peer cable.Peer) error {
	own := local.Settings[Name]
	port, err := peer.Port(portKey, dataplane.VXLANPort)
	if err != nil {
		return err
	}
	switch ours := own.Number(optPort); {
	case peer.NAT || peer.NATed:
		return fmt.Errorf(
			"cluster %s is behind NAT, through which vxlan does not work: use an encrypted driver, or join the cluster with --natt=false if there is no NAT",
			peer.Cluster)
	case local.NAT:
		return fmt.Errorf(
			"this cluster is behind NAT (joined with --natt), through which vxlan does not work: use an encrypted driver, or join with --natt=false if there is no NAT")
	case port != ours:
		return fmt.Errorf(
			"cluster %s uses UDP port %d for vxlan and this cluster uses %d, but a VXLAN device sends to the port on which it listens: set the same vxlanPort in both",
			peer.Cluster, port, ours)
	}
	theirs := peer.Gateway.Config[vniKey]
	_, shared := peer.Shared[optVNI.Key]
	if ours := strconv.Itoa(own.Number(optVNI)); !shared && theirs != "" && theirs != ours {
		return fmt.Errorf("cluster %s uses VNI %.20q for vxlan and this cluster uses %s: set the same vxlanID in both",
			peer.Cluster, theirs, ours)
	}
	return nil
}

// Device implements cable.Driver.
func (Driver) Device(c cable.Config) string {
	if vni := c.Number(optVNI); vni != dataplane.CableVNI {
		return dataplane.VXLANDevicePrefix + strconv.Itoa(vni)
	}
	return dataplane.VXLANDevice
}

// Overhead implements cable.Driver.
func (Driver) Overhead(cable.Local, cable.Peer) int { return dataplane.VXLANOverhead }

// Plan implements cable.Driver. It returns an error if two gateways have the same VTEP.
func (d Driver) Plan(local cable.Local, peers []cable.Peer) (cable.Wiring, error) {
	w := cable.Wiring{State: make(dataplane.State, 4*len(peers)), Links: make([]cable.Link, 0, len(peers))}
	port := local.Settings[Name].Number(optPort)
	senders := cable.Listen{Proto: "udp", Port: port, VXLAN: true}
	others := map[uint32]bool{}
	for _, p := range peers {
		vni := p.Config.Number(optVNI)
		t := Tunnel{
			Device: d.Device(p.Config), VNI: vni, Port: port, Net: dataplane.VXLANNet, Hops: dataplane.VXLANNexthopID,
			Self: local.Gateway, Local: local.PrivateIP, MTU: local.MTU - dataplane.VXLANOverhead,
		}
		hop := t.Hop(p.Gateway)
		if vni != dataplane.CableVNI {
			t.Net = dataplane.OtherVNINet
			hop = otherVNI(others, vni, p.PrivateIP)
		}
		link, err := t.To(w.State, p.Gateway, p.Address, hop)
		if err == nil && vni != dataplane.CableVNI {
			err = routeTo(w.State, &link)
		}
		if err != nil {
			return w, fmt.Errorf("planning vxlan cable to %s: %w", p.Name, err)
		}
		w.Links = append(w.Links, link)
		senders.From = append(senders.From, p.Address)
	}
	slices.SortFunc(senders.From, netip.Addr.Compare)
	senders.From = slices.Compact(senders.From)
	w.Listens = []cable.Listen{senders}
	return w, nil
}

// routeTo adds a route for the peer's address on the device, since the devices of several VNIs
// have addresses in the same network. While a peer changes from one such VNI to another, the
// route of the first remains.
func routeTo(s dataplane.State, l *cable.Link) error {
	g := dataplane.Group{
		ID:      dataplane.OtherVNIGroupID<<24 | l.Hop&hopMask,
		Members: []dataplane.Member{{ID: l.Hop, Weight: 1}},
	}
	r := dataplane.Route{Table: dataplane.CableTable, Dst: prefix.Host(l.IP), Group: g.ID}
	if _, taken := s[r.Key()]; taken {
		return nil
	}
	l.Needs = append(l.Needs, r)
	return s.Add(g, r)
}

// hopMask is the part of an ID that distinguishes next hops of the same kind.
const hopMask = 1<<24 - 1

// otherVNI returns the ID of the next hop to a peer on another VNI: 24 bits of a hash of VNI and
// private IP, which do not both fit into an ID, incremented on a collision: the peer that comes
// first keeps its ID.
func otherVNI(taken map[uint32]bool, vni int, peer netip.Addr) uint32 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%d %v", vni, peer) // never fails
	id := h.Sum32() & hopMask
	for taken[id] {
		id = (id + 1) & hopMask
	}
	taken[id] = true
	return dataplane.OtherVNINexthopID<<24 | id
}
