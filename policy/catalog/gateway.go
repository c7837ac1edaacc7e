package catalog

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cable/keys"
	"subctl/cable/natdiscovery"
	"subctl/internal/prefix"
	"subctl/policy"
)

// gateway is a gateway, from its Endpoint.
type gateway struct {
	cable.Peer
	settings map[string]cable.Config // announced settings, by driver
}

// gatewaysOf returns the gateways among objects, by cluster.
func (c *Catalog) gatewaysOf(o Objects) map[string][]gateway {
	public := map[string]keys.PublicKey{}
	for i := range o.Clusters {
		if cluster := &o.Clusters[i]; c.Maker(cluster) == cluster.Spec.ClusterID {
			// drivers that need a key refuse the zero key
			public[cluster.Spec.ClusterID], _ = keys.ParsePublic(cluster.Spec.PublicKey)
		}
	}
	out := map[string][]gateway{}
	for i := range o.Endpoints {
		g, _ := cable.Parse(o.Endpoints[i].Spec) // the offered drivers are valid even if another field is not
		if g.Cluster == "" || c.Maker(&o.Endpoints[i]) != g.Cluster {
			continue
		}
		p := cable.Peer{Gateway: g, PublicKey: public[g.Cluster]}
		p.Address, p.NATed = natdiscovery.Unasked(g)
		out[g.Cluster] = append(out[g.Cluster], gateway{p, drivers.Announced(g)})
	}
	return out
}

// Addresses returns the addresses of the gateways of a cluster that other clusters must not
// announce.
func (c *Catalog) Addresses(id string) (out []netip.Prefix) {
	for _, g := range c.gateways[id] {
		if g.PrivateIP.IsValid() {
			out = append(out, prefix.Host(g.PrivateIP))
		}
	}
	return out
}

// Offers returns the drivers that all gateways of a cluster offer, and reports whether it
// has a gateway.
func (c *Catalog) Offers(id string) (names []string, hasGateway bool) {
	for i, g := range c.gateways[id] {
		if i == 0 {
			names = slices.Clone(g.Drivers)
		}
		names = slices.DeleteFunc(names, func(n string) bool { return !g.Offers(n) })
	}
	return names, len(c.gateways[id]) > 0
}

// Connectable reports whether both clusters of a pair have a gateway.
func (c *Catalog) Connectable(pair policy.Pair) bool {
	return len(c.gateways[pair.X.ID]) > 0 && len(c.gateways[pair.Y.ID]) > 0
}

// Lacks returns the error of a cluster that does not offer the driver on all of its gateways;
// nil if it does, or if its gateways are not known.
func (c *Catalog) Lacks(id, driver string) error {
	if lacks := c.joining[id]; lacks != nil {
		return lacks(driver)
	}
	for _, g := range c.gateways[id] {
		if !g.Offers(driver) {
			return g.NotOffered(driver)
		}
	}
	return nil
}

// Cable returns the driver of a pair after a decision, or the reason why there is no cable.
func (c *Catalog) Cable(pair policy.Pair, dec policy.Decision) (driver string, err error) {
	if dec.Err != nil {
		return "", dec.Err
	}
	var lacking []string
	for _, cluster := range []policy.Cluster{pair.X, pair.Y} {
		if err := c.Lacks(cluster.ID, dec.Driver); err != nil {
			lacking = append(lacking, err.Error())
		}
	}
	switch {
	case len(lacking) > 0:
		return "", errors.New(strings.Join(lacking, ", "))
	case dec.ConfigErr != nil:
		return "", fmt.Errorf("settings of cable policy %s: %w", dec.Policy, dec.ConfigErr)
	}
	if in, _ := c.standIn(pair, dec); in != "" {
		return in, nil
	}
	if err := c.refusal(pair, dec); err != nil {
		return "", err
	}
	return dec.Driver, nil
}

// standIn returns the driver that takes the place of the driver of a decision, and why: see
// cable.StandIn. It is empty if no two gateways of the pair have it, or if gateways are not known.
func (c *Catalog) standIn(pair policy.Pair, dec policy.Decision) (driver, why string) {
	d := drivers.Find(dec.Driver)
	if d == nil || dec.Err != nil || d.Properties().MaxGateways == 0 {
		return "", ""
	}
	for _, x := range c.gateways[pair.X.ID] {
		for _, y := range c.gateways[pair.Y.ID] {
			if x.Drain == cable.Standby || y.Drain == cable.Standby {
				continue // the active gateways tell what the clusters use
			}
			in, why := cable.StandIn(d, drivers.All(), x.Gateway, y.Gateway)
			if in != nil && x.Offers(in.Name()) && y.Offers(in.Name()) && x.refuses(in, y, dec.Config) == nil &&
				y.refuses(in, x, dec.Config) == nil {
				return in.Name(), why
			}
		}
	}
	return "", ""
}

// limited returns an error if a cluster of the pair has more active gateways than the driver of the
// decision connects to, and no other driver stands in.
func (c *Catalog) limited(pair policy.Pair, dec policy.Decision) error {
	d := drivers.Find(dec.Driver)
	if d == nil || d.Properties().MaxGateways == 0 {
		return nil
	}
	if in, _ := c.standIn(pair, dec); in != "" {
		return nil
	}
	var several []string
	for _, cluster := range []policy.Cluster{pair.X, pair.Y} {
		active := 0
		for _, g := range c.gateways[cluster.ID] {
			if g.Drain != cable.Standby && g.Drain != cable.Drained {
				active++
			}
		}
		if active > d.Properties().MaxGateways {
			several = append(several, fmt.Sprintf("cluster %s has %d active gateways", cluster.ID, active))
		}
	}
	if several == nil {
		return nil
	}
	return fmt.Errorf(
		"%s, and %s connects to %s of a cluster: pods on the nodes of the other gateways lose this connection",
		strings.Join(several, ", "), dec.Driver, cable.Limit(d))
}

// refusal returns the reason why the driver of a decision cannot connect any two gateways
// of the pair; nil if it can, or if gateways are not known.
func (c *Catalog) refusal(pair policy.Pair, dec policy.Decision) error {
	d := drivers.Find(dec.Driver)
	var first error
	for _, x := range c.gateways[pair.X.ID] {
		for _, y := range c.gateways[pair.Y.ID] {
			err := x.refuses(d, y, dec.Config)
			if err == nil {
				err = y.refuses(d, x, dec.Config)
			}
			if err == nil {
				return nil
			}
			if first == nil {
				first = err
			}
		}
	}
	return first
}

// refuses returns the reason why driver d does not connect the gateway to another, with
// the settings of a policy; nil if it does.
func (g gateway) refuses(d cable.Driver, other gateway, shared cable.Config) error {
	p := other.Peer
	p.Shared = shared
	p.Config = g.settings[d.Name()].With(shared)
	if err := d.Refuses(cable.Local{Gateway: g.Gateway, Settings: g.settings}, p); err != nil {
		return fmt.Errorf("cluster %s refuses: %w", g.Cluster, err)
	}
	return nil
}
