//go:build linux

package kernel

import (
	"fmt"
	"net/netip"

	"subctl/dataplane"

	"golang.org/x/sys/unix"
)

// endFlows deletes the conntrack entries of UDP connections to endpoints to which no Service leads any more, and of connections from
// addresses that this gateway no longer gives: their replies go elsewhere. Nothing else would end what is not TCP while the client sends, such as
// the pings of the gateways themselves; a TCP client hears from the other end at once, instead of waiting.
func (s globalnets) endFlows(have, want dataplane.Globalnet) error {
	endpoints, sources := goneEndpoints(have, want), goneSources(have, want)
	if len(endpoints) == 0 && len(sources) == 0 {
		return nil
	}
	err := s.deleteFlows(func(original, reply dataplane.Flow) bool {
		return endpoints.match(original, reply) || sources[reply.Dst.Addr()] && reply.Dst.Addr() != original.Src.Addr()
	})
	if err != nil {
		return fmt.Errorf("deleting the conntrack entries of endpoints and addresses that are gone: %w", err)
	}
	return nil
}

// goneEndpoints returns the endpoints of UDP Services of have to which want does not lead.
func goneEndpoints(have, want dataplane.Globalnet) datagramsTo {
	gone := datagramsTo{}
	for _, b := range dataplane.Without(have.Backends, want.Backends) {
		if b.Proto == unix.IPPROTO_UDP {
			gone[service{netip.AddrPortFrom(b.Addr, b.Port), b.To}] = true
		}
	}
	if len(gone) > 0 {
		for _, b := range want.Backends { // an endpoint may have lost some of its slots only
			delete(gone, service{netip.AddrPortFrom(b.Addr, b.Port), b.To})
		}
	}
	return gone
}

// goneSources returns the addresses that have gives to connections, and want does not.
func goneSources(have, want dataplane.Globalnet) map[netip.Addr]bool {
	gone := map[netip.Addr]bool{}
	for _, s := range dataplane.Without(have.Shared, want.Shared) {
		gone[s.Global] = true
	}
	for _, s := range dataplane.Without(have.Sources, want.Sources) {
		gone[s.Global] = true
	}
	if len(gone) > 0 {
		for _, s := range want.Shared {
			delete(gone, s.Global)
		}
		for _, s := range want.Sources {
			delete(gone, s.Global)
		}
	}
	return gone
}
