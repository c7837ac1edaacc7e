package globalnet

import (
	"cmp"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"subctl/internal/prefix"
)

// Pod has the properties of a pod on which addresses depend.
type Pod interface {
	comparable
	GetNamespace() string
	GetName() string
	Created() int64 // Unix time, in seconds
	IP() netip.Addr // as PodIP
	LabelSet() labels.Labels
}

// Endpoints decides which addresses exported Services may lead to. Whoever may write EndpointSlices
// in a namespace chooses them, but must open neither pods of other namespaces to other clusters,
// nor what only the gateway reaches.
type Endpoints struct {
	nets []netip.Prefix
	// namespace returns that of the pod with an address; empty if there is none.
	namespace func(netip.Addr) string
}

// NewEndpoints returns the Endpoints of a cluster with pods in networks. Few clusters export what
// needs the pods.
func NewEndpoints[P Pod](nets []netip.Prefix, pods []P) Endpoints {
	var oldest map[netip.Addr]P // by address; nil until it is needed
	var none P
	return Endpoints{nets: nets, namespace: func(ip netip.Addr) string {
		if oldest == nil {
			oldest = make(map[netip.Addr]P, len(pods))
			for _, p := range pods {
				at := p.IP()
				if other := oldest[at]; at.IsValid() && (other == none || olderThan(p, other)) {
					oldest[at] = p
				}
			}
		}
		if p := oldest[ip]; p != none {
			return p.GetNamespace()
		}
		return ""
	}}
}

// olderThan is olderPod for a Pod.
func olderThan[P Pod](p, other P) bool {
	return cmp.Or(cmp.Compare(p.Created(), other.Created()), cmp.Compare(p.GetNamespace(), other.GetNamespace()),
		cmp.Compare(p.GetName(), other.GetName())) < 0
}

// olderPod reports whether a pod counts as the one with an address that another pod reports, too.
func olderPod(p, other *corev1.Pod) bool {
	if p.CreationTimestamp.Equal(&other.CreationTimestamp) {
		return refOf(p).compare(refOf(other)) < 0
	}
	return p.CreationTimestamp.Before(&other.CreationTimestamp)
}

// Refuse returns why a Service of a namespace must not lead to an address; nil if it may. An
// address outside the pod networks may be any that the pods of the cluster reach, too.
func (e Endpoints) Refuse(namespace string, ip netip.Addr) error {
	if no := special(prefix.Host(ip)); no != "" {
		return fmt.Errorf("%v is among %s", ip, no)
	}
	if prefix.Contains(e.nets, ip) && e.namespace(ip) != namespace {
		return fmt.Errorf("%v is in the pod network, and no pod of namespace %s has it", ip, namespace)
	}
	return nil
}

// RefuseOwn returns why an endpoint in a namespace must not have a global address of its own; nil
// if it may. Only addresses in the pod networks have a route back to other clusters through a
// gateway.
func (e Endpoints) RefuseOwn(namespace string, ip netip.Addr) error {
	if !prefix.Contains(e.nets, ip) {
		return fmt.Errorf("%v is not in the pod network", ip)
	}
	return e.Refuse(namespace, ip)
}
