package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
)

// claims remembers which cluster holds which network, gateway address and whatever else
// can be one gateway's only, so that another cannot take it over or lead its packets
// astray. Networks are disjoint and sorted, which makes a look-up a binary search:
// thousands of clusters are checked at every plan.
type claims struct {
	nets  []claim
	hosts []netip.Addr // addresses of gateways, sorted
	taken cable.Claims
}

type claim struct {
	net     netip.Prefix
	cluster string
}

// newClaims has only the addresses between gateways claimed that this cluster's own
// nodes have, or would have as gateways.
func newClaims(nodes []cable.Node) *claims {
	c := &claims{taken: cable.Claims{}}
	for _, n := range nodes {
		c.taken[cable.VTEPClaim(n.IP).What] = cable.Holder{Cable: "node " + n.Name + " of this cluster"}
	}
	return c
}

// keep sets aside for each cluster what its gateways announce and it held before, so that
// nobody else gets it, however long he has been here. What a cluster did not hold has to
// be added like everybody else's.
func (c *claims) keep(peers []cable.Peer, before map[string][]cable.Gateway) {
	for _, p := range peers {
		for _, n := range p.Subnets {
			if c.free(n, p.Cluster) == nil && slices.ContainsFunc(before[p.Cluster], func(g cable.Gateway) bool { return covers(g.Subnets, n) }) {
				c.holdNet(claim{n, p.Cluster})
			}
		}
	}
	for _, p := range peers {
		for _, g := range before[p.Cluster] {
			for _, ip := range addresses(p) {
				had := ip == g.PrivateIP || ip == g.PublicIP || ip == p.Address && p.Name == g.Name
				if from, to := c.overlapping(netip.PrefixFrom(ip, 32)); had && from == to {
					c.holdHost(ip)
				}
			}
			c.taken.Keep(p, cable.Announced(g, drivers.All()), drivers.All())
		}
	}
}

// covers says whether one of some networks contains all of n.
func covers(nets []netip.Prefix, n netip.Prefix) bool {
	return slices.ContainsFunc(nets, func(s netip.Prefix) bool { return s.Bits() <= n.Bits() && s.Contains(n.Addr()) })
}

// add claims everything of a gateway, or nothing.
func (c *claims) add(p cable.Peer) error {
	for _, n := range p.Subnets {
		if err := c.free(n, p.Cluster); err != nil {
			return err
		}
	}
	for _, ip := range []netip.Addr{p.PrivateIP, p.PublicIP} {
		if !ip.IsValid() {
			continue
		}
		if from, to := c.overlapping(netip.PrefixFrom(ip, 32)); to > from {
			return fmt.Errorf("its address %v is in %v of cluster %s", ip, c.nets[from].net, c.nets[from].cluster)
		}
	}
	if err := c.taken.Announce(p, drivers.All()); err != nil {
		return err
	}
	for _, ip := range addresses(p) {
		c.holdHost(ip)
	}
	for _, n := range p.Subnets {
		c.holdNet(claim{n, p.Cluster})
	}
	return nil
}

// addresses are where the packets of a gateway's cable may go: what it announces, and
// where it was found.
func addresses(p cable.Peer) []netip.Addr {
	all := slices.DeleteFunc([]netip.Addr{p.PrivateIP, p.PublicIP, p.Address}, func(ip netip.Addr) bool { return !ip.IsValid() })
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// free says why a cluster cannot have a network; nil if it can.
func (c *claims) free(n netip.Prefix, cluster string) error {
	from, to := c.overlapping(n)
	for _, other := range c.nets[from:to] {
		if other.cluster != cluster {
			return fmt.Errorf("subnet %v overlaps %v of cluster %s, which was here first", n, other.net, other.cluster)
		}
	}
	if i, _ := slices.BinarySearchFunc(c.hosts, n.Addr(), netip.Addr.Compare); i < len(c.hosts) && n.Contains(c.hosts[i]) {
		return fmt.Errorf("subnet %v contains %v, the address of another gateway", n, c.hosts[i])
	}
	return nil
}

func (c *claims) holdNet(n claim) {
	from, to := c.overlapping(n.net)
	if to > from && c.nets[from].net.Bits() <= n.net.Bits() {
		return // inside what the cluster has claimed already
	}
	c.nets = slices.Replace(c.nets, from, to, n)
}

func (c *claims) holdHost(ip netip.Addr) {
	if i, found := slices.BinarySearchFunc(c.hosts, ip, netip.Addr.Compare); !found {
		c.hosts = slices.Insert(c.hosts, i, ip)
	}
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

// takeOver has an agent that has just started go on from what this cluster's gateways
// report: whose claims stood until now, and what carries the traffic.
func (a *agent) takeOver(ctx context.Context, now time.Time) error {
	if a.held != nil {
		return nil
	}
	var list submarinerv1.GatewayList
	if err := a.reports.List(ctx, &list, client.InNamespace(submarinerv1.OperatorNamespace)); err != nil {
		return fmt.Errorf("reading what the gateways are connected to: %w", err)
	}
	var reports []*submarinerv1.Gateway
	a.using = map[string]Using{}
	for i := range list.Items {
		g := &list.Items[i]
		reports = append(reports, g)
		if a.gateway == nil || g.Name == a.Name { // a gateway's cables are its own
			maps.Copy(a.using, usingFromReport(g, now))
		}
	}
	a.held = heldFromReports(reports)
	return nil
}

// remember is how one plan's claims get to the next. A snapshot that could not be
// understood changes nothing.
func (a *agent) remember(p Plan) {
	if p.view != nil {
		a.held = append([]cable.Gateway{}, p.view.held...)
	}
}

// heldFromReports are the gateways of other clusters to which gateways report a cable, or
// which one they would have.
func heldFromReports(reports []*submarinerv1.Gateway) []cable.Gateway {
	held := []cable.Gateway{}
	for _, r := range reports {
		for _, c := range r.Status.Connections {
			if g, err := cable.Parse(c.Endpoint); err == nil && c.Driver != "" {
				held = append(held, g)
			}
		}
	}
	return held
}
