package discovery

import (
	"net/netip"
	"slices"

	"subctl/cable"
)

// votesAfter is the number of searches in a row in which a gateway must see this one at the
// same address before its vote counts.
const votesAfter = 2

// PublicIP returns the address of this gateway on the outside of an address translation,
// which is to be published; the zero Addr if there is none. It is the source address at
// which more than half of the clusters see the gateway's packets, and none if more than
// half see them untranslated. Each cluster has one vote, however many gateways it has, and
// only authentic answers count. Without a majority the published address stays.
//
// Any member can lie here. So an address for which other clusters would refuse this one is
// never published.
func (d *Finder) PublicIP(published netip.Addr) netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ip, ok := d.majorityAddress(); ok {
		published = ip
	}
	if published.IsValid() && d.unpublishable(published) {
		return netip.Addr{}
	}
	return published
}

// undecided is the vote of a cluster whose gateways see different addresses. No gateway can
// be seen at it.
var undecided = netip.IPv6Unspecified()

// majorityAddress returns the address that most clusters see; false if there is no majority, or if
// there were too few searches to tell.
func (d *Finder) majorityAddress() (netip.Addr, bool) {
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

// unpublishable reports whether an address belongs to this cluster or to another one: other
// clusters would refuse an Endpoint with it.
func (d *Finder) unpublishable(ip netip.Addr) bool {
	in := func(n netip.Prefix) bool { return n.Contains(ip) }
	return slices.ContainsFunc(d.search.Own.All(), in) || slices.ContainsFunc(d.search.Own.Needed, in) ||
		slices.Contains(d.search.Own.Nodes, ip) ||
		slices.ContainsFunc(d.search.Peers, func(p cable.Peer) bool {
			return p.PrivateIP == ip || slices.ContainsFunc(p.Subnets, in)
		})
}
