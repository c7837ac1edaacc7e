package dns

import (
	"net/netip"
	"slices"
	"strings"
)

// service is everything that is known of one Service. It is never changed, only replaced.
type service struct {
	name   string    // web.shop.svc.clusterset.local.
	spec   *imported // nil if there are slices, but no import
	slices []*slice  // by name
	// addresses are those that the name stands for.
	addresses []netip.Addr
	// members are the ready endpoints of a headless Service.
	members []member
}

// imported is a ServiceImport.
type imported struct {
	headless, direct, spread bool
	ips                      []netip.Addr
	ports                    []port
}

type port struct {
	name, protocol string
	number         uint16
}

// slice is an EndpointSlice.
type slice struct {
	name, cluster string
	// address is the exporter's address of the Service; the zero Addr if it is not known.
	address   netip.Addr
	ports     []port
	endpoints []endpoint
}

type endpoint struct {
	address  netip.Addr
	hostname string // empty: the name is the address with dashes
	ready    bool
}

// member is an endpoint of a slice.
type member struct {
	*endpoint
	of *slice
}

// maxAddresses is the number of A records in the largest response: each has 16 octets, since its
// name is a reference to the question.
const maxAddresses = 1 << 16 / 16

// find returns where a slice is, or belongs.
func (s *service) find(name string) (int, bool) {
	return slices.BinarySearchFunc(s.slices, name, func(a *slice, b string) int { return strings.Compare(a.name, b) })
}

// derive computes what the name stands for.
func (s *service) derive(clusterID string) {
	switch {
	case s.spec == nil:
	case s.spec.headless:
		s.members = s.endpoints(func(m member) bool { return m.ready })
		s.addresses = addressesOf(s.members)
	case s.spec.direct || len(s.spec.ips) == 0:
		s.addresses = s.exporters(clusterID)
	default:
		s.addresses = s.spec.ips
	}
}

// exporters returns the addresses of those exporters that are ready: of the own cluster alone if it
// is, since clients and caches reorder addresses. Clients connect to a port of the Service, so
// endpoints with other ports do not count: the exporter's address of the Service stands for them if
// the slice has it, or else that of the import.
func (s *service) exporters(clusterID string) []netip.Addr {
	ready := s.endpoints(func(m member) bool { return m.ready })
	own := ready
	if !s.spec.spread {
		own = s.endpoints(func(m member) bool { return m.ready && m.of.cluster == clusterID })
	}
	for _, members := range [][]member{own, ready} {
		var found []netip.Addr
		for _, m := range members {
			switch {
			case m.of.address.IsValid():
				found = append(found, m.of.address)
			case s.spec.hasAll(m.of.ports):
				found = append(found, m.address)
			}
		}
		if len(found) > 0 {
			return distinct(found)
		}
		if len(members) > 0 && len(s.spec.ips) > 0 {
			break
		}
	}
	return s.spec.ips
}

// hasAll reports whether the import has all of some ports, with the same numbers.
func (i *imported) hasAll(ports []port) bool {
	return !slices.ContainsFunc(ports, func(p port) bool { return !slices.Contains(i.ports, p) })
}

// ofCluster returns the addresses of a cluster: its address of the Service if a slice has it, or
// else those of endpoints, ready ones if there are any.
func (s *service) ofCluster(cluster string) []netip.Addr {
	found := s.endpoints(func(m member) bool { return m.ready && m.of.cluster == cluster })
	if len(found) == 0 {
		found = s.endpoints(func(m member) bool { return m.of.cluster == cluster })
	}
	if len(found) > 0 && found[0].of.address.IsValid() {
		return []netip.Addr{found[0].of.address}
	}
	return addressesOf(found)
}

// endpoints returns the endpoints that are selected, as many as a response can have.
func (s *service) endpoints(selected func(member) bool) (out []member) {
	for _, of := range s.slices {
		for i := range of.endpoints {
			if m := (member{&of.endpoints[i], of}); selected(m) {
				if len(out) == maxAddresses {
					return out
				}
				out = append(out, m)
			}
		}
	}
	return out
}

// addressesOf returns the addresses of endpoints, each once: a pod is in a slice for each group of
// ports.
func addressesOf(members []member) []netip.Addr {
	if len(members) == 0 {
		return nil
	}
	out := make([]netip.Addr, len(members))
	for i, m := range members {
		out[i] = m.address
	}
	return distinct(out)
}

// distinct returns addresses sorted, each once.
func distinct(all []netip.Addr) []netip.Addr {
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Clip(slices.Compact(all))
}
