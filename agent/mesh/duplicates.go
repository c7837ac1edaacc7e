package mesh

import (
	"cmp"
	"net/netip"
)

// duplicates returns the GlobalIngressIPs of pods and endpoints without effect, because an older
// one has the same address of the pod network, each with that older one. This happens if a pod is
// an endpoint of two Services without selector, or of one and has a global address of its own.
func (w *wanted) duplicates(pods []*slimPod) map[*slimIngress]*slimIngress {
	of := make(map[*slimIngress]netip.Addr, len(w.have))
	first := make(map[netip.Addr]*slimIngress, len(w.have))
	for _, o := range w.have {
		var ip netip.Addr
		if name, is := o.pod(); is {
			if p := find(pods, o.GetNamespace(), name); p != nil {
				ip = p.IP()
			}
		} else if o.forEndpoint() {
			ip = o.endpoint.addr() // a mistake has a condition
		}
		if !w.network.Contains(o.held.addr()) || w.endpoints.RefuseOwn(o.GetNamespace(), ip) != nil {
			continue // gateways do not translate it either
		}
		of[o] = ip
		if other := first[ip]; other == nil || o.older(other) {
			first[ip] = o
		}
	}
	out := map[*slimIngress]*slimIngress{}
	for o, ip := range of {
		if first[ip] != o {
			out[o] = first[ip]
		}
	}
	return out
}

// older reports whether an object has the address of two that have the same one.
func (o *slimIngress) older(other *slimIngress) bool {
	return cmp.Or(cmp.Compare(o.created, other.created), cmp.Compare(o.GetNamespace(), other.GetNamespace()),
		cmp.Compare(o.name, other.name)) < 0
}
