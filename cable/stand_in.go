package cable

import (
	"fmt"
	"slices"
	"strings"
)

// StandIn returns the driver that connects two gateways in place of d, and why: d has MaxGateways,
// and one of the two clusters has several active gateways, or one of the two gateways is a standby.
// The driver is the known one that contains d and has no limit; it encrypts if d does. StandIn
// returns nil if d connects the two itself, or if there is no such driver.
//
// Both ends come to the same result, because they compare what both gateways announce. Where one of
// them does not announce it, its version does not know StandIn.
func StandIn(d Driver, known []Driver, x, y Gateway) (in Driver, why string) {
	several := namesOfSeveral(x, y)
	if several == "" || !x.TellsSiblings || !y.TellsSiblings || d.Properties().MaxGateways == 0 {
		return nil, ""
	}
	in = unlimitedCombination(d, known)
	if in == nil {
		return nil, ""
	}
	return in, fmt.Sprintf("%s connects to %s of a cluster, and %s several: %s is in its place", d.Name(), Limit(d),
		several, in.Name())
}

// namesOfSeveral names those of the clusters of two gateways that have several, with the verb;
// empty if neither has.
func namesOfSeveral(x, y Gateway) string {
	ofSeveral := func(g Gateway) bool { return g.Siblings || g.Drain == Standby }
	switch {
	case ofSeveral(x) && ofSeveral(y):
		return fmt.Sprintf("clusters %s and %s have", min(x.Cluster, y.Cluster), max(x.Cluster, y.Cluster))
	case ofSeveral(x):
		return fmt.Sprintf("cluster %s has", x.Cluster)
	case ofSeveral(y):
		return fmt.Sprintf("cluster %s has", y.Cluster)
	}
	return ""
}

// unlimitedCombination returns the known driver that combines d with another one and has no
// MaxGateways; nil if there is none.
func unlimitedCombination(d Driver, known []Driver) Driver {
	for _, other := range known {
		if p := other.Properties(); p.MaxGateways == 0 && slices.Contains(p.Parts, d.Name()) &&
			(p.Encrypts || !d.Properties().Encrypts) {
			return other
		}
	}
	return nil
}

// Limit formats the MaxGateways of a driver, which is not 0: "one gateway".
func Limit(d Driver) string {
	if most := d.Properties().MaxGateways; most > 1 {
		return fmt.Sprintf("%d gateways", most)
	}
	return "one gateway"
}

// limitError returns the error for a driver that has reached MaxGateways. It suggests the
// combined driver without a limit, if there is one.
func (p Places) limitError(d Driver, cluster string, gateways []string) error {
	remedy := ""
	if other := unlimitedCombination(d, p.drivers); other != nil {
		remedy = ": use " + other.Name() + ", which connects to all of them"
	}
	return fmt.Errorf("%s connects to %s of cluster %s (%.80s)%s", d.Name(), Limit(d), cluster,
		strings.Join(gateways, ", "), remedy)
}

// Places are the cables of drivers that connect to a limited number of gateways of a cluster
// (MaxGateways). The first gateways have the places.
type Places struct {
	drivers []Driver
	cables  map[cablesTo][]string // cable names
}

// cablesTo identifies the cables of one driver to one cluster.
type cablesTo struct{ driver, cluster string }

// NewPlaces returns Places that are all free. drivers are all drivers that gateways may use.
func NewPlaces(drivers []Driver) Places {
	return Places{drivers: drivers, cables: map[cablesTo][]string{}}
}

// Take takes the place of a cable to a peer. It returns an error if the driver already has cables
// to MaxGateways other gateways of the peer's cluster.
func (p Places) Take(to Cable) error {
	most := to.Driver.Properties().MaxGateways
	if most == 0 {
		return nil
	}
	cables := cablesTo{to.Driver.Name(), to.Cluster}
	switch names := p.cables[cables]; {
	case slices.Contains(names, to.Name):
		return nil
	case len(names) >= most:
		return p.limitError(to.Driver, to.Cluster, names)
	}
	p.cables[cables] = append(p.cables[cables], to.Name)
	return nil
}
