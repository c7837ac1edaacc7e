package mesh

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"

	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

// export is a ServiceExport, and what stands for its Service.
type export struct {
	object *slimExport
	needs  []int32 // the numbers of wants
	*troubles
}

// troubles has the reasons why other clusters reach nothing, or not all endpoints, at the address
// of a Service.
type troubles struct {
	reason  mcsv1alpha1.ServiceExportConditionReason // why it is not valid; empty if it is
	mistake string
	taken   string // the name of a GlobalIngressIP that stands for something else
	// unreached is the reason why other clusters reach nothing at the address of the Service; empty
	// if they do.
	unreached string
	refused   []string            // why other clusters do not reach endpoints, for the first listedAddresses
	refusals  map[netip.Addr]bool // the endpoints that they do not reach, at most maxRefusals
	others    []string            // the GlobalIngressIPs at whose addresses other clusters reach endpoints instead
}

// trouble returns the troubles of an export, to add to them. Most have none.
func (e *export) trouble() *troubles {
	if e.troubles == nil {
		e.troubles = &troubles{}
	}
	return e.troubles
}

// compareEndpoints looks for endpoints that other clusters reach at the address of another object.
func (w *wanted) compareEndpoints(pods []*slimPod) {
	if !slices.ContainsFunc(w.have, (*slimIngress).forEndpoint) {
		return // the addresses of pods differ
	}
	w.useless = w.duplicates(pods)
	for i := range w.exports {
		e := &w.exports[i]
		e.needs = slices.DeleteFunc(e.needs, func(n int32) bool {
			at := w.ingress[n].at
			if at < 0 || w.useless[w.have[at]] == nil {
				return false
			}
			first := w.useless[w.have[at]]
			t := e.trouble()
			t.others = append(t.others, fmt.Sprintf("%s (GlobalIngressIP %s)", first.held, first.name))
			return true
		})
		if e.troubles != nil {
			slices.Sort(e.others)
		}
	}
}

// export gives exported Services what stands for them.
func (w *wanted) export(s Snapshot, pods []*slimPod) {
	services := List[*slimService](s)
	exports := List[*slimExport](s)
	endpoints := byService(List[*slimSlice](s))
	w.exports = make([]export, 0, len(exports))
	for _, o := range exports {
		if o.ending {
			continue
		}
		w.exports = append(w.exports, export{object: o})
		e := &w.exports[len(w.exports)-1]
		switch service := find(services, o.GetNamespace(), o.name); {
		case service == nil:
			e.trouble().reason = mcsv1alpha1.ServiceExportReasonNoService
			e.trouble().mistake = fmt.Sprintf("there is no Service %s in namespace %s", o.name, o.GetNamespace())
		case service.external:
			e.trouble().reason = mcsv1alpha1.ServiceExportReasonInvalidServiceType
			e.trouble().mistake = "a Service of type ExternalName has no endpoints in this cluster: export a Service with endpoints"
		case !w.network.IsValid():
		case service.headless && service.selects:
			w.headlessPods(e, endpoints.of(o), pods)
		case service.headless:
			w.headlessEndpoints(e, endpoints.of(o))
		default:
			w.clusterIP(e, service, endpoints.of(o))
		}
	}
}

// clusterIP gives an exported Service with an address in the cluster a global address.
func (w *wanted) clusterIP(e *export, service *slimService, endpoints []*slimSlice) {
	if !service.ipv4 {
		e.trouble().unreached = "the Service has no IPv4 address"
		return
	}
	refused := false
	reached := false
	eachAddress(endpoints, func(ip ipv4) {
		if e.refuse(ip, w.endpoints.Refuse) {
			reached = true
		} else {
			refused = true
		}
	})
	if refused && !reached {
		e.trouble().unreached = "other clusters may reach none of its endpoints"
	}
	w.need(e, want{owner: e.object, target: targetService})
}

// headlessPods gives each pod of an exported headless Service an address.
func (w *wanted) headlessPods(e *export, endpoints []*slimSlice, pods []*slimPod) {
	for _, slice := range endpoints {
		for _, ep := range slice.endpoints {
			if ep.pod == "" {
				continue
			}
			p := find(pods, slice.GetNamespace(), ep.pod)
			if p == nil {
				continue
			}
			if number, same, needs := w.pod(p); needs {
				w.noteNeed(e, number, same)
			}
		}
	}
}

// headlessEndpoints gives each endpoint of an exported headless Service without selector an
// address.
func (w *wanted) headlessEndpoints(e *export, endpoints []*slimSlice) {
	eachAddress(endpoints, func(ip ipv4) {
		if e.refuse(ip, w.endpoints.RefuseOwn) {
			w.need(e, want{owner: e.object, target: targetEndpoint, endpoint: ip})
		}
	})
}

// need adds an object that an export needs.
func (w *wanted) need(e *export, k want) {
	number, same := w.want(k)
	w.noteNeed(e, number, same)
}

// noteNeed notes an object that the last export needs, once, or that something else has its name.
func (w *wanted) noteNeed(e *export, number int32, same bool) {
	k := &w.ingress[number]
	last := int32(len(w.exports))
	switch {
	case !same:
		e.trouble().taken = k.name()
	case k.neededBy != last:
		k.neededBy = last
		e.needs = append(e.needs, number)
	}
}

// maxRefusals is the maximum number of endpoints that are counted as not reached: whoever may write
// EndpointSlices can list millions.
const maxRefusals = 10000

// refuse notes why an endpoint is not reached. It reports whether it is.
func (e *export) refuse(at ipv4, why func(namespace string, ip netip.Addr) error) bool {
	ip := at.addr()
	err := why(e.object.GetNamespace(), ip)
	if err == nil {
		return true
	}
	t := e.trouble()
	if len(t.refusals) < maxRefusals && !t.refusals[ip] {
		if t.refusals == nil {
			t.refusals = map[netip.Addr]bool{}
		}
		if t.refusals[ip] = true; len(t.refused) < listedAddresses {
			t.refused = append(t.refused, err.Error())
		}
	}
	return false
}

// eachAddress calls do for each IPv4 address in EndpointSlices.
func eachAddress(endpoints []*slimSlice, do func(ipv4)) {
	for _, slice := range endpoints {
		for _, ep := range slice.endpoints {
			if ep.ip.is {
				do(ep.ip)
			}
		}
	}
}

// slicesOf are EndpointSlices, sorted by namespace and Service.
type slicesOf []*slimSlice

// byService sorts EndpointSlices by Service. Those of a Service stay in the order in which they
// are.
func byService(all []*slimSlice) slicesOf {
	slices.SortStableFunc(all, func(a, b *slimSlice) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.service, b.service))
	})
	return all
}

// of returns the EndpointSlices of an exported Service.
func (s slicesOf) of(o *slimExport) []*slimSlice {
	from, _ := sort.Find(len(s), func(i int) int {
		return cmp.Or(strings.Compare(o.GetNamespace(), s[i].GetNamespace()), strings.Compare(o.name, s[i].service))
	})
	to := from
	for to < len(s) && s[to].GetNamespace() == o.GetNamespace() && s[to].service == o.name {
		to++
	}
	return s[from:to]
}
