package globalnet

import (
	"hash/fnv"
	"net/netip"

	submarinerv1 "subctl/api/submariner/v1"
)

// This file decides which of several active gateways uses an address.

// returned adds as many of ips as there is room for to Returned, and returns these.
func (t *translated) returned(ips []netip.Addr) []netip.Addr {
	ips = ips[:min(len(ips), submarinerv1.MaxAllocatedIPs-len(t.out.Returned))]
	t.out.Returned = append(t.out.Returned, ips...)
	return ips
}

// mine returns the addresses of a GlobalEgressIP that this gateway uses: several active gateways
// share them, since replies must return through the gateway that has translated. Each address
// passes to another gateway only if its own one is gone, or if the shares would be unequal. A
// standby uses none.
func (t *translated) mine(ips []netip.Addr) (out []netip.Addr) {
	if t.Standby {
		return nil
	}
	if !t.Several {
		return ips
	}
	if len(t.Gateways) == 0 {
		return nil
	}
	for i, g := range assigned(t.Gateways, ips) {
		if g == t.Node {
			out = append(out, ips[i])
		}
	}
	return out
}

// assigned returns, for each address of a GlobalEgressIP, which of several gateways uses it. Each
// gateway uses an equal number, and some use one more: if there are at least as many addresses as
// gateways, each uses one.
func assigned(gateways []string, ips []netip.Addr) []string {
	out := make([]string, len(ips))
	equal := len(ips) / len(gateways)
	more := len(ips) % len(gateways)
	has := map[string]int{}
	for i, ip := range ips {
		best := ""
		highest := uint64(0)
		for _, g := range gateways {
			if h := affinity(g, ip); (has[g] < equal || has[g] == equal && more > 0) && (best == "" || h > highest) {
				best = g
				highest = h
			}
		}
		if has[best] == equal {
			more--
		}
		has[best]++
		out[i] = best
	}
	return out
}

// affinity returns how well an address goes with a gateway: the greatest number wins (rendezvous
// hashing).
func affinity(gateway string, ip netip.Addr) uint64 {
	h := fnv.New64a()
	b := ip.As4()
	h.Write(b[:]) // never fails
	h.Write([]byte(gateway))
	return h.Sum64()
}

// Crowded returns, for GlobalEgressIPs, how many of their addresses have no effect, as the gateway
// that has them uses others (submarinerv1.MaxAllocatedIPs). Gateways are the names of all active
// gateways, sorted, and shared are their ClusterGlobalEgressIPs.
func Crowded(
	gateways []string,
	egress []*submarinerv1.GlobalEgressIP,
	shared []*submarinerv1.ClusterGlobalEgressIP,
) map[*submarinerv1.GlobalEgressIP]int {
	out := map[*submarinerv1.GlobalEgressIP]int{}
	if len(gateways) == 0 {
		return out
	}
	room := map[string]int{}
	left := 0
	for _, g := range gateways {
		room[g] = submarinerv1.MaxAllocatedIPs
		for _, e := range shared {
			if e.Name == g+submarinerv1.GatewayEgressSuffix {
				room[g] = max(0, submarinerv1.MaxAllocatedIPs-len(e.Status.AllocatedIPs))
			}
		}
		left += room[g]
	}
	for _, e := range byAge(egress) {
		if left == 0 {
			out[e] = len(e.Status.AllocatedIPs)
			continue
		}
		var ips []netip.Addr
		for _, text := range e.Status.AllocatedIPs {
			if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() {
				ips = append(ips, ip)
			}
		}
		for _, g := range assigned(gateways, ips) {
			if room[g] == 0 {
				out[e]++
				continue
			}
			room[g]--
			left--
		}
	}
	return out
}
