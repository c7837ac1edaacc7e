package globalnet

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/prefix"
)

// entry is a GlobalIngressIP, and what it adds to the maps, unless an older object adds the same.
type entry struct {
	object *submarinerv1.GlobalIngressIP // nil if it is gone
	own    ownAddress                    // of a pod; the zero value if there is none
	export *export                       // nil if there is none
	asked  []netip.Addr                  // addresses to which it may lead or not, depending on which pod has them
	again  bool                          // whether it is among changes
}

// ownAddress is a global address of a pod's own.
type ownAddress struct{ global, pod netip.Addr }

// elements returns what the address adds to Pods and Globals.
func (a ownAddress) elements() (pods, globals string) {
	global := a.global.String()
	pod := a.pod.String()
	return global + " : " + pod, pod + " : " + global
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
	var ports, endpoints []string
	for _, e := range again {
		e.again = false
		if e.own.pod.IsValid() {
			t.ofLocal.remove(e.own.pod, e)
			pods[e.own.pod] = true
		}
		if x := e.export; x != nil {
			services[x.addr] = true
			for _, r := range x.replies {
				t.ofReply.remove(r.replier, e)
				repliers[r.replier] = true
			}
		}
		for _, ip := range e.asked {
			t.ofAsked.remove(ip, e)
		}
		e.own = ownAddress{}
		e.export = nil
		e.asked = nil
		if e.object == nil {
			continue // follow has removed it
		}
		t.fill(e)
		for _, ip := range e.asked {
			t.ofAsked.add(ip, e)
		}
		if e.own.pod.IsValid() {
			t.ofLocal.add(e.own.pod, e)
			pods[e.own.pod] = true
		}
		if x := e.export; x != nil {
			services[x.addr] = true
			ports = append(ports, x.ports...)
			endpoints = append(endpoints, x.endpoints...)
			for _, r := range x.replies {
				t.ofReply.add(r.replier, e)
				repliers[r.replier] = true
			}
		}
	}
	t.own(pods)
	g := &t.out.Elements
	var gonePorts, goneEndpoints []string
	for ip := range services {
		gonePorts = append(gonePorts, having(g.Ports, ip.String()+" . ")...)
		goneEndpoints = append(goneEndpoints, having(g.Endpoints, ip.String()+" . ")...)
	}
	g.Ports = patch(g.Ports, gonePorts, ports)
	g.Endpoints = patch(g.Endpoints, goneEndpoints, endpoints)
	t.replies(repliers)
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
	if pod := t.target(i); pod.IsValid() {
		e.own = ownAddress{global: ip, pod: pod}
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
	if !prefix.Contains(t.Gateway.Pods, ip) || ip == t.PodIP {
		return netip.Addr{}
	}
	return ip
}

// own looks again at the own addresses of pods. A pod has one: of two, the address of the older
// object.
func (t *translated) own(again map[netip.Addr]bool) {
	g := &t.out.Elements
	var gonePods, goneGlobals, pods, globals []string
	for pod := range again {
		for _, was := range having(g.Globals, pod.String()+" : ") {
			_, global, _ := strings.Cut(was, " : ")
			goneGlobals = append(goneGlobals, was)
			gonePods = append(gonePods, global+" : "+pod.String())
		}
		var best *entry
		for e := range t.ofLocal.all(pod) {
			if best == nil || ingressOwner(e.object).older(ingressOwner(best.object)) {
				best = e
			}
		}
		if best != nil {
			toPod, toGlobal := best.own.elements()
			pods = append(pods, toPod)
			globals = append(globals, toGlobal)
		}
	}
	g.Pods = patch(g.Pods, gonePods, pods)
	g.Globals = patch(g.Globals, goneGlobals, globals)
}

// replies looks again at what endpoints send. An endpoint may be behind several Services: the first
// object counts.
func (t *translated) replies(again map[replier]bool) {
	g := &t.out.Elements
	var gone, exports []string
	for from := range again {
		gone = append(gone, having(g.Exports, from.key()+" : ")...)
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
			if r.replier == from {
				exports = append(exports, from.key()+" : "+r.as)
				break
			}
		}
	}
	g.Exports = patch(g.Exports, gone, exports)
}

// key returns the notation of an endpoint in Exports.
func (r replier) key() string { return portOf(r.from.Addr(), r.proto, r.from.Port()) }
