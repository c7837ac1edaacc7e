package globalnet

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// Gateway is the gateway for which Translate computes what it translates.
type Gateway struct {
	Node string
	// NodeIP is the node's own address, and PodIP its address in the pod network: on the cables, only that is accepted.
	NodeIP, PodIP netip.Addr
	Nets          []netip.Prefix // the global networks of the cluster
	Pods          []netip.Prefix // the networks of its pods
	// Several specifies that the cluster may have several active gateways, of which Gateways are the names, sorted.
	Several  bool
	Gateways []string
}

// Objects are the objects that determine what a cluster's gateways translate, each kind sorted by namespace and name.
type Objects struct {
	Ingress       []*submarinerv1.GlobalIngressIP
	Egress        []*submarinerv1.GlobalEgressIP
	ClusterEgress []*submarinerv1.ClusterGlobalEgressIP
	Services      []*corev1.Service
	Slices        []*discoveryv1.EndpointSlice
	Pods          []*corev1.Pod
}

// Translation is what a gateway translates.
type Translation struct {
	// Table has the maps, and nothing else.
	Table dataplane.Globalnet
	// Health is the address of the gateway that answers pings; the zero Addr if it has none.
	Health netip.Addr
	// Returned are the addresses to which replies must return through this gateway, as it alone knows the connections, at most
	// MaxReturned. They are empty if the cluster has one active gateway.
	Returned []netip.Addr
}

// MaxReturned is the most addresses to which a gateway may have other clusters route replies.
const MaxReturned = submarinerv1.MaxGlobalEgressIPs

// Translate returns what a gateway translates. It reads the addresses that the statuses of objects have; it
// allocates none. Of two objects with the same address, the older one has it.
func Translate(g Gateway, o Objects) Translation {
	t := translator{Gateway: g, Objects: o, endpoints: NewEndpoints(g.Pods, o.Pods)}
	t.claim()
	t.ingress()
	t.egress()
	t.sort()
	return t.out
}

// translator is the state of Translate.
type translator struct {
	Gateway
	Objects
	endpoints Endpoints
	owners    map[netip.Addr]owner
	pods      map[ref]*corev1.Pod
	out       Translation
}

// ref is the namespace and the name of an object.
type ref struct{ namespace, name string }

// owner is an object with a global address.
type owner struct {
	created int64
	kind    uint8
	ref
}

// The kinds of owners.
const (
	ofIngress uint8 = iota
	ofEgress
	ofClusterEgress
)

func (o owner) older(than owner) bool { return o.compare(than) < 0 }

// compare orders owners by age, the oldest first.
func (o owner) compare(other owner) int {
	return cmp.Or(cmp.Compare(o.created, other.created), cmp.Compare(o.kind, other.kind), cmp.Compare(o.namespace, other.namespace), cmp.Compare(o.name, other.name))
}

func ingressOwner(i *submarinerv1.GlobalIngressIP) owner {
	return owner{i.CreationTimestamp.Unix(), ofIngress, ref{i.Namespace, i.Name}}
}

func egressOwner(e *submarinerv1.GlobalEgressIP) owner {
	return owner{e.CreationTimestamp.Unix(), ofEgress, ref{e.Namespace, e.Name}}
}

func clusterEgressOwner(e *submarinerv1.ClusterGlobalEgressIP) owner {
	return owner{e.CreationTimestamp.Unix(), ofClusterEgress, ref{name: e.Name}}
}

// claim determines which object has which address.
func (t *translator) claim() {
	t.owners = make(map[netip.Addr]owner, len(t.Ingress)+64)
	add := func(by owner, addresses ...string) {
		for _, text := range addresses {
			ip, ok := t.global(text)
			if before, taken := t.owners[ip]; ok && (!taken || by.older(before)) {
				t.owners[ip] = by
			}
		}
	}
	for _, i := range t.Ingress {
		add(ingressOwner(i), i.Status.AllocatedIP)
	}
	for _, e := range t.Egress {
		add(egressOwner(e), e.Status.AllocatedIPs...)
	}
	for _, e := range t.ClusterEgress {
		add(clusterEgressOwner(e), e.Status.AllocatedIPs...)
	}
}

// global parses a global address of this cluster.
func (t *translator) global(text string) (netip.Addr, bool) {
	if text == "" {
		return netip.Addr{}, false
	}
	ip, err := netip.ParseAddr(text)
	return ip, err == nil && ip.Is4() && within(t.Nets, ip)
}

// addresses returns the addresses of an object that no older object has.
func (t *translator) addresses(by owner, texts ...string) (out []netip.Addr) {
	for _, text := range texts {
		if ip, ok := t.global(text); ok && t.owners[ip] == by && !slices.Contains(out, ip) {
			out = append(out, ip)
		}
	}
	return out
}

// ingress adds what other clusters reach: pods with an address of their own, and exported Services.
func (t *translator) ingress() {
	services, endpoints := map[ref]*corev1.Service{}, map[ref][]*discoveryv1.EndpointSlice{}
	for _, s := range t.Services {
		services[ref{s.Namespace, s.Name}] = s
	}
	for _, s := range t.Slices {
		if s.AddressType == discoveryv1.AddressTypeIPv4 {
			at := ref{s.Namespace, s.Labels[discoveryv1.LabelServiceName]}
			endpoints[at] = append(endpoints[at], s)
		}
	}
	t.pods = make(map[ref]*corev1.Pod, len(t.Objects.Pods))
	for _, p := range t.Objects.Pods {
		t.pods[ref{p.Namespace, p.Name}] = p
	}
	owned, replies := map[netip.Addr]int{}, map[dataplane.GlobalReply]bool{}
	for _, i := range t.Ingress {
		ips := t.addresses(ingressOwner(i), i.Status.AllocatedIP)
		if len(ips) == 0 {
			continue
		}
		switch spec := i.Spec; {
		case spec.Target == submarinerv1.TargetClusterIPService && spec.ServiceRef != nil:
			at := ref{i.Namespace, spec.ServiceRef.Name}
			if s := services[at]; s != nil {
				t.export(ips[0], s, endpoints[at], replies)
			}
		default:
			t.own(owned, dataplane.GlobalAddr{Global: ips[0], Local: t.target(i)})
		}
	}
}

// target returns the address that the address of a GlobalIngressIP stands for; the zero Addr if there is none. Only addresses of the pod
// network have a route back to other clusters through a gateway. That of the gateway itself would open all ports of the node.
func (t *translator) target(i *submarinerv1.GlobalIngressIP) netip.Addr {
	var ip netip.Addr
	switch {
	case i.Spec.Target == submarinerv1.TargetHeadlessServicePod && i.Spec.PodRef != nil:
		ip = podIP(t.pods[ref{i.Namespace, i.Spec.PodRef.Name}])
	case i.Spec.Target == submarinerv1.TargetHeadlessServiceEndpoints:
		ip, _ = netip.ParseAddr(i.Annotations[submarinerv1.HeadlessEndpointAnnotation]) // a mistake is not in the pod network
		if t.endpoints.RefuseOwn(i.Namespace, ip) != nil {
			return netip.Addr{}
		}
	}
	if !within(t.Gateway.Pods, ip) || ip == t.PodIP {
		return netip.Addr{}
	}
	return ip
}

// own adds an address of a pod's own. A pod has one: of two, the address of the older object.
func (t *translator) own(owned map[netip.Addr]int, a dataplane.GlobalAddr) {
	if !a.Local.IsValid() {
		return
	}
	if at, has := owned[a.Local]; !has {
		owned[a.Local] = len(t.out.Table.Own)
		t.out.Table.Own = append(t.out.Table.Own, a)
	} else if t.owners[a.Global].older(t.owners[t.out.Table.Own[at].Global]) {
		t.out.Table.Own[at] = a
	}
}

// podIP returns the IPv4 address of a pod; the zero Addr if it has none of its own, or has ended.
func podIP(p *corev1.Pod) netip.Addr {
	if p == nil || p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return netip.Addr{}
	}
	if ip, err := netip.ParseAddr(p.Status.PodIP); err == nil && ip.Is4() {
		return ip
	}
	for _, other := range p.Status.PodIPs {
		if ip, err := netip.ParseAddr(other.IP); err == nil && ip.Is4() {
			return ip
		}
	}
	return netip.Addr{}
}

// sort sorts the maps, as plans have them.
func (t *translator) sort() {
	g := &t.out.Table
	slices.SortFunc(g.Own, dataplane.GlobalAddr.Compare)
	slices.SortFunc(g.Services, dataplane.GlobalService.Compare)
	slices.SortFunc(g.Backends, dataplane.GlobalBackend.Compare)
	slices.SortFunc(g.Replies, dataplane.GlobalReply.Compare)
	slices.SortFunc(g.Pools, dataplane.GlobalPool.Compare)
	slices.SortFunc(g.Sources, dataplane.GlobalSource.Compare)
}

func within(nets []netip.Prefix, ip netip.Addr) bool {
	for _, n := range nets {
		if n.Contains(ip) {
			return true
		}
	}
	return false
}
