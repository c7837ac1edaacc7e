package look

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/printer"
	"subctl/policy"
	"subctl/policy/catalog"
)

// Sees reports whether one of the sites is a cluster of the pair.
func Sees(sites []Site, pair policy.Pair) bool {
	return slices.ContainsFunc(sites, func(s Site) bool { return s.Submariner != nil && (s.Name == pair.X.ID || s.Name == pair.Y.ID) })
}

// Unreached returns the reason why a pair does not use the cable that a change specifies, as
// far as the gateways of the sites report; empty if it does.
func Unreached(sites []Site, x catalog.CableChange) string {
	for _, s := range sites {
		other := x.Pair.Y.ID
		if s.Name == other {
			other = x.Pair.X.ID
		} else if s.Name != x.Pair.X.ID {
			continue
		}
		if why := s.unreached(other, x.Then); why != "" {
			return printer.Clean(fmt.Sprintf("cluster %s: %s", s.Name, why))
		}
	}
	return ""
}

// unreached returns the reason why the site does not use a cable to another cluster; empty if
// it does.
func (s Site) unreached(other string, want catalog.Cable) string {
	active := false
	for _, gw := range s.Gateways {
		if gw.Status.HAStatus != submarinerv1.HAStatusActive {
			continue
		}
		active = true
		if why := Stale(gw, s.Now); why != "" {
			return fmt.Sprintf("gateway %s: %s", gw.Name, why)
		}
		if why := unreachedBy(gw, other, want); why != "" {
			return fmt.Sprintf("gateway %s: %s", gw.Name, why)
		}
	}
	if !active {
		return "no gateway is active"
	}
	return ""
}

func unreachedBy(gw submarinerv1.Gateway, other string, want catalog.Cable) string {
	found := false
	for _, c := range gw.Status.Connections {
		if c.Endpoint.ClusterID != other {
			continue
		}
		found = true
		connected := c.Status == submarinerv1.Connected
		switch {
		case want.Err != nil && connected:
			return fmt.Sprintf("still connected by %s", CableDriver(c))
		case want.Err != nil:
			continue
		case CableDriver(c) != want.Driver || c.Policy != want.Policy || !maps.Equal(c.PolicySettings, want.Settings):
			return cmp.Or(c.StatusMessage, fmt.Sprintf("uses %s (%s)", CableDriver(c), Decider(c.Policy)))
		case !connected:
			return fmt.Sprintf("%s: %s", c.Status, c.StatusMessage)
		}
	}
	if !found && want.Err == nil {
		return "no connection to cluster " + other
	}
	return ""
}

// CableDriver returns the driver of a connection: the driver in use or, if there is no cable,
// the driver that should be in use; empty if that is not decided yet. The agents of upstream
// report only the driver of the endpoint. A refused connection has no address.
func CableDriver(c submarinerv1.Connection) string {
	if c.Status == submarinerv1.ConnectionError && c.UsingIP == "" {
		return c.Driver
	}
	return cmp.Or(c.Driver, c.Endpoint.Backend)
}
