package dataplane

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// ClusterNet is a network of another cluster, or an address of one of its gateways.
type ClusterNet struct {
	Net     netip.Prefix // masked
	Cluster string       // cluster ID; empty for networks whose packets are dropped without a cable
}

// DropCounter counts the packets that Antispoof drops for clusters.
type DropCounter interface {
	// Drops returns the number of packets by cluster ID, for the clusters of the table. The numbers
	// may start from 0 again at any time.
	Drops() (map[string]uint64, error)
	// DropReasons returns the number of packets that the owner's tables of nftables have dropped,
	// for clusters or not, by reason: see DropReason.
	DropReasons() (map[string]uint64, error)
	// ChainDrops is like DropReasons, for the owner's chains of iptables, which runs a program,
	// and, for the route agent, for what Linux drops by rp_filter.
	ChainDrops() (map[string]uint64, error)
}

// isolationRules keep clusters apart:
//
//   - what arrives from another cluster has a destination in this one, whatever kube-proxy or the
//     CNI would make of it: the rules come before all translation and before connection tracking.
//     What arrives in VXLAN packets has other rules, see arrivedRules;
//   - nothing is forwarded between the devices Apart, whatever routes there are, also if kube-proxy
//     chose the destination; and where there is a Local, nothing else from outside it is forwarded
//     to them, such as what another cluster sends to a node port;
//   - what arrives for a global address and is not translated is not forwarded, unless it answers
//     what another gateway of this cluster has translated and handed over: only to this gateway,
//     which has to know the connection;
//   - nothing from another cluster that another gateway of this cluster sends is forwarded to a
//     cable, for the same reason;
//   - what leaves to another cluster has a source in this one.
func (a Antispoof) isolationRules(r *antispoofRules) {
	if len(a.Own) > 0 {
		var foreignSource, foreignDestination []Match
		for _, n := range a.widest() {
			foreignSource = append(foreignSource, Match{SAddrNot: n})
			foreignDestination = append(foreignDestination, Match{DAddrNot: n})
		}
		foreignSource = append(foreignSource, Match{SAddrNotIn: AntispoofSetOwn})
		foreignDestination = append(foreignDestination, Match{DAddrNotIn: AntispoofSetOwn})
		for _, d := range a.Out {
			r.jump(AntispoofSource, AntispoofIn, append([]Match{{IIF: d}}, foreignDestination...)...)
			r.jump(AntispoofDestination, AntispoofOut, append([]Match{{OIF: d}}, foreignSource...)...)
		}
		if a.checksInside() {
			var foreign []Match
			for _, n := range a.widest() {
				foreign = append(foreign, Match{InnerNot: n})
			}
			for _, p := range a.Ports {
				r.jump(
					AntispoofLeaving,
					AntispoofOutput,
					append([]Match{{DPort: p}}, append(foreign, Match{InnerNotIn: AntispoofSetOwn})...)...)
			}
		}
	}
	switch {
	case len(a.Local) > 0:
		a.abroadRules(r)
		a.apartRules(r)
	case len(a.Apart) == 1 && len(a.Global) == 0: // without a chain more
		r.jump(AntispoofSource, AntispoofForward, Match{IIF: a.Apart[0]}, Match{OIF: a.Apart[0]})
	default:
		a.apartRules(r)
	}
	if len(a.Siblings) == 0 || len(a.Cables) == 0 || len(a.Remote) == 0 {
		return
	}
	for _, d := range a.Siblings {
		r.jump(AntispoofSiblings, AntispoofForward, Match{IIF: d})
	}
	a.notRemote(func(m Match) { r.back(AntispoofSiblings, m) })
	for _, m := range a.fromRemote() {
		r.jump(AntispoofHanded, AntispoofSiblings, m)
	}
	for _, d := range a.Cables {
		r.jump(AntispoofSource, AntispoofHanded, Match{OIF: d})
	}
}

// abroadRules are about what is forwarded to a device of Apart: it comes from Local, or is the
// answer to a connection that another cluster began, perhaps to a Service with a backend outside
// Local: its source is translated back later. What arrives on a device of Apart leaves on none, and
// counts for the cluster of its source.
func (a Antispoof) abroadRules(r *antispoofRules) {
	if len(a.Apart) == 0 {
		return
	}
	var foreign []Match
	for _, n := range a.usuallyFirst(a.Local) {
		foreign = append(foreign, Match{SAddrNot: n})
	}
	for _, d := range a.Apart { // the name last: it takes the longest to compare, and most packets are from Local
		r.jump(AntispoofAbroad, AntispoofForward, append(slices.Clone(foreign), Match{OIF: d})...)
	}
	for _, d := range a.Apart {
		r.jump(AntispoofSource, AntispoofAbroad, Match{IIF: d})
	}
	r.back(AntispoofAbroad, Match{Reply: true})
	if len(a.Clusters) > 0 {
		r.drop(AntispoofAbroad, Match{SAddrIn: AntispoofSetClusters})
	}
	offered := []Match{{Translated: true}}
	for _, d := range a.Nodes {
		offered = append(offered, Match{IIFNot: d})
	}
	r.back(AntispoofAbroad, offered...)
	r.jump(AntispoofDestination, AntispoofAbroad)
}

// apartRules are about what arrives on a device of Apart: it leaves on none of them, which
// abroadRules ensure if there is a Local, and is not for Global, unless it is an answer for another
// gateway.
func (a Antispoof) apartRules(r *antispoofRules) {
	if len(a.Local) > 0 && len(a.Global) == 0 {
		return
	}
	for _, d := range a.Apart {
		r.jump(AntispoofApart, AntispoofForward, Match{IIF: d})
	}
	for _, d := range a.Apart {
		if len(a.Local) == 0 {
			r.jump(AntispoofSource, AntispoofApart, Match{OIF: d})
		}
	}
	for _, n := range a.Global {
		for _, d := range a.Between {
			r.back(AntispoofApart, Match{DAddr: n}, Match{Reply: true}, Match{OIF: d})
			r.jump(AntispoofSource, AntispoofForward, Match{DAddr: n}, Match{IIF: d})
		}
		if len(a.Apart) > 0 {
			r.jump(AntispoofSource, AntispoofApart, Match{DAddr: n})
		}
	}
}

// countingRules drop and count the packets for which rules jump to AntispoofSource or
// AntispoofDestination. The lookup of an element increments its counter. A packet that leaves on a
// device of a cable counts for the cluster of its destination, or for the cluster to which a route
// leads it.
func (a Antispoof) countingRules(r *antispoofRules) {
	device := map[string]func(string) []Match{
		AntispoofSource:      func(dev string) []Match { return []Match{{IIF: dev}} },
		AntispoofDestination: func(dev string) []Match { return []Match{{OIF: dev}} },
	}
	count := func(chain string, by ...Match) {
		if !r.has(chain) {
			return
		}
		switch {
		case chain == AntispoofLeaving:
			a.returnedInside(func(ms ...Match) { r.accept(chain, ms...) })
		case device[chain] != nil:
			a.returnedRules(r, chain, device[chain])
		}
		for _, m := range by {
			if len(a.Clusters) > 0 {
				r.drop(chain, m)
			}
		}
		r.drop(chain)
	}
	count(AntispoofSource, Match{SAddrIn: AntispoofSetClusters})
	count(AntispoofNotThrough, Match{SAddrIn: AntispoofSetClusters})
	count(AntispoofForged, Match{SenderIn: AntispoofSetClusters})
	count(AntispoofDestination, Match{DAddrIn: AntispoofSetClusters}, Match{NexthopIn: AntispoofSetClusters})
	count(AntispoofLeaving, Match{InnerToIn: AntispoofSetClusters}, Match{DAddrIn: AntispoofSetClusters})
}

// Ended returns the networks whose connections end when a table changes from have to a: networks of
// clusters that have left, networks that pass to another cluster, and new networks, to which
// packets may have been sent another way. A network that is known without a cable in between keeps
// its connections, and so do the addresses of gateways, and the address of a device of a gateway
// that has another one now. If the table is of an older agent, which has no Clusters, nothing tells
// what is new.
func (a Antispoof) Ended(have Antispoof) (ended []netip.Prefix) {
	if len(have.Clusters) == 0 && (len(have.Own) > 0 || len(have.Remote) > 0) {
		return nil
	}
	gateways := map[netip.Addr]bool{}
	for _, s := range slices.Concat(have.Inner, a.Inner) {
		gateways[s.Outer] = true
	}
	add := func(n ClusterNet, others []ClusterNet, same func(ClusterNet) bool) {
		if onDevice(n.Net) && readdressed(n, others) {
			return
		}
		kept := slices.ContainsFunc(others, func(o ClusterNet) bool {
			return same(o) && (o.Cluster == n.Cluster || o.Cluster == "" || n.Cluster == "")
		})
		if !kept && !(n.Net.IsSingleIP() && gateways[n.Net.Addr()]) && !slices.Contains(ended, n.Net) {
			ended = append(ended, n.Net)
		}
	}
	for _, n := range lacking(have.Clusters, a.Clusters) {
		add(n, a.Clusters,
			func(o ClusterNet) bool { return o.Net.Bits() <= n.Net.Bits() && o.Net.Contains(n.Net.Addr()) })
	}
	for _, n := range lacking(a.Clusters, have.Clusters) {
		add(n, have.Clusters, func(o ClusterNet) bool { return o.Net.Overlaps(n.Net) })
	}
	return ended
}

// onDevice reports whether a network is an address of one of our devices.
func onDevice(n netip.Prefix) bool {
	for _, d := range DeviceNets {
		if n.IsSingleIP() && d.Net.Contains(n.Addr()) {
			return true
		}
	}
	return false
}

// readdressed reports whether others have the cluster of an address, and no cluster has the
// address.
func readdressed(n ClusterNet, others []ClusterNet) bool {
	stays := false
	for _, o := range others {
		if o.Net.Overlaps(n.Net) {
			return false
		}
		stays = stays || o.Cluster == n.Cluster
	}
	return stays
}

// lacking returns the elements of a that b does not have.
func lacking(a, b []ClusterNet) []ClusterNet {
	has := make(map[ClusterNet]bool, len(b))
	for _, n := range b {
		has[n] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(n ClusterNet) bool { return has[n] })
}

// Compare orders ClusterNets by Net, then by Cluster.
func (n ClusterNet) Compare(other ClusterNet) int {
	return cmp.Or(n.Net.Compare(other.Net), strings.Compare(n.Cluster, other.Cluster))
}
