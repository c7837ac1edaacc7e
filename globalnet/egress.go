package globalnet

import (
	"net/netip"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"

	submarinerv1 "subctl/api/submariner/v1"
)

// egress looks again at the sources of what leaves: of the pods that a GlobalEgressIP selects, and
// of all others.
func (t *translated) egress(c changes) {
	again := c.pods
	if c.egress {
		t.shares()
		if changed := t.choose(); len(changed) > 0 {
			for at := range t.pods {
				if changed[at.namespace] {
					again[at] = true
				}
			}
		}
	}
	if len(t.selectors) > 0 || len(t.selected) > 0 {
		t.sources(again)
	}
}

// shares determines the addresses of all pods that no GlobalEgressIP selects. A gateway has a
// ClusterGlobalEgressIP of its own if the cluster has several gateway nodes, and answers pings at
// its addresses. If only one gateway is to be active, new connections through that one have the
// addresses that all gateways share; those through the own addresses go on when a standby becomes
// the active gateway.
func (t *translated) shares() {
	g := &t.out.Elements
	g.SharedAddresses = nil
	g.Answering = nil
	t.out.Health = netip.Addr{}
	t.out.Returned = nil
	own := t.returned(t.clusterEgress(t.Node + submarinerv1.GatewayEgressSuffix))
	shared := own
	if !t.Several && (!t.Standby || len(own) == 0) {
		shared = t.clusterEgress(submarinerv1.ClusterEgress)
	}
	if len(shared) == 0 {
		shared = own
	}
	if len(shared) == 0 {
		return
	}
	for slot := range shares {
		g.SharedAddresses = append(g.SharedAddresses,
			strconv.Itoa(slot)+" : "+shared[slot%len(shared)].String())
	}
	slices.Sort(g.SharedAddresses)
	if !t.PodIP.IsValid() {
		return
	}
	if len(own) == 0 {
		own = shared[:1]
	}
	t.out.Health = own[0]
	for _, ip := range own {
		g.Answering = append(g.Answering, ip.String()+" : "+t.PodIP.String())
	}
	slices.Sort(g.Answering)
}

// clusterEgress returns the addresses of the ClusterGlobalEgressIP with a name.
func (t *translated) clusterEgress(name string) []netip.Addr {
	for _, e := range t.ClusterEgress {
		if e.Name == name {
			return t.addresses(clusterEgressOwner(e), e.Status.AllocatedIPs...)
		}
	}
	return nil
}

// selecting is a GlobalEgressIP, with the addresses that this gateway uses of it.
type selecting struct {
	*submarinerv1.GlobalEgressIP
	selector labels.Selector // nil for all pods of the namespace
	sources  []netip.Addr
}

// choose determines which GlobalEgressIPs select pods, in the order in which they count. Where a
// gateway has no room for the addresses of all, the oldest have it, so that nobody takes it from
// others. It returns the namespaces for which something has changed: only their pods are compared
// again, so that whoever changes GlobalEgressIPs all the time costs what the pods of his namespace
// do.
func (t *translated) choose() (changed map[string]bool) {
	before := t.selectors
	known := map[*submarinerv1.GlobalEgressIP]selecting{}
	for _, all := range before {
		for _, s := range all {
			known[s.GlobalEgressIP] = s
		}
	}
	t.selectors = map[string][]selecting{}
	for _, e := range byAge(t.Egress) {
		ips := t.mine(t.addresses(egressOwner(e), e.Status.AllocatedIPs...))
		if len(ips) == 0 || len(t.selectors[e.Namespace]) == MaxOfNamespace {
			continue
		}
		s, is := known[e]
		if !is {
			var err error
			if s, err = selectorOf(e); err != nil {
				continue // the condition Allocated reports the mistake
			}
		}
		if s.sources = ips; t.Several {
			s.sources = t.returned(ips)
		}
		if len(s.sources) > 0 {
			t.selectors[e.Namespace] = append(t.selectors[e.Namespace], s)
		}
	}
	changed = map[string]bool{}
	for namespace, all := range t.selectors {
		slices.SortStableFunc(all, selecting.compare)
		if !slices.EqualFunc(all, before[namespace], selecting.same) {
			changed[namespace] = true
		}
	}
	for namespace := range before {
		if t.selectors[namespace] == nil {
			changed[namespace] = true
		}
	}
	return changed
}

// byAge returns GlobalEgressIPs, the oldest first.
func byAge(egress []*submarinerv1.GlobalEgressIP) []*submarinerv1.GlobalEgressIP {
	return slices.SortedFunc(slices.Values(egress), func(a, b *submarinerv1.GlobalEgressIP) int {
		return egressOwner(a).compare(egressOwner(b))
	})
}

// MaxOfNamespace is the maximum number of GlobalEgressIPs of a namespace that get addresses: each
// is compared with each pod of the namespace.
const MaxOfNamespace = 100

// Surplus returns the GlobalEgressIPs that get no addresses, because their namespace has
// MaxOfNamespace older ones.
func Surplus(egress []*submarinerv1.GlobalEgressIP) map[*submarinerv1.GlobalEgressIP]bool {
	out := map[*submarinerv1.GlobalEgressIP]bool{}
	of := map[string]int{}
	for _, e := range byAge(egress) {
		if of[e.Namespace]++; of[e.Namespace] > MaxOfNamespace {
			out[e] = true
		}
	}
	return out
}

// selected is a pod that a GlobalEgressIP selects.
type selected struct {
	ip      netip.Addr
	sources []netip.Addr
}

// sources looks again at some pods.
func (t *translated) sources(again map[ref]bool) {
	touched := map[netip.Addr]bool{}
	for at := range again {
		if was, is := t.selected[at]; is {
			t.ofSource.remove(was.ip, at)
			delete(t.selected, at)
			touched[was.ip] = true
		}
		p := t.pods[at]
		ip := PodIP(p)
		if !ip.IsValid() {
			continue
		}
		for _, s := range t.selectors[p.Namespace] {
			if s.selects(labels.Set(p.Labels)) {
				t.ofSource.add(ip, at)
				t.selected[at] = selected{ip, s.sources}
				touched[ip] = true
				break
			}
		}
	}
	if len(touched) == 0 {
		return
	}
	g := &t.out.Elements
	var gone, goneAddresses, pods, addresses []string
	for ip := range touched {
		gone = append(gone, having(g.Selected, ip.String()+" : ")...)
		goneAddresses = append(goneAddresses, having(g.SelectedAddresses, ip.String()+" . ")...)
		var first ref // of pods that report the same address
		found := false
		for at := range t.ofSource.all(ip) {
			if !found || at.compare(first) < 0 {
				first = at
				found = true
			}
		}
		if !found {
			continue
		}
		sources := t.selected[first].sources
		sources = sources[:min(len(sources), maxPool)]
		pods = append(pods, ip.String()+" : goto "+poolChain(len(sources)))
		for slot, global := range sources {
			addresses = append(addresses, ip.String()+" . "+strconv.Itoa(slot)+" : "+global.String())
		}
	}
	g.Selected = patch(g.Selected, gone, pods)
	g.SelectedAddresses = patch(g.SelectedAddresses, goneAddresses, addresses)
}
