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
func Sees(sites []Site, pair policy.Pair) bool { return len(seen(sites, pair)) > 0 }

// OneEnd returns a note about a pair of which the sites are one cluster only; empty if they are
// both.
func OneEnd(sites []Site, pair policy.Pair) string {
	ids := seen(sites, pair)
	if len(ids) != 1 {
		return ""
	}
	other := pair.X.ID
	if ids[0] == other {
		other = pair.Y.ID
	}
	return fmt.Sprintf(
		"as cluster %s reports; not checked in cluster %s, of which the kubeconfig has no usable context", ids[0],
		other)
}

// seen returns the clusters of the pair that are among the sites.
func seen(sites []Site, pair policy.Pair) (ids []string) {
	for _, id := range []string{pair.X.ID, pair.Y.ID} {
		if slices.ContainsFunc(sites, func(s Site) bool { return s.Submariner != nil && s.Name == id }) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Unreached returns the reason why a pair does not use its cable, as
// far as the gateways of the sites report; empty if it does.
func Unreached(sites []Site, x catalog.Connection) string {
	for _, s := range sites {
		other := x.Pair.Y.ID
		if s.Name == other {
			other = x.Pair.X.ID
		} else if s.Name != x.Pair.X.ID {
			continue
		}
		if why := s.unreached(other, x.Cable); why != "" {
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
