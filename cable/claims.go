package cable

import (
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/internal/prefix"
)

// Claims is the registry of resources that belong to one cluster (networks) or to one gateway
// (addresses, and the resources that a Claim names). It prevents a cluster from taking over
// resources of another, or diverting its packets. The first to claim a resource is its holder.
// Incumbents, which held resources before, claim first, with Keep; the gateway nodes of this
// cluster follow with AddNode, and the other gateways with Announce.
//
// Every plan checks thousands of clusters, so networks and addresses are sorted, and
// a lookup is a binary search.
type Claims struct {
	drivers   []Driver
	networks  []networkClaim // disjoint, sorted
	addresses []netip.Addr   // of gateways, sorted
	holders   map[string]holder
}

type networkClaim struct {
	network netip.Prefix
	cluster string
}

// holder is the holder of a Claim.
type holder struct {
	cluster string
	gateway string // empty if the claim is kept for any gateway of the cluster that announces it
}

func (h holder) String() string {
	if h.gateway == "" {
		return "cluster " + h.cluster
	}
	return fmt.Sprintf("%.80s", h.gateway)
}

// Claim names a resource that only one gateway can have.
type Claim struct {
	What string // the resource, the same text for all gateways that claim it
	Why  string // the reason why only one gateway can have it
}

// Claimer is a Driver whose gateways announce resources that only one of them can have.
type Claimer interface {
	// Claims returns the claims of a gateway, whichever cable connects it: the gateway may be
	// about to change its cable, or may have just done so.
	Claims(Gateway) []Claim
}

// NewClaims returns an empty registry. drivers are all drivers that gateways may use.
func NewClaims(drivers []Driver) *Claims {
	return &Claims{drivers: drivers, holders: map[string]holder{}}
}

// AddNode claims the address that a gateway node of this cluster has on devices of cables. The
// error names the cluster for which Keep has kept it.
func (c *Claims) AddNode(name string, o Octets) error {
	claim := vtepClaim(Gateway{Octets: o})
	if by, taken := c.holders[claim.What]; taken {
		return fmt.Errorf("%s is already used by %v: %s", claim.What, by, claim.Why)
	}
	c.holders[claim.What] = holder{gateway: "node " + name + " of this cluster"}
	return nil
}

// Keep claims for the cluster of each peer the resources that the peer announces and that an
// incumbent of the same cluster held. An incumbent is a gateway with earlier claims. Announce
// claims the other resources.
//
// The claims that are not networks or addresses are kept also if no peer announces them any more:
// the address of a gateway on a device does not pass to another cluster in the same plan, in which
// packets would still be sent there for the first one.
func (c *Claims) Keep(peers []Peer, incumbents []Gateway) {
	before := make(map[string][]*Gateway, len(incumbents))
	for i := range incumbents {
		g := &incumbents[i]
		before[g.Cluster] = append(before[g.Cluster], g)
	}
	var held []networkClaim
	for _, p := range peers {
		for _, n := range p.Subnets {
			if slices.ContainsFunc(before[p.Cluster], func(g *Gateway) bool { return prefix.Covers(g.Subnets, n) }) {
				held = append(held, networkClaim{n, p.Cluster})
			}
		}
	}
	c.keepNetworks(held)
	for _, p := range peers {
		for _, g := range before[p.Cluster] {
			for _, ip := range addressesOf(p) {
				if ip == g.PrivateIP || ip == g.PublicIP || ip == p.Address && p.Name == g.Name {
					c.KeepAddress(ip)
				}
			}
		}
	}
	for _, g := range incumbents {
		for _, claim := range c.announced(g) {
			if _, taken := c.holders[claim.What]; !taken {
				c.holders[claim.What] = holder{cluster: g.Cluster}
			}
		}
	}
}

// keepNetworks claims the networks that conflict with no earlier claim. Incumbents seldom conflict
// with each other: only if the reports of two gateways differ. Without conflicts, all networks are
// sorted once instead of being inserted one by one.
func (c *Claims) keepNetworks(held []networkClaim) {
	if sorted, disjoint := merged(held); disjoint && len(c.networks) == 0 && len(c.addresses) == 0 {
		c.networks = sorted
		return
	}
	for _, n := range held {
		if c.checkNetwork(n.network, n.cluster) == nil {
			c.addNetwork(n)
		}
	}
}

// merged returns networks sorted, without networks inside another one of the same cluster, and
// reports whether the networks of different clusters are disjoint.
func merged(all []networkClaim) (widest []networkClaim, disjoint bool) {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b networkClaim) int { return a.network.Compare(b.network) })
	widest = sorted[:0]
	for _, n := range sorted {
		switch last := len(widest) - 1; {
		case last < 0 || !widest[last].network.Overlaps(n.network):
			widest = append(widest, n)
		case widest[last].cluster != n.cluster:
			return nil, false
		}
	}
	return widest, true
}

// KeepAddress claims an incumbent's address, unless it is in a claimed network.
func (c *Claims) KeepAddress(ip netip.Addr) {
	if from, to := c.overlapping(prefix.Host(ip)); from == to {
		c.addAddress(ip)
	}
}

// Free reports whether a network of a cluster conflicts with no claim of others.
func (c *Claims) Free(n netip.Prefix, cluster string) bool { return c.checkNetwork(n, cluster) == nil }

// Announce claims all resources that a gateway announces. If another holder has one of them,
// Announce claims none, and returns an error that names it.
func (c *Claims) Announce(p Peer) error {
	for _, n := range p.Subnets {
		if err := c.checkNetwork(n, p.Cluster); err != nil {
			return err
		}
	}
	for _, ip := range []netip.Addr{p.PrivateIP, p.PublicIP} {
		if !ip.IsValid() {
			continue
		}
		if from, to := c.overlapping(prefix.Host(ip)); to > from {
			return fmt.Errorf("its address %v is in %v of cluster %s", ip, c.networks[from].network,
				c.networks[from].cluster)
		}
	}
	if err := c.add(p.Gateway, c.announced(p.Gateway)); err != nil {
		return err
	}
	for _, ip := range addressesOf(p) {
		c.addAddress(ip)
	}
	for _, n := range p.Subnets {
		c.addNetwork(networkClaim{n, p.Cluster})
	}
	return nil
}

// add adds all claims of a gateway, or none. A gateway may claim what is kept for its cluster.
func (c *Claims) add(g Gateway, claims []Claim) error {
	for _, claim := range claims {
		if by, taken := c.holders[claim.What]; taken && by != (holder{cluster: g.Cluster}) {
			return fmt.Errorf("%s is already used by %v: %s", claim.What, by, claim.Why)
		}
	}
	for _, claim := range claims {
		c.holders[claim.What] = holder{cluster: g.Cluster, gateway: g.Name}
	}
	return nil
}

// announced returns the claims of a gateway, whichever cable connects it.
func (c *Claims) announced(g Gateway) []Claim {
	claims := []Claim{
		{What: "cable name " + g.Name, Why: "cable names must be unique"},
		vtepClaim(g),
	}
	for _, d := range c.drivers {
		if claimer, ok := d.(Claimer); ok {
			claims = append(claims, claimer.Claims(g)...)
		}
	}
	return claims
}

// vtepClaim returns the claim for a gateway's address on devices of cables.
func vtepClaim(g Gateway) Claim {
	return Claim{What: "address " + g.VTEP(dataplane.VXLANNet).String() + " between the gateways", Why: OneVTEP}
}

// OneVTEP is the reason why only one gateway can have an address on devices of cables, and what to
// do, for messages.
const OneVTEP = "only one gateway can have it: delete the Endpoint of one of them in its own cluster, so that it " +
	"chooses another, or make another node the gateway there"

// checkNetwork returns an error if a network of a cluster conflicts with another claim.
func (c *Claims) checkNetwork(n netip.Prefix, cluster string) error {
	from, to := c.overlapping(n)
	for _, other := range c.networks[from:to] {
		if other.cluster != cluster {
			return fmt.Errorf("subnet %v overlaps %v of cluster %s, which already uses it", n, other.network,
				other.cluster)
		}
	}
	if i, _ := slices.BinarySearchFunc(c.addresses, n.Addr(), netip.Addr.Compare); i < len(c.addresses) &&
		n.Contains(c.addresses[i]) {
		return fmt.Errorf("subnet %v contains %v, the address of another gateway", n, c.addresses[i])
	}
	return nil
}

func (c *Claims) addNetwork(n networkClaim) {
	from, to := c.overlapping(n.network)
	if to > from && c.networks[from].network.Bits() <= n.network.Bits() {
		return // inside a network that the cluster has claimed already
	}
	c.networks = slices.Replace(c.networks, from, to, n)
}

func (c *Claims) addAddress(ip netip.Addr) {
	if i, found := slices.BinarySearchFunc(c.addresses, ip, netip.Addr.Compare); !found {
		c.addresses = slices.Insert(c.addresses, i, ip)
	}
}

// overlapping returns the range of claimed networks that overlap n.
func (c *Claims) overlapping(n netip.Prefix) (from, to int) {
	from, _ = slices.BinarySearchFunc(c.networks, n.Addr(),
		func(x networkClaim, a netip.Addr) int { return x.network.Addr().Compare(a) })
	if from > 0 && c.networks[from-1].network.Overlaps(n) {
		from-- // a wider one that starts before n
	}
	for to = from; to < len(c.networks) && c.networks[to].network.Overlaps(n); to++ {
	}
	return from, to
}

// addressesOf returns the possible destinations of a peer's cable: the addresses that the
// gateway announces, and the address from path discovery.
func addressesOf(p Peer) []netip.Addr {
	all := slices.DeleteFunc([]netip.Addr{p.PrivateIP, p.PublicIP, p.Address},
		func(ip netip.Addr) bool { return !ip.IsValid() })
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}
