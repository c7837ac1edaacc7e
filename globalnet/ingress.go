package globalnet

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// entry is a GlobalIngressIP, and what it adds to the maps, unless an older object adds the same.
type entry struct {
	object *submarinerv1.GlobalIngressIP // nil if it is gone
	own    dataplane.GlobalAddr          // of a pod; the zero value if there is none
	export *export                       // nil if there is none
	asked  []netip.Addr                  // addresses to which it may lead or not, depending on which pod has them
	again  bool                          // whether it is among changes
}

// replier is an endpoint of Services.
type replier struct {
	from  netip.AddrPort
	proto uint8
}

// ingress looks again at some GlobalIngressIPs, which make what other clusters reach: pods with an
// address of their own, and exported Services.
func (t *translated) ingress(again []*entry) {
	if len(again) == 0 {
		return
	}
	services := map[netip.Addr]bool{}
	pods := map[netip.Addr]bool{}
	repliers := map[replier]bool{}
	var added export
	for _, e := range again {
		e.again = false
		if e.own.Local.IsValid() {
			t.ofLocal.remove(e.own.Local, e)
			pods[e.own.Local] = true
		}
		if x := e.export; x != nil {
			services[x.addr] = true
			for _, r := range x.replies {
				t.ofReply.remove(replierOf(r), e)
				repliers[replierOf(r)] = true
			}
		}
		for _, ip := range e.asked {
			t.ofAsked.remove(ip, e)
		}
		e.own = dataplane.GlobalAddr{}
		e.export = nil
		e.asked = nil
		if e.object == nil {
			continue // follow has removed it
		}
		t.fill(e)
		for _, ip := range e.asked {
			t.ofAsked.add(ip, e)
		}
		if e.own.Local.IsValid() {
			t.ofLocal.add(e.own.Local, e)
			pods[e.own.Local] = true
		}
		if x := e.export; x != nil {
			services[x.addr] = true
			added.services, added.backends = append(
				added.services,
				x.services...), append(
				added.backends,
				x.backends...)
			for _, r := range x.replies {
				t.ofReply.add(replierOf(r), e)
				repliers[replierOf(r)] = true
			}
		}
	}
	g := &t.out.Table
	if len(pods) > 0 {
		g.Own = patch(g.Own, func(a dataplane.GlobalAddr) bool { return pods[a.Local] }, t.own(pods))
	}
	if len(services) > 0 {
		g.Services = patch(g.Services, func(s dataplane.GlobalService) bool { return services[s.Addr] }, added.services)
		g.Backends = patch(g.Backends, func(b dataplane.GlobalBackend) bool { return services[b.Addr] }, added.backends)
	}
	if len(repliers) > 0 {
		g.Replies = patch(g.Replies, func(r dataplane.GlobalReply) bool { return repliers[replierOf(r)] },
			t.replies(repliers))
	}
}

// fill determines what an object adds to the maps: nothing, if it has no address.
func (t *translated) fill(e *entry) {
	t.filled = e
	i := e.object
	ip, ok := t.global(i.Status.AllocatedIP)
	if !ok || !t.has(ingressOwner(i), ip) {
		return
	}
	if i.Spec.Target == submarinerv1.TargetClusterIPService && i.Spec.ServiceRef != nil {
		at := ref{i.Namespace, i.Spec.ServiceRef.Name}
		var endpoints []*discoveryv1.EndpointSlice
		for s := range t.slices.all(at) {
			endpoints = append(endpoints, s)
		}
		if s := t.services[at]; s != nil {
			e.export = t.export(ip, s, endpoints)
		}
		return
	}
	if local := t.target(i); local.IsValid() {
		e.own = dataplane.GlobalAddr{Global: ip, Local: local}
	}
}

// namespace returns the namespace of the pod with an address, for an entry that is being filled: it
// depends on the answer.
func (t *translated) namespace(ip netip.Addr) string {
	t.filled.asked = append(t.filled.asked, ip)
	var oldest *corev1.Pod
	for at := range t.podsAt.all(ip) {
		if p := t.pods[at]; oldest == nil || olderPod(p, oldest) {
			oldest = p
		}
	}
	if oldest == nil {
		return ""
	}
	return oldest.Namespace
}

// target returns the address that the address of a GlobalIngressIP stands for; the zero Addr if
// there is none. Only addresses of the pod network have a route back to other clusters through a
// gateway. That of the gateway itself would open all ports of the node.
func (t *translated) target(i *submarinerv1.GlobalIngressIP) netip.Addr {
	var ip netip.Addr
	switch {
	case i.Spec.Target == submarinerv1.TargetHeadlessServicePod && i.Spec.PodRef != nil:
		ip = PodIP(t.pods[ref{i.Namespace, i.Spec.PodRef.Name}])
	case i.Spec.Target == submarinerv1.TargetHeadlessServiceEndpoints:
		// a mistake is not in the pod network
		ip, _ = netip.ParseAddr(i.Annotations[submarinerv1.HeadlessEndpointAnnotation])
		if t.endpoints.RefuseOwn(i.Namespace, ip) != nil {
			return netip.Addr{}
		}
	}
	if !within(t.Gateway.Pods, ip) || ip == t.PodIP {
		return netip.Addr{}
	}
	return ip
}

// own returns the addresses of pods' own. A pod has one: of two, the address of the older object.
func (t *translated) own(pods map[netip.Addr]bool) (out []dataplane.GlobalAddr) {
	for pod := range pods {
		var best *entry
		for e := range t.ofLocal.all(pod) {
			if best == nil || ingressOwner(e.object).older(ingressOwner(best.object)) {
				best = e
			}
		}
		if best != nil {
			out = append(out, best.own)
		}
	}
	return out
}

// replies returns the replies of endpoints. An endpoint may be behind several Services: the first
// object counts.
func (t *translated) replies(of map[replier]bool) (out []dataplane.GlobalReply) {
	for from := range of {
		var first *entry
		for e := range t.ofReply.all(from) {
			if first == nil || refOf(e.object).compare(refOf(first.object)) < 0 {
				first = e
			}
		}
		if first == nil {
			continue
		}
		for _, r := range first.export.replies {
			if replierOf(r) == from {
				out = append(out, r)
				break
			}
		}
	}
	return out
}

func replierOf(r dataplane.GlobalReply) replier { return replier{r.From, r.Proto} }
