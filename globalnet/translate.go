package globalnet

import (
	"cmp"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// Gateway is the gateway for which Translate computes what it translates.
type Gateway struct {
	Node string
	// NodeIP is the node's own address, and PodIP its address in the pod network: on the cables,
	// only that is accepted.
	NodeIP, PodIP netip.Addr
	Nets          []netip.Prefix // the global networks of the cluster
	Pods          []netip.Prefix // the networks of its pods
	// Several specifies that the cluster may have several active gateways, of which Gateways are
	// the names, sorted.
	Several  bool
	Gateways []string
	// Standby specifies that another gateway is the only active one. Replies return to that one,
	// except those to addresses of this gateway alone: see Returned.
	Standby bool
}

// Objects are the objects that determine what a cluster's gateways translate, each kind sorted by
// namespace and name.
type Objects struct {
	Ingress       []*submarinerv1.GlobalIngressIP
	Egress        []*submarinerv1.GlobalEgressIP
	ClusterEgress []*submarinerv1.ClusterGlobalEgressIP
	Services      []*corev1.Service
	Slices        []*discoveryv1.EndpointSlice
	Pods          []*corev1.Pod
}

// Translation describes the translations by a gateway.
type Translation struct {
	Elements // of the maps
	// Health is the address of the gateway that answers pings; the zero Addr if it has none.
	Health netip.Addr
	// Returned are the addresses to which replies must return through this gateway, as it alone
	// knows the connections, at most submarinerv1.MaxAllocatedIPs. They are empty if the cluster
	// has one gateway node.
	Returned []netip.Addr
}

// Translate returns what a gateway translates. It reads the addresses that the statuses of objects
// have; it allocates none. Of two objects with the same address, the older one has it.
func Translate(g Gateway, o Objects) Translation { return new(Translator).Translate(g, o) }

// ref is the namespace and the name of an object.
type ref struct{ namespace, name string }

func refOf(o metav1.Object) ref { return ref{o.GetNamespace(), o.GetName()} }

func (r ref) compare(o ref) int {
	return cmp.Or(cmp.Compare(r.namespace, o.namespace), cmp.Compare(r.name, o.name))
}

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
	return cmp.Or(cmp.Compare(o.created, other.created), cmp.Compare(o.kind, other.kind), o.ref.compare(other.ref))
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

// PodIP returns the IPv4 address of a pod; the zero Addr if it has none of its own, or has ended.
func PodIP(p *corev1.Pod) netip.Addr {
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
