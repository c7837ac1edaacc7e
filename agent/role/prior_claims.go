package role

import (
	"maps"
	"net/netip"
	"slices"

	"subctl/cable"
)

// PriorClaims are the networks and addresses of the gateways of other clusters that were accepted
// before, with the IDs of their clusters. They count until their clusters announce something else:
// see Membership.announces.
type PriorClaims struct {
	Gateways  []cable.Gateway
	Networks  map[netip.Prefix]string
	Sorted    []netip.Prefix // the keys of networks
	Addresses map[netip.Addr]string
}

// PriorClaimsOf returns what incumbents hold: see Memory.Incumbents.
func PriorClaimsOf(incumbents []cable.Gateway) *PriorClaims {
	h := &PriorClaims{
		Gateways:  incumbents,
		Networks:  make(map[netip.Prefix]string, 2*len(incumbents)),
		Addresses: make(map[netip.Addr]string, 2*len(incumbents)),
	}
	for i := range incumbents {
		g := &incumbents[i]
		for _, n := range g.Subnets {
			h.Networks[n] = g.Cluster
		}
		for _, ip := range []netip.Addr{g.PrivateIP, g.PublicIP} {
			if ip.IsValid() {
				h.Addresses[ip] = g.Cluster
			}
		}
	}
	h.Sorted = slices.SortedFunc(maps.Keys(h.Networks), netip.Prefix.Compare)
	return h
}

// PriorClaims returns what the incumbents hold: as the last plan found, if nothing has changed.
func (m *Memory) PriorClaims() *PriorClaims {
	if m.Claims != nil && SameClaims(m.Claims.Gateways, m.Incumbents) {
		return m.Claims
	}
	return PriorClaimsOf(m.Incumbents)
}

// SameClaims reports whether incumbents hold the same, in the same order.
func SameClaims(a, b []cable.Gateway) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x := &a[i]
		y := &b[i]
		if x.Cluster != y.Cluster || x.PrivateIP != y.PrivateIP || x.PublicIP != y.PublicIP ||
			!slices.Equal(x.Subnets, y.Subnets) {
			return false
		}
	}
	return true
}
