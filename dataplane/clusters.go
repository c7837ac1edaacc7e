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

// DropCounter counts the packets that the tables against forged packets drop for clusters.
type DropCounter interface {
	// Drops returns the number of packets by cluster ID, for the clusters of the table. The numbers
	// may start from 0 again at any time.
	Drops() (map[string]uint64, error)
	// DropReasons returns the number of packets that the owner's tables of nftables have dropped,
	// for clusters or not, by reason: see DropReason; and, for the route agent, what Linux has
	// dropped by rp_filter.
	DropReasons() (map[string]uint64, error)
}

// ClusterConnections specifies which connections end when a Ruleset is written: see Ended. Then an
// established connection is a new one, to which all rules apply.
type ClusterConnections struct {
	Clusters string // name of a set of ClusterNets; empty for none
	// Gateways is the name of a map whose keys are addresses of gateways: these keep their
	// connections.
	Gateways string
	// Announced are the networks of this cluster to which others send through cables. If there are
	// any, connections to others go on: they do not come through a cable.
	Announced []netip.Prefix
}

// clusterComment separates the network from the cluster in an element.
const clusterComment = " comment "

// Element returns the network as an element of a set, with its cluster as comment.
func (n ClusterNet) Element() string {
	if n.Cluster == "" {
		return n.Net.String()
	}
	return n.Net.String() + clusterComment + `"` + Quote(n.Cluster) + `"`
}

// clusterNets returns the networks in a set, without elements that no plan has.
func (r Ruleset) clusterNets(set string) []ClusterNet {
	s := r.Set(set)
	if s == nil {
		return nil
	}
	out := make([]ClusterNet, 0, len(s.Elements))
	for _, e := range s.Elements {
		text, cluster, _ := strings.Cut(e, clusterComment)
		if n, err := netip.ParsePrefix(text); err == nil {
			out = append(out, ClusterNet{Net: n, Cluster: strings.Trim(cluster, `"`)})
		}
	}
	slices.SortFunc(out, ClusterNet.Compare)
	return out
}

// Ended returns the networks whose connections end when a table changes from have to r: networks of
// clusters that have left, networks that pass to another cluster, and new networks, to which
// packets may have been sent another way. A network that is known without a cable in between keeps
// its connections, and so do the addresses of gateways, and the address of a device of a gateway
// that has another one now. Nothing ends where there was no table.
func (r Ruleset) Ended(have Ruleset) (ended []netip.Prefix) {
	old := have.Set(r.Ends.Clusters)
	now := r.Set(r.Ends.Clusters)
	if have.Table == "" || r.Ends.Clusters == "" ||
		old != nil && now != nil && slices.Equal(old.Elements, now.Elements) {
		return nil
	}
	gateways := map[string]bool{}
	for _, t := range []Ruleset{have, r} {
		if s := t.Set(r.Ends.Gateways); s != nil {
			for _, e := range s.Elements {
				address, _, _ := strings.Cut(e, " : ")
				gateways[address] = true
			}
		}
	}
	add := func(n ClusterNet, others []ClusterNet, same func(ClusterNet) bool) {
		if onDevice(n.Net) && readdressed(n, others) {
			return
		}
		kept := slices.ContainsFunc(others, func(o ClusterNet) bool {
			return same(o) && (o.Cluster == n.Cluster || o.Cluster == "" || n.Cluster == "")
		})
		if !kept && !(n.Net.IsSingleIP() && gateways[n.Net.Addr().String()]) && !slices.Contains(ended, n.Net) {
			ended = append(ended, n.Net)
		}
	}
	before := have.clusterNets(r.Ends.Clusters)
	after := r.clusterNets(r.Ends.Clusters)
	for _, n := range lacking(before, after) {
		add(n, after, func(o ClusterNet) bool { return o.Net.Bits() <= n.Net.Bits() && o.Net.Contains(n.Net.Addr()) })
	}
	for _, n := range lacking(after, before) {
		add(n, before, func(o ClusterNet) bool { return o.Net.Overlaps(n.Net) })
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
