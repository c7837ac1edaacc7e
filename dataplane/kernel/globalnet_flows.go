//go:build linux

package kernel

import (
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"

	"golang.org/x/sys/unix"
)

// endFlows deletes the conntrack entries of connections to ports that are not exported any more, of
// UDP connections to endpoints to which no Service leads any more, of connections from addresses
// that this gateway no longer gives, as their replies go elsewhere, and of connections between
// other clusters and pods that no longer have an address of their own, as nothing translates them.
// Where there was no table, it deletes those of pods with what is outside, which the kernel would
// never translate as long as they are in use. What a client still sends is then a new connection.
// Nothing else would end what is not TCP while the client sends, such as the pings of the gateways
// themselves; a TCP client hears from the other end at once, instead of waiting.
//
// TCP connections to an endpoint of a port that is still exported go on, as with kube-proxy: an
// endpoint that is not ready may still answer.
func (s globalnets) endFlows(have, want dataplane.Globalnet) error {
	ports := gonePorts(have, want)
	endpoints := goneEndpoints(have, want)
	sources := goneSources(have, want)
	owners := goneOwners(have, want)
	if len(ports) == 0 && len(endpoints) == 0 && len(sources) == 0 && owners.none() {
		return nil
	}
	err := s.endMatching(func(original, reply dataplane.Flow) bool {
		return ports[port{original.Proto, original.Dst}] || endpoints.match(original, reply) ||
			sources[reply.Dst.Addr()] && reply.Dst.Addr() != original.Src.Addr() ||
			owners.match(original, reply)
	})
	if err != nil {
		return fmt.Errorf("deleting the conntrack entries of Services, endpoints and addresses that are gone: %w", err)
	}
	return nil
}

// withFlowsOf returns a table with those elements of another one, too, whose connections endFlows
// ends.
func withFlowsOf(table, other dataplane.Globalnet) dataplane.Globalnet {
	table.Services, table.Backends = union(table.Services, other.Services), union(table.Backends, other.Backends)
	table.Shared, table.Sources, table.Own = union(table.Shared,
		other.Shared), union(table.Sources, other.Sources), union(table.Own, other.Own)
	return table
}

// union returns the items of two sorted lists, sorted.
func union[T interface{ Compare(T) int }](a, b []T) []T {
	out := append(slices.Clone(a), dataplane.Without(b, a)...)
	slices.SortFunc(out, T.Compare)
	return out
}

// port is a port of an exported Service.
type port struct {
	proto string
	at    netip.AddrPort
}

// gonePorts returns the exported ports of have that want does not have.
func gonePorts(have, want dataplane.Globalnet) map[port]bool {
	gone := map[port]bool{}
	for _, s := range dataplane.Without(have.Services, want.Services) {
		gone[port{protocol(s.Proto), netip.AddrPortFrom(s.Addr, s.Port)}] = true
	}
	if len(gone) > 0 {
		for _, s := range want.Services { // a port may have another number of slots now
			delete(gone, port{protocol(s.Proto), netip.AddrPortFrom(s.Addr, s.Port)})
		}
	}
	return gone
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

// formerOwners are pods that no longer have an address of their own.
type formerOwners struct {
	pods map[netip.Addr]bool
	all  bool           // all pods had none, as there was no table: it is about what they send
	nets []netip.Prefix // of this cluster's pods
}

func (f formerOwners) none() bool { return len(f.pods) == 0 && !f.all }

// goneOwners returns the pods with an address of their own in have, and with none in want.
func goneOwners(have, want dataplane.Globalnet) formerOwners {
	gone := formerOwners{pods: map[netip.Addr]bool{}, all: have.Table == "" && want.Table != "", nets: want.Pods}
	for _, o := range dataplane.Without(have.Own, want.Own) {
		gone.pods[o.Local] = true
	}
	if len(gone.pods) > 0 {
		for _, o := range want.Own { // a pod may have another address now
			delete(gone.pods, o.Local)
		}
	}
	return gone
}

// match reports whether a connection is between one of the pods and another cluster, as far as this
// is known: conntrack sees it without a translation.
func (f formerOwners) match(original, reply dataplane.Flow) bool {
	ours := func(a netip.Addr) bool {
		return slices.ContainsFunc(f.nets, func(n netip.Prefix) bool { return n.Contains(a) })
	}
	from := original.Src.Addr()
	to := original.Dst.Addr()
	if original.Src != reply.Dst || original.Dst != reply.Src {
		return false
	}
	return (f.pods[from] || f.all && ours(from)) && !ours(to) || f.pods[to] && !ours(from)
}

// goneSources returns the addresses that have gives to connections, and want neither gives nor has
// as addresses of the gateway: a gateway that was a standby keeps its connections.
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
		for _, e := range want.Echoes {
			delete(gone, e.Global)
		}
	}
	return gone
}
