package globalnet

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// protocols are the numbers of the protocols of Services.
var protocols = map[corev1.Protocol]uint8{corev1.ProtocolTCP: 6, corev1.ProtocolUDP: 17, corev1.ProtocolSCTP: 132}

// export holds the elements that an exported Service adds to the maps. No other Service has its
// address.
type export struct {
	addr      netip.Addr
	ports     []string // of Elements.Ports
	endpoints []string // of Elements.Endpoints
	replies   []reply  // one of each endpoint
}

// reply is what an endpoint sends, and the address and the port of the Service in Elements.Exports.
type reply struct {
	replier
	as string
}

// export returns what the ports of an exported Service add; nil for nothing. All gateways of a
// cluster compute the same from the same objects.
func (t *translated) export(at netip.Addr, s *corev1.Service, endpoints []*discoveryv1.EndpointSlice) *export {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	x := &export{addr: at}
	replies := map[replier]bool{}
	for _, port := range s.Spec.Ports {
		proto, known := protocols[port.Protocol]
		if port.Protocol == "" {
			proto = protocols[corev1.ProtocolTCP]
			known = true
		}
		backends := t.readyEndpoints(s.Namespace, port, endpoints)
		if !known || port.Port < 1 || port.Port > 65535 {
			continue
		}
		exported := portOf(at, proto, uint16(port.Port))
		if len(backends) == 0 { // connections to endpoints that are not ready any more go on
			x.ports = append(x.ports, exported+" : goto "+slotsChain(0, false))
			continue
		}
		slots := slotsOf(len(backends))
		client := s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
		x.ports = append(x.ports, exported+" : goto "+slotsChain(slots, client))
		for slot, to := range spread(backends, slots) {
			x.endpoints = append(x.endpoints, exported+" . "+strconv.Itoa(slot)+" : "+addrPort(t.local(to)))
		}
		for _, b := range backends {
			from := replier{t.local(b), proto}
			if !replies[from] { // an endpoint may be behind several ports
				replies[from] = true
				x.replies = append(x.replies, reply{from, addrPort(netip.AddrPortFrom(at, uint16(port.Port)))})
			}
		}
	}
	if len(x.ports) == 0 {
		return nil
	}
	return x
}

// local returns the address at which an endpoint is reached from a cable: for a process of the
// gateway's own node, the node's address in the pod network.
func (t *translated) local(to netip.AddrPort) netip.AddrPort {
	if to.Addr() == t.NodeIP && t.PodIP.IsValid() {
		return netip.AddrPortFrom(t.PodIP, to.Port())
	}
	return to
}

// readyEndpoints returns the endpoints of a port of a Service, sorted: those that are ready or, if
// there are none, those that still serve while they terminate, like kube-proxy.
func (t *translated) readyEndpoints(
	namespace string,
	port corev1.ServicePort,
	endpoints []*discoveryv1.EndpointSlice,
) []netip.AddrPort {
	var ready, serving []netip.AddrPort
	for _, s := range endpoints {
		number, ok := numberOf(port, s.Ports)
		if !ok {
			continue
		}
		for _, e := range s.Endpoints {
			is := e.Conditions.Ready == nil || *e.Conditions.Ready
			still := e.Conditions.Serving != nil && *e.Conditions.Serving
			if !is && !still {
				continue
			}
			for _, text := range e.Addresses[:min(1, len(e.Addresses))] { // all mean the same
				ip, err := netip.ParseAddr(text)
				if err != nil || !ip.Is4() || t.endpoints.Refuse(namespace, ip) != nil {
					continue
				}
				if to := netip.AddrPortFrom(ip, number); is {
					ready = append(ready, to)
				} else {
					serving = append(serving, to)
				}
			}
		}
	}
	if len(ready) == 0 {
		ready = serving
	}
	slices.SortFunc(ready, netip.AddrPort.Compare)
	return slices.Compact(ready)
}

// numberOf returns the port of the endpoints in a slice that a port of a Service leads to.
func numberOf(port corev1.ServicePort, ports []discoveryv1.EndpointPort) (uint16, bool) {
	for _, p := range ports {
		name := ""
		protocol := corev1.ProtocolTCP
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		wanted := port.Protocol
		if wanted == "" {
			wanted = corev1.ProtocolTCP
		}
		if name == port.Name && protocol == wanted && p.Port != nil && *p.Port > 0 && *p.Port <= 65535 {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}

// spread assigns slots to endpoints: to each the same number, except for one. If endpoints come or
// go, few other slots pass to another endpoint (Maglev: Eisenbud et al., NSDI 2016, section 3.4).
// The number of slots is 1 or a power of two.
func spread(endpoints []netip.AddrPort, slots int) []netip.AddrPort {
	if len(endpoints) > slots {
		endpoints = endpoints[:slots]
	}
	out := make([]netip.AddrPort, slots)
	taken := make([]bool, slots)
	next := make([]int, len(endpoints))
	step := make([]int, len(endpoints))
	for i, e := range endpoints {
		h := fnv.New64a()
		b, _ := e.MarshalBinary() // never fails
		h.Write(b)                // never fails
		sum := h.Sum64()
		sum ^= sum >> 29
		// mixes the bits (splitmix64): those of FNV depend on the end of its input only weakly
		sum *= 0xbf58476d1ce4e5b9
		sum ^= sum >> 32
		next[i] = int(sum % uint64(slots))
		step[i] = int(sum>>33) | 1 // odd, so that all slots are visited
	}
	for left := slots; left > 0; {
		for i, e := range endpoints {
			for taken[next[i]] {
				next[i] = (next[i] + step[i]) % slots
			}
			taken[next[i]] = true
			out[next[i]] = e
			if left--; left == 0 {
				break
			}
		}
	}
	return out
}
