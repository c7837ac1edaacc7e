// Package vxlan joins gateways with VXLAN tunnels: plain ones, without encryption,
// for networks that are private already, and ones inside another cable's
// encryption (Tunnel; packages wireguard and ipsec have drivers of it, Combined).
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
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"

	"subctl/cable"
	"subctl/dataplane"
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

// Lacks implements cable.Driver: every kernel has VXLAN.
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
		return fmt.Errorf("cluster %s is behind address translation, which a vxlan cable does not get through: use an encrypted driver, or join it with --natt=false if there is none", peer.Cluster)
	case local.NAT:
		return fmt.Errorf("this cluster is behind address translation (joined with --natt), which a vxlan cable does not get through: use an encrypted driver, or join with --natt=false if there is none")
	case port != ours:
		return fmt.Errorf("cluster %s has its vxlan cable on UDP port %d and this cluster on %d, but a vxlan device sends to the port that it listens on: set the same vxlanPort in both", peer.Cluster, port, ours)
	}
	theirs := peer.Gateway.Config[vniKey]
	_, shared := peer.Shared[optVNI.Key]
	if ours := strconv.Itoa(own.Number(optVNI)); !shared && theirs != "" && theirs != ours {
		return fmt.Errorf("cluster %s has its vxlan cable on VNI %.20q and this cluster on %s: set the same vxlanID in both", peer.Cluster, theirs, ours)
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

// Plan implements cable.Driver. It refuses two gateways of one VTEP.
func (d Driver) Plan(local cable.Local, peers []cable.Peer) (cable.Wiring, error) {
	w := cable.Wiring{State: make(dataplane.State, 4*len(peers))}
	port := local.Settings[Name].Number(optPort)
	senders := cable.Listen{Proto: "udp", Port: port}
	others := map[uint32]bool{}
	for _, p := range peers {
		vni := p.Config.Number(optVNI)
		t := Tunnel{
			Device: d.Device(p.Config), VNI: vni, Port: port, Net: dataplane.VXLANNet, Hops: dataplane.VXLANNexthopID,
			Self: local.PrivateIP, Local: local.PrivateIP, MTU: local.MTU - dataplane.VXLANOverhead,
		}
		hop := t.Hop(p.Gateway)
		if vni != dataplane.CableVNI {
			t.Net, hop = dataplane.OtherVNINet, otherVNI(others, vni, p.PrivateIP)
		}
		link, err := t.To(w.State, p.PrivateIP, p.Address, hop)
		if err == nil && vni != dataplane.CableVNI {
			err = wayTo(w.State, link)
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

// wayTo routes a peer's own address to the device that the peer is on: those of
// several VNIs have addresses in one network. While a peer changes from one such VNI
// to another, the first has it.
func wayTo(s dataplane.State, l cable.Link) error {
	g := dataplane.Group{ID: dataplane.OtherVNIGroupID<<24 | l.Hop&hopMask, Members: []dataplane.Member{{ID: l.Hop, Weight: 1}}}
	r := dataplane.Route{Table: dataplane.CableTable, Dst: netip.PrefixFrom(l.IP, 32), Group: g.ID}
	if _, taken := s[r.Key()]; taken {
		return nil
	}
	return s.Add(g, r)
}

// hopMask is what tells next hops of one kind apart.
const hopMask = 1<<24 - 1

// otherVNI is the next hop's ID where VNI and VTEP do not both fit into one: 24 bits
// of a hash of them, counted up where two would share one.
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
