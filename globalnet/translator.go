package globalnet

import (
	"iter"
	"net/netip"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/prefix"
)

// Translator translates as Translate does, with the same result. It remembers the objects of the
// last call, so that a call costs little more than what depends on the objects that have changed: a
// gateway may have 50,000 addresses, one of which changes every few milliseconds. An object is
// unchanged if it is the same in memory, as objects of a cache are. The zero Translator is ready.
// It is not safe for concurrent use.
type Translator struct {
	last *translated
}

// Translate returns what a gateway translates. The objects must not be changed afterwards.
func (t *Translator) Translate(g Gateway, o Objects) Translation {
	if t.last == nil || !reflect.DeepEqual(t.last.Gateway, g) {
		t.last = newTranslated(g, o)
	}
	t.last.follow(o)
	return t.last.out
}

// translated is a translation, and how it follows from objects. Objects refer to each other by name
// and compete for addresses: the indexes tell which others an object that changes may affect.
type translated struct {
	Gateway
	Objects
	pods     map[ref]*corev1.Pod
	services map[ref]*corev1.Service
	entries  map[ref]*entry // of GlobalIngressIPs

	slices  index[ref, *discoveryv1.EndpointSlice] // by Service
	podsAt  index[netip.Addr, ref]                 // pods by address
	claims  index[netip.Addr, owner]               // the objects whose statuses have an address
	ofPod   index[ref, *entry]                     // the GlobalIngressIPs of a pod
	ofSvc   index[ref, *entry]                     // the GlobalIngressIPs of a Service
	ofLocal index[netip.Addr, *entry]              // the GlobalIngressIPs that give an address of a pod one of its own
	ofReply index[replier, *entry]                 // the GlobalIngressIPs of Services with an endpoint

	ofAsked index[netip.Addr, *entry] // the GlobalIngressIPs that depend on which pod has an address

	endpoints Endpoints
	filled    *entry // whose endpoints are asked for

	selectors map[string][]selecting // GlobalEgressIPs by namespace
	selected  map[ref]selected       // pods that one of them selects
	ofSource  index[netip.Addr, ref] // these pods, by address

	out Translation
}

// changes lists the objects and addresses that a call must look at again.
type changes struct {
	ingress []*entry
	pods    map[ref]bool
	shared  map[netip.Addr]bool // addresses that several objects have, or had
	egress  bool                // whether GlobalEgressIPs or ClusterGlobalEgressIPs may have other addresses
}

// again adds GlobalIngressIPs.
func (c *changes) again(all iter.Seq[*entry]) {
	for e := range all {
		c.look(e)
	}
}

func (c *changes) look(e *entry) {
	if !e.again {
		e.again, c.ingress = true, append(c.ingress, e)
	}
}

func newTranslated(g Gateway, o Objects) *translated {
	t := &translated{
		Gateway:  g,
		pods:     make(map[ref]*corev1.Pod, len(o.Pods)),
		services: make(map[ref]*corev1.Service, len(o.Services)),
		entries:  make(map[ref]*entry, len(o.Ingress)),
		selected: map[ref]selected{},
	}
	t.endpoints = Endpoints{nets: g.Pods, namespace: t.namespace}
	return t
}

// follow makes the translation that of other objects.
func (t *translated) follow(o Objects) {
	c := changes{pods: map[ref]bool{}, shared: map[netip.Addr]bool{}}
	compare(t.Objects.Pods, o.Pods, func(at ref, was, is *corev1.Pod) {
		put(t.pods, at, is)
		t.moved(&c, at, was, is)
		c.pods[at] = true
		c.again(t.ofPod.all(at))
	})
	compare(t.Services, o.Services, func(at ref, _, is *corev1.Service) {
		put(t.services, at, is)
		c.again(t.ofSvc.all(at))
	})
	compare(t.Slices, o.Slices, func(_ ref, was, is *discoveryv1.EndpointSlice) {
		if at, counts := serviceOf(was); counts {
			t.slices.remove(at, was)
			c.again(t.ofSvc.all(at))
		}
		if at, counts := serviceOf(is); counts {
			t.slices.add(at, is)
			c.again(t.ofSvc.all(at))
		}
	})
	compare(t.Ingress, o.Ingress, func(at ref, was, is *submarinerv1.GlobalIngressIP) {
		e := t.entries[at]
		if e == nil {
			e = &entry{}
			t.entries[at] = e
		}
		if e.object = is; is == nil {
			delete(t.entries, at)
		}
		c.look(e)
		if was != nil {
			t.claim(&c, false, ingressOwner(was), was.Status.AllocatedIP)
			t.refer(was, e, (*index[ref, *entry]).remove)
		}
		if is != nil {
			t.claim(&c, true, ingressOwner(is), is.Status.AllocatedIP)
			t.refer(is, e, (*index[ref, *entry]).add)
		}
	})
	compare(t.Egress, o.Egress, func(_ ref, was, is *submarinerv1.GlobalEgressIP) {
		c.egress = true
		if was != nil {
			t.claim(&c, false, egressOwner(was), was.Status.AllocatedIPs...)
		}
		if is != nil {
			t.claim(&c, true, egressOwner(is), is.Status.AllocatedIPs...)
		}
	})
	compare(t.ClusterEgress, o.ClusterEgress, func(_ ref, was, is *submarinerv1.ClusterGlobalEgressIP) {
		c.egress = true
		if was != nil {
			t.claim(&c, false, clusterEgressOwner(was), was.Status.AllocatedIPs...)
		}
		if is != nil {
			t.claim(&c, true, clusterEgressOwner(is), is.Status.AllocatedIPs...)
		}
	})
	t.Objects = o
	for ip := range c.shared {
		for by := range t.claims.all(ip) {
			if by.kind == ofIngress {
				c.look(t.entries[by.ref])
			} else {
				c.egress = true
			}
		}
	}
	t.ingress(c.ingress)
	t.egress(c)
}

// moved notes the address of a pod that has changed.
func (t *translated) moved(c *changes, at ref, was, is *corev1.Pod) {
	before := PodIP(was)
	now := PodIP(is)
	if before == now && was != nil && is != nil && was.CreationTimestamp.Equal(&is.CreationTimestamp) {
		return
	}
	if before.IsValid() {
		t.podsAt.remove(before, at)
		c.again(t.ofAsked.all(before))
	}
	if now.IsValid() {
		t.podsAt.add(now, at)
		c.again(t.ofAsked.all(now))
	}
}

// compare calls do with each object that two sorted lists do not share, as it was and as it is,
// either of which may be nil.
func compare[T any, P interface {
	*T
	metav1.Object
}](was, is []P, do func(at ref, was, is P)) {
	for len(was) > 0 || len(is) > 0 {
		if len(was) > 0 && len(is) > 0 && was[0] == is[0] {
			was = was[1:]
			is = is[1:]
			continue
		}
		var old, now P
		switch {
		case len(is) == 0:
			old = was[0]
		case len(was) == 0:
			now = is[0]
		default:
			switch c := refOf(was[0]).compare(refOf(is[0])); {
			case c < 0:
				old = was[0]
			case c > 0:
				now = is[0]
			default:
				old = was[0]
				now = is[0]
			}
		}
		at := ref{}
		if old != nil {
			at = refOf(old)
			was = was[1:]
		}
		if now != nil {
			at = refOf(now)
			is = is[1:]
		}
		do(at, old, now)
	}
}

// put sets what a map has at a key, or removes it if that is nil.
func put[T any](m map[ref]*T, at ref, is *T) {
	if is == nil {
		delete(m, at)
		return
	}
	m[at] = is
}

// serviceOf returns the Service of an EndpointSlice; false if it has none, or if it has no IPv4
// addresses.
func serviceOf(s *discoveryv1.EndpointSlice) (ref, bool) {
	if s == nil || s.AddressType != discoveryv1.AddressTypeIPv4 {
		return ref{}, false
	}
	return ref{s.Namespace, s.Labels[discoveryv1.LabelServiceName]}, true
}

// claim notes that an object has addresses, or has them no more.
func (t *translated) claim(c *changes, has bool, by owner, texts ...string) {
	for _, text := range texts {
		ip, ok := t.global(text)
		if !ok {
			continue
		}
		if !has {
			t.claims.remove(ip, by)
		}
		if t.claims.has(ip) {
			c.shared[ip] = true
		}
		if has {
			t.claims.add(ip, by)
		}
	}
}

// refer calls note, which is add or remove, with the index of the pod or the Service that a
// GlobalIngressIP is for.
func (t *translated) refer(i *submarinerv1.GlobalIngressIP, e *entry, note func(*index[ref, *entry], ref, *entry)) {
	switch spec := i.Spec; {
	case spec.Target == submarinerv1.TargetClusterIPService && spec.ServiceRef != nil:
		note(&t.ofSvc, ref{i.Namespace, spec.ServiceRef.Name}, e)
	case spec.Target == submarinerv1.TargetHeadlessServicePod && spec.PodRef != nil:
		note(&t.ofPod, ref{i.Namespace, spec.PodRef.Name}, e)
	}
}

// has reports whether an object that claims an address has it: no older object claims it.
func (t *translated) has(by owner, ip netip.Addr) bool {
	for other := range t.claims.all(ip) {
		if other.older(by) {
			return false
		}
	}
	return true
}

// global parses a global address of this cluster.
func (t *translated) global(text string) (netip.Addr, bool) {
	if text == "" {
		return netip.Addr{}, false
	}
	ip, err := netip.ParseAddr(text)
	return ip, err == nil && ip.Is4() && prefix.Contains(t.Nets, ip)
}

// addresses returns the addresses of an object that no older object has.
func (t *translated) addresses(by owner, texts ...string) (out []netip.Addr) {
	for _, text := range texts {
		if ip, ok := t.global(text); ok && t.has(by, ip) && !slices.Contains(out, ip) {
			out = append(out, ip)
		}
	}
	return out
}
