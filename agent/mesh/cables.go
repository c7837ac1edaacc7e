package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/dataplane"
	"subctl/policy"
)

// Cables holds the cable to each accepted gateway, with the driver that policy decides on.
// Both clusters offer that driver.
type Cables struct {
	// Wanted are the cables that policy decides on, sorted by name.
	Wanted []cable.Cable
	// NoSlot are the cables that policy decides on, but that are not possible, because their driver
	// already connects to another gateway of the cluster. The pair may keep its current cable for a
	// while: see keepWithoutSlot.
	NoSlot []cable.Cable
	// Endpoints are the endpoints that announce the peers of the cables, by cable name.
	Endpoints map[string]submarinerv1.EndpointSpec
	// KeptReasons are the reasons why pairs keep their cable although the policy that decides is
	// invalid, by cable name.
	KeptReasons map[string]string
	// StandInReasons are the reasons why cables have another driver than policy decides on, by
	// cable name: see standIn.
	StandInReasons map[string]string
	// Refused lists the endpoints that are not accepted or that no driver can connect, sorted by
	// cable name.
	Refused []Refusal
	// ViaSibling are the accepted gateways for which policy decides on a cable that this node
	// cannot make, of clusters to which it can make none. Another gateway of this cluster may have
	// such a cable.
	ViaSibling []SiblingGateway
	// Blackholed are the networks of accepted gateways without a cable, and of clusters without an
	// accepted gateway. Their packets are dropped: the default route would send them in clear text.
	Blackholed []netip.Prefix
	// Pending are the endpoints to which there is no cable yet, because the state is
	// incomplete: see incomplete.go.
	Pending []Refusal
	// NotNeeded are the endpoints to which there is no cable while one end is not in service, and
	// need not be: see notNeeded.
	NotNeeded []Refusal
}

// Refusal is an endpoint of another cluster to which there is no cable, and the reason.
type Refusal struct {
	Spec submarinerv1.EndpointSpec
	Err  error
}

// maxDevices is the maximum number of devices that policies can make a gateway create, with
// settings that give pairs of clusters a device of their own (vxlanID). Each costs the kernel
// a device with rules of its own, and any member can write policies.
const maxDevices = 16

// connect chooses the cables to the accepted gateways, in their order: devices and
// whatever else only one gateway can have go to the clusters that were here first.
func connect(s role.Snapshot, m members.Membership, o Offer, a Accepted) Cables {
	c := chooser{
		snapshot: s, membership: m, offer: o, book: s.Book, lastUsed: lastUsed{snapshot: s},
		places: cable.NewPlaces(drivers.All()), devices: map[string]bool{}, alone: map[string]error{},
		out: Cables{
			Endpoints:      map[string]submarinerv1.EndpointSpec{},
			KeptReasons:    map[string]string{},
			StandInReasons: map[string]string{},
		},
	}
	if c.book == nil {
		c.book = policy.Compile(role.List[*v1alpha1.CablePolicies](s), s.Makers())
	}
	c.incomplete = incompletePolicies(s, m, c.book)
	c.own = policy.Cluster{
		ID: o.Local.Cluster, Labels: m.Labels(), Sets: m.Sets, Driver: o.Default.Name(),
		MustEncrypt: m.Submariner.Spec.Encryption.Required(),
	}
	needs := members.NeedsOf(s)
	c.out.Wanted = slices.Grow(c.out.Wanted, len(a.Peers))
	c.out.Refused = slices.Clone(a.Refused)
	for _, p := range a.Peers {
		c.decided = nil
		err := needs.Check(p.Gateway, m.Self.Name)
		if err == nil {
			err = members.Guarded(func() error { return c.add(&p) })
		}
		if err == nil {
			continue
		}
		c.out.Blackholed = append(c.out.Blackholed, p.Subnets...)
		switch {
		case errors.As(err, &incomplete{}):
			c.out.Pending = append(c.out.Pending, Refusal{p.Spec, err})
		case errors.As(err, &notNeeded{}):
			c.out.NotNeeded = append(c.out.NotNeeded, Refusal{p.Spec, err})
		default:
			c.out.Refused = append(c.out.Refused, Refusal{p.Spec, err})
			_ = members.Guarded(func() error { c.addViaSibling(p.Peer); return nil }) // the endpoint is refused already
		}
	}
	c.out.ViaSibling = c.out.unconnected(c.out.ViaSibling)
	c.out.Blackholed = needs.Spare(append(c.out.Blackholed, a.unreachableNetworks(m)...))
	slices.SortFunc(c.out.Wanted, func(a, b cable.Cable) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(c.out.Refused, func(a, b Refusal) int {
		return cmp.Or(strings.Compare(a.Spec.CableName, b.Spec.CableName),
			strings.Compare(a.Spec.ClusterID, b.Spec.ClusterID))
	})
	return c.out
}

// chooser chooses cables.
type chooser struct {
	snapshot   role.Snapshot
	membership members.Membership
	offer      Offer
	book       *policy.Book
	lastUsed   lastUsed
	places     cable.Places
	own        policy.Cluster
	incomplete error            // why the policies may not be all; nil if they are
	devices    map[string]bool  // that policies make the gateway create
	alone      map[string]error // why no driver stands in for one with MaxGateways, by cable name
	// that policy decides on for the peer at hand, before another one may stand in; nil if it
	// decides on none
	decided cable.Driver
	out     Cables
}

// add adds the cable to a gateway, or returns why there is none.
func (c *chooser) add(p *Peer) error {
	d, err := c.driver(&p.Peer)
	if err != nil {
		return err
	}
	if d, err = c.answered(p, d); err != nil {
		return err
	}
	if p.ForbidsDriver(d) { // policy never decides on such a driver
		return NoCable{
			d.Name(),
			p.Policy,
			p.Rule,
			fmt.Errorf("%s requires encryption, but %s does not encrypt", p.MustEncrypt, d.Name()),
		}
	}
	if err := cmp.Or(d.Refuses(c.offer.Local, p.Peer), c.checkOwnVTEP(p)); err != nil {
		return NoCable{d.Name(), p.Policy, p.Rule, err}
	}
	made := cable.Cable{Peer: p.Peer, Driver: d}
	if err := c.checkDeviceLimit(made); err != nil {
		return err
	}
	if err := c.place(made); err != nil {
		c.out.NoSlot = append(c.out.NoSlot, made)
		c.out.Endpoints[p.Name] = p.Spec
		if why := c.alone[p.Name]; why != nil {
			return fmt.Errorf("%w, but %w", err, why)
		}
		return err
	}
	c.out.Wanted = append(c.out.Wanted, made)
	c.out.Endpoints[p.Name] = p.Spec
	return nil
}

// answered returns the driver for the cable to a gateway, given the driver that is decided on. A
// cable without encryption is made only to an address at which the gateway has answered: an address
// that is only announced, or that of another host, would be sent clear text. Until then a pair
// keeps the encrypted cable that it uses.
func (c *chooser) answered(p *Peer, d cable.Driver) (cable.Driver, error) {
	if !p.Guessed || d.Properties().Encrypts {
		return d, nil
	}
	wanted := NoCable{Driver: d.Name(), Policy: p.Policy, Rule: p.Rule, why: fmt.Errorf(
		"gateway %s of cluster %s has not answered at any of its addresses, and a cable without encryption is made only to an address that has answered: "+
			"let UDP port %d pass between the gateways",
		p.Host,
		p.Cluster,
		dataplane.NATDiscoveryPort,
	)}
	if old := c.restoreCurrent(&p.Peer); old != nil && old.Properties().Encrypts {
		c.out.KeptReasons[p.Name] = fmt.Sprintf("the cable to cluster %s stays %s: %v", p.Cluster, old.Name(), wanted)
		return old, nil
	}
	if c.snapshot.Paths[p.Name].Done {
		return nil, wanted
	}
	return nil, incomplete{wanted}
}

// NoCable is the reason why a pair does not have the cable that it should have.
type NoCable struct {
	Driver, Policy string // that it should have; empty if unknown, or if no policy decides
	Rule           int    // of the policy, counted from 1
	why            error
}

// Error implements error.
func (e NoCable) Error() string { return e.why.Error() }

// Unwrap returns the reason.
func (e NoCable) Unwrap() error { return e.why }

// driver returns the driver that policy decides on for a peer, and fills in the peer's
// settings.
func (c *chooser) driver(p *cable.Peer) (cable.Driver, error) {
	other := policy.Cluster{ID: p.Cluster, Sets: c.own.Sets} // as far as requirements go
	if known := c.membership.Clusters[p.Cluster]; known != nil {
		other = policy.ClusterOf(known)
	}
	other.Driver = p.Default
	dec := c.book.Decide(c.own, other)
	p.MustEncrypt = dec.MustEncrypt
	if err := c.undecidable(p.Cluster); err != nil {
		return c.keepWhileIncomplete(p, err)
	}
	if dec.ConfigErr != nil {
		dec.Err = fmt.Errorf("cable policy %s, settings of %s: %w", dec.Policy, dec.Driver, dec.ConfigErr)
	}
	no := NoCable{Driver: dec.Driver, Policy: dec.Policy, Rule: dec.Number(), why: dec.Err}
	if dec.Err != nil {
		return c.keepForMistake(p, no)
	}
	d, err := drivers.Parse(dec.Driver)
	if err != nil {
		no.why = err
		return nil, no
	}
	c.decided = d
	p.Policy = dec.Policy
	p.Rule = dec.Number()
	p.Shared = dec.Config
	if err := c.checkOffered(d, p); err != nil {
		no.why = fmt.Errorf("%s%w", decisionPrefix(dec), err)
		return nil, no
	}
	d = c.standIn(p, d)
	p.Config = c.offer.Settings[d.Name()].With(dec.Config)
	return d, nil
}

// decisionPrefix returns the beginning of a message about a policy's decision.
func decisionPrefix(d policy.Decision) string {
	if d.Policy == "" {
		return ""
	}
	return fmt.Sprintf("cable policy %s wants %s: ", d.Policy, d.Driver)
}

// keepForMistake keeps the current cable of a pair if the policy that decides has a mistake. Any
// member can write a policy; a mistake in it must neither disconnect others nor weaken their
// cables. A pair without a cable does not get one.
func (c *chooser) keepForMistake(p *cable.Peer, no NoCable) (cable.Driver, error) {
	if no.Policy == "" {
		return nil, no
	}
	d := c.restoreCurrent(p)
	if d == nil {
		return nil, no
	}
	c.out.KeptReasons[p.Name] = fmt.Sprintf("the cable to cluster %s stays %s: %v", p.Cluster, d.Name(), no)
	return d, nil
}

// restoreCurrent fills in the settings of the cable that a pair uses, or used before the node has
// booted, and returns its driver; nil if the pair has no cable, or one that either end no longer
// offers.
func (c *chooser) restoreCurrent(p *cable.Peer) cable.Driver {
	u, ok := c.lastUsed.by(p.Gateway)
	if !ok {
		u, ok = c.snapshot.Memory.Former[p.Name]
	}
	if !ok || !c.offer.offers(u.Driver) || !p.Offers(u.Driver) || p.ForbidsDriver(drivers.Find(u.Driver)) {
		return nil
	}
	if c.membership.Clusters[p.Cluster] == nil {
		p.PublicKey = u.PublicKey
	}
	p.Policy = u.Policy
	p.Rule = u.Rule
	p.Shared = u.Shared
	p.Config = c.offer.Settings[u.Driver].With(u.Shared)
	return drivers.Find(u.Driver)
}

// checkOwnVTEP returns an error if a gateway has the same address on the devices of cables as this
// one. Only an incumbent can: see accept. The other gateways of this cluster keep their cables to
// it, and get the packets to its cluster.
func (c *chooser) checkOwnVTEP(p *Peer) error {
	own := c.offer.Local.VTEP(dataplane.VXLANNet)
	if !c.snapshot.Standing.Active || own != p.VTEP(dataplane.VXLANNet) {
		return nil
	}
	return fmt.Errorf("address %v between the gateways is that of node %s of this cluster: %s", own,
		c.membership.Self.Name, cable.OneVTEP)
}

// checkDeviceLimit reports, as an error, that policies already make the gateway create as many
// devices as they can.
func (c *chooser) checkDeviceLimit(made cable.Cable) error {
	device := made.Device()
	if device == made.Driver.Device(c.offer.Settings[made.Driver.Name()]) || c.devices[device] {
		return nil
	}
	if len(c.devices) >= maxDevices {
		return NoCable{
			made.Driver.Name(),
			made.Policy,
			made.Rule,
			fmt.Errorf(
				"cable policy %s requires a separate device, %s, but policies can make a gateway create at most %d devices: let pairs of clusters share a vxlanID",
				made.Policy, device, maxDevices),
		}
	}
	c.devices[device] = true
	return nil
}

// places returns the places that the wanted cables have taken.
func (c Cables) places() cable.Places {
	p := cable.NewPlaces(drivers.All())
	for _, w := range c.Wanted {
		_ = p.Take(w) // connect has found that it is free
	}
	return p
}

// notNeeded is the reason why a pair has no cable while one of its gateways is not in service, and
// need not have one.
type notNeeded struct{ error }

// place takes the place of a cable. A driver that connects to a limited number of gateways of a
// cluster connects to the active one, and not to or from a standby, or to a gateway that has left
// its role to another one. The pair gets its cable when both gateways are active.
func (c *chooser) place(made cable.Cable) error {
	if made.Driver.Properties().MaxGateways > 0 && (made.Drain == cable.Standby || c.snapshot.Standing.Standby()) {
		return notNeeded{fmt.Errorf("%s connects to the active gateway of a cluster only", made.Driver.Name())}
	}
	err := c.places.Take(made)
	if err != nil && made.Drain != cable.InService {
		return notNeeded{err}
	}
	return err
}
