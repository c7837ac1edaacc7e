package look

import (
	"fmt"
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
	for _, gw := range s.Current() {
		if gw.Status.HAStatus != submarinerv1.HAStatusActive {
			continue
		}
		active = true
		if why := Stale(gw, s.Now); why != "" {
			return fmt.Sprintf("gateway %s: %s", gw.Name, why)
		}
		if why := catalog.Unreached(gw, other, want); why != "" {
			return fmt.Sprintf("gateway %s: %s", gw.Name, why)
		}
	}
	if !active {
		return "no gateway is active"
	}
	return ""
}
