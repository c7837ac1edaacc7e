//go:build linux

package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"subctl/dataplane"
	"subctl/dataplane/kernel/conntrack"

	"golang.org/x/sys/unix"
)

// endTranslated deletes the conntrack entries of connections to ports that are not exported any
// more, of UDP connections to endpoints to which no Service leads any more, of connections from
// addresses that this gateway no longer gives, as their replies go elsewhere, and of connections
// between other clusters and pods that no longer have an address of their own, as nothing
// translates them. Where there was no table, it deletes those of pods with what is outside, which
// the kernel would never translate as long as they are in use. What a client still sends is then a
// new connection. Nothing else would end what is not TCP while the client sends, such as the pings
// of the gateways themselves; a TCP client hears from the other end at once, instead of waiting.
//
// TCP connections to an endpoint of a port that is still exported go on, as with kube-proxy: an
// endpoint that is not ready may still answer.
func (s rulesets) endTranslated(have, want dataplane.Ruleset) error {
	ports := gonePorts(have, want)
	endpoints := goneEndpoints(have, want)
	sources := goneSources(have, want)
	owners := goneOwners(have, want)
	if len(ports) == 0 && len(endpoints) == 0 && len(sources) == 0 && owners.none() {
		return nil
	}
	err := s.flows.EndMatching(func(original, reply dataplane.Flow) bool {
		return ports[port{original.Proto, original.Dst}] || endpoints.match(original, reply) ||
			sources[reply.Dst.Addr()] && reply.Dst.Addr() != original.Src.Addr() ||
			owners.match(original, reply)
	})
	if err != nil {
		return fmt.Errorf("deleting the conntrack entries of Services, endpoints and addresses that are gone: %w", err)
	}
	return nil
}

// withElementsOf returns a table that also has the elements of another one.
func withElementsOf(table, other dataplane.Ruleset) dataplane.Ruleset {
	table.Sets = slices.Clone(table.Sets)
	for i, s := range table.Sets {
		if o := other.Set(s.Name); o != nil {
			more := dataplane.WithoutElements(o.Elements, s.Elements)
			table.Sets[i].Elements = slices.Sorted(slices.Values(slices.Concat(s.Elements, more)))
		}
	}
	return table
}

// elementsIn returns the elements of a set of a table; none of another program's set.
func elementsIn(r dataplane.Ruleset, name string) []string {
	if s := r.Set(name); s != nil && s.Seen != dataplane.Foreign {
		return s.Elements
	}
	return nil
}

// goneElements returns the elements of a set in have and not in want, by their keys and values, and
// whether want has another element that begins with a text.
func goneElements(have, want dataplane.Ruleset, name string) (gone [][2]string, still func(string) []string) {
	now := elementsIn(want, name)
	for _, e := range dataplane.WithoutElements(elementsIn(have, name), now) {
		key, value, _ := strings.Cut(e, " : ")
		gone = append(gone, [2]string{key, value})
	}
	return gone, func(beginning string) []string {
		first, _ := slices.BinarySearch(now, beginning)
		end := first
		for end < len(now) && strings.HasPrefix(now[end], beginning) {
			end++
		}
		return now[first:end]
	}
}

// addrPortOf parses an address and a port in the notation of nft(8).
func addrPortOf(addr, at string) netip.AddrPort {
	ip, _ := netip.ParseAddr(addr) // they were printed
	n, _ := strconv.ParseUint(at, 10, 16)
	return netip.AddrPortFrom(ip, uint16(n))
}

// portOf parses the port of a Service at the beginning of a key.
func portOf(key string) port {
	parts := strings.Split(key, " . ")
	proto, _ := strconv.ParseUint(parts[1], 10, 8) // it was printed
	return port{conntrack.Protocol(uint8(proto)), addrPortOf(parts[0], parts[2])}
}

// port is a port of an exported Service.
type port struct {
	proto string
	at    netip.AddrPort
}

// gonePorts returns the exported ports of have that want does not have.
func gonePorts(have, want dataplane.Ruleset) map[port]bool {
	gone := map[port]bool{}
	elements, still := goneElements(have, want, dataplane.GlobalnetPorts)
	for _, e := range elements {
		if len(still(e[0]+" : ")) == 0 { // a port may have another number of slots now
			gone[portOf(e[0])] = true
		}
	}
	return gone
}

// goneEndpoints returns the endpoints of UDP Services of have to which want does not lead.
func goneEndpoints(have, want dataplane.Ruleset) datagramsTo {
	gone := datagramsTo{}
	elements, still := goneElements(have, want, dataplane.GlobalnetEndpoints)
	for _, e := range elements {
		at := e[0][:strings.LastIndex(e[0], " . ")] // without the slot
		if !strings.Contains(at, fmt.Sprintf(" . %d . ", unix.IPPROTO_UDP)) {
			continue
		}
		leads := func(other string) bool { return strings.HasSuffix(other, " : "+e[1]) }
		if !slices.ContainsFunc(still(at+" . "), leads) { // an endpoint may have lost some of its slots only
			addr, number, _ := strings.Cut(e[1], " . ")
			gone[service{portOf(at).at, addrPortOf(addr, number)}] = true
		}
	}
	return gone
}

// service is a port of an exported Service and one of its endpoints.
type service struct{ at, to netip.AddrPort }

// datagramsTo matches the conntrack entries of UDP connections to ports of Services that were
// translated to endpoints.
type datagramsTo map[service]bool

func (gone datagramsTo) match(original, reply dataplane.Flow) bool {
	return original.Proto == conntrack.Protocol(unix.IPPROTO_UDP) && gone[service{original.Dst, reply.Src}]
}

// formerOwners are pods that no longer have an address of their own.
type formerOwners struct {
	pods map[netip.Addr]bool
	all  bool           // all pods had none, as there was no table: it is about what they send
	nets []netip.Prefix // of this cluster's pods
}

func (f formerOwners) none() bool { return len(f.pods) == 0 && !f.all }

// goneOwners returns the pods with an address of their own in have, and with none in want.
func goneOwners(have, want dataplane.Ruleset) formerOwners {
	gone := formerOwners{pods: map[netip.Addr]bool{}, all: have.Table == "" && want.Table != "", nets: want.Pods}
	elements, still := goneElements(have, want, dataplane.GlobalnetOwners)
	for _, e := range elements {
		if len(still(e[0]+" : ")) == 0 { // a pod may have another address now
			gone.pods[addrPortOf(e[0], "").Addr()] = true
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
func goneSources(have, want dataplane.Ruleset) map[netip.Addr]bool {
	gone := map[netip.Addr]bool{}
	for _, name := range []string{dataplane.GlobalnetShared, dataplane.GlobalnetSelected} {
		elements, _ := goneElements(have, want, name)
		for _, e := range elements {
			gone[addrPortOf(e[1], "").Addr()] = true
		}
	}
	if len(gone) == 0 {
		return gone
	}
	for _, name := range []string{dataplane.GlobalnetShared, dataplane.GlobalnetSelected} {
		for _, e := range elementsIn(want, name) {
			_, value, _ := strings.Cut(e, " : ")
			delete(gone, addrPortOf(value, "").Addr())
		}
	}
	for _, e := range elementsIn(want, dataplane.GlobalnetAnswering) {
		key, _, _ := strings.Cut(e, " : ")
		delete(gone, addrPortOf(key, "").Addr())
	}
	return gone
}
