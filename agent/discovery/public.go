package discovery

import (
	"net/netip"
	"slices"

	"subctl/cable"
)

// votesAfter is for how many looks in a row a gateway has to see the same of this one
// before it counts.
const votesAfter = 2

// PublicIP is the address to publish as that of this gateway on the outside; the zero
// Addr for none. It is the one that more than half of the clusters see the gateway's
// packets come from, and none if more than half see them untranslated. Only what a
// cluster says with the key of the pair counts, and once, however many gateways it has.
// Where there is no such majority, what is published stays.
//
// Any member can lie here, so what would cut this cluster off from others is never
// published, whoever says so.
func (d *Finder) PublicIP(published netip.Addr) netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ip, ok := d.elected(); ok {
		published = ip
	}
	if published.IsValid() && d.unpublishable(published) {
		return netip.Addr{}
	}
	return published
}

// undecided is the vote of a cluster whose gateways see different things. It is no
// address that anybody can be seen as.
var undecided = netip.IPv6Unspecified()

// elected is what most clusters see; false if there is no majority, or there were not
// enough looks to tell.
func (d *Finder) elected() (netip.Addr, bool) {
	votes := map[string]netip.Addr{} // by cluster; the zero Addr: untranslated
	for _, k := range d.known {
		if k.looks < votesAfter {
			return netip.Addr{}, false
		}
		if k.seen < votesAfter {
			continue
		}
		if ip, voted := votes[k.peer.Cluster]; voted && ip != k.seenAs {
			votes[k.peer.Cluster] = undecided
		} else {
			votes[k.peer.Cluster] = k.seenAs
		}
	}
	count := map[netip.Addr]int{}
	for _, ip := range votes {
		count[ip]++
	}
	for ip, n := range count {
		if ip != undecided && 2*n > len(votes) {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

// unpublishable says that an address cannot be this gateway's on the outside: it is
// somebody's already, and others would refuse this cluster for it.
func (d *Finder) unpublishable(ip netip.Addr) bool {
	in := func(n netip.Prefix) bool { return n.Contains(ip) }
	return slices.ContainsFunc(d.search.Own.All(), in) || slices.ContainsFunc(d.search.Own.Needed, in) || slices.Contains(d.search.Own.Nodes, ip) ||
		slices.ContainsFunc(d.search.Peers, func(p cable.Peer) bool { return p.PrivateIP == ip || slices.ContainsFunc(p.Subnets, in) })
}
