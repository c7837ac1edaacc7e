package globalnet

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// egress adds the sources of what leaves: of the pods that a GlobalEgressIP selects, and of all others.
func (t *translator) egress() {
	name := submarinerv1.ClusterEgress
	if t.Several {
		name = t.Node + submarinerv1.GatewayEgressSuffix
	}
	for _, e := range t.ClusterEgress {
		if e.Name != name {
			continue
		}
		shared := t.addresses(clusterEgressOwner(e), e.Status.AllocatedIPs...)
		if len(shared) == 0 {
			break
		}
		shared = t.returned(shared)
		for slot := range uint8(dataplane.GlobalShares) {
			t.out.Table.Shared = append(t.out.Table.Shared, dataplane.GlobalShare{Slot: slot, Global: shared[int(slot)%len(shared)]})
		}
		if t.PodIP.IsValid() {
			t.out.Health = shared[0]
			t.out.Table.Echoes = []dataplane.GlobalAddr{{Global: shared[0], Local: t.PodIP}}
		}
	}
	t.pools()
}

// selecting is a GlobalEgressIP, with the addresses that this gateway uses of it.
type selecting struct {
	*submarinerv1.GlobalEgressIP
	selector labels.Selector // nil for all pods of the namespace
	sources  []netip.Addr
}

// pools adds the pods that GlobalEgressIPs select. A selector of pods counts before a whole namespace, and then the older one (as upstream).
// Where a gateway has no room for the addresses of all, the oldest have it, so that nobody takes it from others.
func (t *translator) pools() {
	byNamespace := map[string][]selecting{}
	oldest := slices.SortedFunc(slices.Values(t.Egress), func(a, b *submarinerv1.GlobalEgressIP) int {
		return egressOwner(a).compare(egressOwner(b))
	})
	for _, e := range oldest {
		s := selecting{GlobalEgressIP: e}
		if e.Spec.PodSelector != nil {
			var err error
			if s.selector, err = metav1.LabelSelectorAsSelector(e.Spec.PodSelector); err != nil {
				continue // its condition says so
			}
		}
		s.sources = t.returned(t.mine(t.addresses(egressOwner(e), e.Status.AllocatedIPs...)))
		if len(s.sources) > 0 {
			byNamespace[e.Namespace] = append(byNamespace[e.Namespace], s)
		}
	}
	if len(byNamespace) == 0 {
		return
	}
	for _, all := range byNamespace {
		slices.SortStableFunc(all, func(a, b selecting) int {
			return cmp.Or(rank(a)-rank(b), cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix()), cmp.Compare(a.Name, b.Name))
		})
	}
	done := map[netip.Addr]bool{}
	for _, p := range t.Objects.Pods {
		ip := podIP(p)
		if !ip.IsValid() || done[ip] {
			continue
		}
		for _, s := range byNamespace[p.Namespace] {
			if s.selects(p) {
				done[ip] = true
				t.pool(ip, s.sources)
				break
			}
		}
	}
}

// rank orders GlobalEgressIPs by precedence.
func rank(s selecting) int {
	if s.selector != nil {
		return 0
	}
	return 1
}

func (s selecting) selects(p *corev1.Pod) bool {
	return s.selector == nil || s.selector.Matches(labels.Set(p.Labels))
}

// pool adds a pod with sources.
func (t *translator) pool(pod netip.Addr, sources []netip.Addr) {
	sources = sources[:min(len(sources), dataplane.MaxGlobalPool)]
	t.out.Table.Pools = append(t.out.Table.Pools, dataplane.GlobalPool{Pod: pod, Count: uint8(len(sources))})
	for slot, ip := range sources {
		t.out.Table.Sources = append(t.out.Table.Sources, dataplane.GlobalSource{Pod: pod, Slot: uint8(slot), Global: ip})
	}
}

// returned adds addresses to those of this gateway, as far as there is room, and returns them. With one active gateway
// there is nothing to add: all packets return through it.
func (t *translator) returned(ips []netip.Addr) []netip.Addr {
	if !t.Several {
		return ips
	}
	ips = ips[:min(len(ips), MaxReturned-len(t.out.Returned))]
	t.out.Returned = append(t.out.Returned, ips...)
	return ips
}

// mine returns the addresses of a GlobalEgressIP that this gateway uses: several active gateways share them, since replies must
// return through the gateway that has translated. Each address passes to another gateway only if its own one is gone, or if
// the shares would be unequal.
func (t *translator) mine(ips []netip.Addr) (out []netip.Addr) {
	if !t.Several {
		return ips
	}
	if len(t.Gateways) == 0 {
		return nil
	}
	most := (len(ips) + len(t.Gateways) - 1) / len(t.Gateways)
	has := map[string]int{}
	for _, ip := range ips {
		best, highest := "", uint64(0)
		for _, g := range t.Gateways {
			if h := affinity(g, ip); has[g] < most && (best == "" || h > highest) {
				best, highest = g, h
			}
		}
		if has[best]++; best == t.Node {
			out = append(out, ip)
		}
	}
	return out
}

// affinity returns how well an address goes with a gateway: the greatest number wins (rendezvous hashing).
func affinity(gateway string, ip netip.Addr) uint64 {
	h := fnv.New64a()
	b := ip.As4()
	h.Write(b[:]) // never fails
	h.Write([]byte(gateway))
	return h.Sum64()
}
