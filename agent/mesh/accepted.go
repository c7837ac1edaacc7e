package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cable/keys"
	"subctl/cable/natdiscovery"
)

// Accepted holds the accepted gateways of other clusters. Their endpoints are valid, and
// they claim nothing that belongs to this cluster or that another cluster has claimed.
type Accepted struct {
	// Peers are the accepted gateways, standbys last, sorted by the age of their clusters: see
	// byAge. Some may have no cable.
	Peers []Peer
	// Incumbents are the gateways whose claims stand, for the next plan.
	Incumbents []cable.Gateway
	// Refused lists the endpoints that are not accepted.
	Refused []Refusal
	// Collisions are messages about gateway nodes of this cluster whose addresses on the devices of
	// cables an incumbent has.
	Collisions []string

	claims *cable.Claims
	since  map[string]int64 // see ages
}

// Peer is an accepted gateway and the endpoint that announces it.
type Peer struct {
	cable.Peer
	Spec submarinerv1.EndpointSpec
}

// accept sorts the endpoints of other clusters into peers and refusals. Where two clusters claim
// the same, the incumbent keeps it. Without an incumbent, the cluster that has been known for
// longer gets it. Incumbents come before nodes of this cluster, too, which come before all others;
// the node itself makes no cable to one that has its address: see chooser.checkOwnVTEP.
func accept(s role.Snapshot, m members.Membership) Accepted {
	a := Accepted{claims: cable.NewClaims(drivers.All()), since: ages(s)}
	remote := byAge(a.since, m.Remote)
	sound := make([]*submarinerv1.Endpoint, 0, len(remote)) // of the peers
	peers := make([]cable.Peer, 0, len(remote))
	for _, e := range remote {
		a.try(e.Endpoint, func() error {
			if e.Err != nil {
				return e.Err
			}
			p := peer(s, m, e.Gateway)
			if err := cable.CheckRemote(p.Gateway, m.Own); err != nil {
				return err
			}
			sound = append(sound, e.Endpoint)
			peers = append(peers, p)
			return nil
		})
	}
	a.keepIncumbents(s, m, peers)
	for _, n := range m.Labelled {
		o, has := m.OctetsOf(s, n)
		if !has {
			continue
		}
		if err := a.claims.AddNode(n.Name, o); err != nil {
			a.Collisions = append(a.Collisions, fmt.Sprintf("gateway node %s: %v", n.Name, err))
		}
	}
	a.Peers, a.Incumbents = slices.Grow(a.Peers, len(peers)), slices.Grow(a.Incumbents, len(peers))
	for i, p := range peers {
		a.try(sound[i], func() error {
			if err := a.claims.Announce(p); err != nil {
				return err
			}
			a.Peers = append(a.Peers, Peer{p, sound[i].Spec})
			a.Incumbents = append(a.Incumbents, p.Gateway)
			return nil
		})
	}
	return a
}

// clusters returns the clusters of the accepted gateways by age, also those that have only standbys
// for a moment: the order decides who keeps the ID of a next hop group.
func (a Accepted) clusters() (out []string) {
	all := map[string]bool{}
	for _, p := range a.Peers {
		all[p.Cluster] = true
	}
	return slices.SortedFunc(maps.Keys(all), func(x, y string) int {
		return cmp.Or(cmp.Compare(age(a.since, x), age(a.since, y)), strings.Compare(x, y))
	})
}

// unreachableNetworks returns the networks that clusters without an accepted gateway announce in
// their Cluster objects, except our own networks and networks that another cluster has claimed.
func (a Accepted) unreachableNetworks(m members.Membership) (nets []netip.Prefix) {
	reached := map[string]bool{}
	for _, p := range a.Peers {
		reached[p.Cluster] = true
	}
	for id, c := range m.Clusters {
		if reached[id] {
			continue
		}
		listed := c.Spec.Announced()
		for _, text := range listed[:min(len(listed), cable.MaxSubnets)] {
			n, err := cable.ParseCIDR(text)
			own := cable.Gateway{Cluster: id, Subnets: []netip.Prefix{n}}
			if err == nil && a.claims.Free(n, id) && cable.CheckRemote(own, m.Own) == nil {
				nets = append(nets, n)
			}
		}
	}
	slices.SortFunc(nets, netip.Prefix.Compare)
	return nets
}

// ages returns when clusters became known here.
func ages(s role.Snapshot) map[string]int64 {
	since := map[string]int64{}
	for _, c := range role.List[*submarinerv1.Cluster](s) {
		since[c.Spec.ClusterID] = c.CreationTimestamp.Unix()
	}
	return since
}

// age returns when a cluster became known. A cluster without a Cluster object is the youngest.
func age(since map[string]int64, cluster string) int64 {
	if t, ok := since[cluster]; ok {
		return t
	}
	return math.MaxInt64
}

// byAge sorts endpoints by when their clusters became known here. Of one cluster, gateways in
// service come first. Standbys come after the gateways of all clusters: they take nothing away from
// a gateway that carries traffic. What they held before, they keep: see cable.Claims.Keep.
func byAge(since map[string]int64, remote []members.Announced) []members.Announced {
	last := func(e members.Announced) int {
		if e.Gateway.Drain == cable.Standby {
			return 1
		}
		return 0
	}
	sorted := slices.Clone(remote)
	slices.SortStableFunc(sorted, func(a, b members.Announced) int {
		x := a.Endpoint.Spec.ClusterID
		y := b.Endpoint.Spec.ClusterID
		return cmp.Or(last(a)-last(b), cmp.Compare(age(since, x), age(since, y)), strings.Compare(x, y),
			cmp.Compare(a.Gateway.Drain, b.Gateway.Drain))
	})
	return sorted
}

// try takes one step with an endpoint, and refuses the endpoint if the step fails.
func (a *Accepted) try(e *submarinerv1.Endpoint, step func() error) {
	if err := members.Guarded(step); err != nil {
		a.Refused = append(a.Refused, Refusal{e.Spec, err})
	}
}

// peer returns a remote gateway with what is known of the path to it.
func peer(s role.Snapshot, m members.Membership, g cable.Gateway) cable.Peer {
	path := pathTo(s, g)
	p := cable.Peer{Gateway: g, Address: path.Address, NATed: path.NAT, InboundOnly: path.InboundOnly, MTU: path.MTU}
	if !p.Address.IsValid() {
		p.Address, p.NATed = natdiscovery.Unasked(g)
		p.Guessed = s.Paths != nil
	}
	if c := m.Clusters[g.Cluster]; c != nil {
		p.PublicKey, _ = keys.ParsePublic(c.Spec.PublicKey) // drivers that need one refuse the zero key
	}
	return p
}

// pathTo returns what is known of the path to a gateway. After a restart of the agent, this is the
// path of the cable that is in use, until discovery has found one.
func pathTo(s role.Snapshot, g cable.Gateway) natdiscovery.Path {
	path := s.Paths[g.Name]
	if path.Address.IsValid() {
		return path
	}
	old := s.Memory.Paths[g.Name]
	if _, used := s.Memory.Using[g.Name]; used && (old.InboundOnly || natdiscovery.Announced(g, old.Address)) {
		return old
	}
	return path
}

// keepIncumbents reserves the claims of the incumbents, and this cluster's own public
// address. A member without a valid endpoint keeps all its claims: its gateways may be
// changing.
func (a *Accepted) keepIncumbents(s role.Snapshot, m members.Membership, peers []cable.Peer) {
	here := map[string]bool{}
	for _, p := range peers {
		here[p.Cluster] = true
	}
	for _, g := range s.Memory.Incumbents {
		if !here[g.Cluster] && m.Clusters[g.Cluster] != nil {
			peers = append(peers, cable.Peer{Gateway: g})
			a.Incumbents = append(a.Incumbents, g)
		}
	}
	a.claims.Keep(peers, s.Memory.Incumbents)
	for _, e := range m.Endpoints {
		if ip := e.Gateway.PublicIP; ip.IsValid() {
			a.claims.KeepAddress(ip)
		}
	}
}

// incumbentsAgain is the time after which to plan again if the incumbents have changed, and
// something of a node does not count.
const incumbentsAgain = time.Second

// acceptAgain has the next plan made soon if what does not count of nodes may count then, as
// its incumbents differ from those of this one.
func (p *Plan) acceptAgain() {
	m := p.Mesh.Membership
	changed := len(m.Collisions)+len(m.Contested) > 0 &&
		!role.SameClaims(p.Mesh.Snapshot.Memory.Incumbents, p.Mesh.Accepted.Incumbents)
	if changed && (p.Again == 0 || p.Again > incumbentsAgain) {
		p.Again = incumbentsAgain
	}
}
