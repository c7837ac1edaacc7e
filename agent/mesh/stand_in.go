package mesh

import (
	"fmt"

	"subctl/cable"
	"subctl/cable/drivers"
)

// This file is about drivers that connect to a limited number of gateways of a cluster: see
// cable.StandIn. Both ends decide by what the two gateways of a pair announce, so they choose the
// same driver once each has the other's Endpoint. Until then the pair keeps its cable: a new one
// carries nothing before it has answered.

// standIn returns the driver of the cable to a peer, given the driver that policy decides on and
// both ends offer: that driver, or the one that stands in for it. The other one does so only if
// both ends offer it and it can connect the two.
func (c *chooser) standIn(p *cable.Peer, d cable.Driver) cable.Driver {
	in, why := cable.StandIn(d, drivers.All(), c.offer.Local.Gateway, p.Gateway)
	if in == nil {
		return d
	}
	err := c.checkOffered(in, p)
	if err == nil {
		err = in.Refuses(c.offer.Local, *p)
	}
	if err != nil {
		c.alone[p.Name] = err
		return d
	}
	c.out.StandInReasons[p.Name] = why
	return in
}

// checkOffered returns the reason why one of the two ends does not offer a driver; nil if both do.
func (c *chooser) checkOffered(d cable.Driver, p *cable.Peer) error {
	switch {
	case !c.offer.offers(d.Name()):
		return fmt.Errorf("cluster %s does not offer %s%s", c.own.ID, d.Name(), c.offer.whyNot(d))
	case !p.Offers(d.Name()):
		return p.NotOffered(d.Name())
	}
	return nil
}
