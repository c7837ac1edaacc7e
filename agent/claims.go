package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"subctl/cable"
	"subctl/dataplane"
)

// claims remembers which cluster holds which network, gateway address, VTEP and cable
// name, so that a later one cannot take it over or lead its packets astray. Networks are
// disjoint and sorted, which makes a look-up a binary search: thousands of clusters are
// checked at every plan.
type claims struct {
	names map[string]string // who has the cable name: what is known of a cable is found by it
	nets  []claim
	hosts []netip.Addr          // addresses of gateways, sorted
	vteps map[netip.Addr]string // who has the VTEP
}

type claim struct {
	net     netip.Prefix
	cluster string
}

// add claims everything of a gateway, or nothing.
func (c *claims) add(g cable.Gateway) error {
	if who, ok := c.names[g.Name]; ok {
		return fmt.Errorf("its cable name is that of %s: every gateway has one of its own", who)
	}
	for _, n := range g.Subnets {
		from, to := c.overlapping(n)
		for _, other := range c.nets[from:to] {
			if other.cluster != g.Cluster {
				return fmt.Errorf("subnet %v overlaps %v of cluster %s, which was here first", n, other.net, other.cluster)
			}
		}
		if i, _ := slices.BinarySearchFunc(c.hosts, n.Addr(), netip.Addr.Compare); i < len(c.hosts) && n.Contains(c.hosts[i]) {
			return fmt.Errorf("subnet %v contains %v, the address of another gateway", n, c.hosts[i])
		}
	}
	own := []netip.Addr{g.PrivateIP}
	if g.PublicIP.IsValid() && g.PublicIP != g.PrivateIP {
		own = append(own, g.PublicIP)
	}
	for _, ip := range own {
		if from, to := c.overlapping(netip.PrefixFrom(ip, 32)); to > from {
			return fmt.Errorf("its address %v is in %v of cluster %s", ip, c.nets[from].net, c.nets[from].cluster)
		}
	}
	vtep, _ := cable.VTEP(dataplane.VXLANNet, g.PrivateIP)
	if who, ok := c.vteps[vtep]; ok {
		return fmt.Errorf("its private IP %v and that of %s have the same last three octets: both would be %v between the gateways; make another node the gateway", g.PrivateIP, who, vtep)
	}
	who := fmt.Sprintf("gateway %.80s of cluster %s", g.Host, g.Cluster)
	c.names[g.Name], c.vteps[vtep] = who, who
	for _, ip := range own {
		if i, found := slices.BinarySearchFunc(c.hosts, ip, netip.Addr.Compare); !found {
			c.hosts = slices.Insert(c.hosts, i, ip)
		}
	}
	for _, n := range g.Subnets {
		from, to := c.overlapping(n)
		if to > from && c.nets[from].net.Bits() <= n.Bits() {
			continue // inside what the cluster has claimed already
		}
		c.nets = slices.Replace(c.nets, from, to, claim{n, g.Cluster})
	}
	return nil
}

// overlapping returns the range of claimed networks that overlap n.
func (c *claims) overlapping(n netip.Prefix) (from, to int) {
	from, _ = slices.BinarySearchFunc(c.nets, n.Addr(), func(x claim, a netip.Addr) int { return x.net.Addr().Compare(a) })
	if from > 0 && c.nets[from-1].net.Overlaps(n) {
		from-- // a wider one that starts before n
	}
	for to = from; to < len(c.nets) && c.nets[to].net.Overlaps(n); to++ {
	}
	return from, to
}
