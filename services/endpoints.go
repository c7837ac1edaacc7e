package services

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"subctl/api/submariner/v1alpha1"
)

// endpoint is an endpoint of a Service.
type endpoint struct {
	addr netip.Addr
	// pod is the name of the pod; empty if it is none.
	pod string
	// targets are the ports of the endpoint, in the order of the ports of the record; 0 for a port
	// that it does not have.
	targets  []int32
	hostname string
	zone     string
	state    v1alpha1.EndpointState
}

func (e endpoint) compare(o endpoint) int { return e.addr.Compare(o.addr) }

// usefulness orders states: what serves connections comes first.
var usefulness = map[v1alpha1.EndpointState]int{
	v1alpha1.EndpointReady:       0,
	v1alpha1.EndpointServing:     1,
	v1alpha1.EndpointNotReady:    2,
	v1alpha1.EndpointTerminating: 3,
}

// endpointsOf returns the IPv4 endpoints of a Service, each address once, sorted.
func endpointsOf(s *corev1.Service, ports []v1alpha1.ExportedPort, from []*discoveryv1.EndpointSlice) []endpoint {
	var out []endpoint
	for _, slice := range from {
		if slice.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		targets, some := targetsOf(ports, slice.Ports)
		if !some && !isHeadless(s) {
			continue
		}
		for i := range slice.Endpoints {
			if e, ok := newEndpoint(&slice.Endpoints[i], targets); ok {
				out = append(out, e)
			}
		}
	}
	slices.SortStableFunc(out, endpoint.compare)
	return merge(out)
}

// newEndpoint returns an endpoint of a slice with the targets. As for kube-proxy, only its first
// address counts.
func newEndpoint(from *discoveryv1.Endpoint, targets []int32) (endpoint, bool) {
	if len(from.Addresses) == 0 {
		return endpoint{}, false
	}
	ip, err := netip.ParseAddr(from.Addresses[0])
	if err != nil || !ip.Is4() || !ip.IsGlobalUnicast() {
		return endpoint{}, false
	}
	e := endpoint{addr: ip, targets: targets, state: stateOf(from.Conditions)}
	if ref := from.TargetRef; ref != nil && ref.Kind == "Pod" {
		e.pod = ref.Name
	}
	if h := from.Hostname; h != nil && len(validation.IsDNS1123Label(*h)) == 0 {
		e.hostname = *h
	}
	if z := from.Zone; z != nil && len(validation.IsValidLabelValue(*z)) == 0 {
		e.zone = *z
	}
	return e, true
}

// stateOf returns the state of an endpoint. The API specifies what it means if a condition is
// missing.
func stateOf(c discoveryv1.EndpointConditions) v1alpha1.EndpointState {
	ready := c.Ready == nil || *c.Ready
	serving := ready
	if c.Serving != nil {
		serving = *c.Serving
	}
	switch terminating := c.Terminating != nil && *c.Terminating; {
	case ready:
		return v1alpha1.EndpointReady
	case terminating && serving:
		return v1alpha1.EndpointServing
	case terminating:
		return v1alpha1.EndpointTerminating
	}
	return v1alpha1.EndpointNotReady
}

// targetsOf returns the ports of the endpoints of a slice, in the order of the ports of a record.
// Ports are matched by name and protocol. It reports whether the endpoints have any of them, or
// there are none.
func targetsOf(ports []v1alpha1.ExportedPort, of []discoveryv1.EndpointPort) (targets []int32, some bool) {
	type key struct {
		name     string
		protocol string
	}
	numbers := make(map[key]int32, len(of))
	for _, p := range of {
		var k key
		if p.Name != nil {
			k.name = *p.Name
		}
		if p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
			k.protocol = string(*p.Protocol)
		}
		if p.Port != nil && *p.Port > 0 && *p.Port <= 65535 {
			numbers[k] = *p.Port
		}
	}
	targets = make([]int32, len(ports))
	for i, p := range ports {
		targets[i] = numbers[key{p.Name, p.Protocol}]
		some = some || targets[i] != 0
	}
	return targets, some || len(ports) == 0
}

// merge returns sorted endpoints with each address once. An address may be in several slices: while
// it moves from one to another, and with different ports. Of different states, the better one
// counts.
func merge(sorted []endpoint) []endpoint {
	out := sorted[:0]
	for _, e := range sorted {
		if n := len(out); n > 0 && out[n-1].addr == e.addr {
			out[n-1] = better(out[n-1], e)
		} else {
			out = append(out, e)
		}
	}
	return out
}

func better(a, b endpoint) endpoint {
	switch c := cmp.Compare(usefulness[a.state], usefulness[b.state]); {
	case c < 0:
		return a
	case c > 0:
		return b
	}
	if !slices.Equal(a.targets, b.targets) {
		targets := slices.Clone(a.targets)
		for i, t := range b.targets {
			targets[i] = cmp.Or(targets[i], t)
		}
		a.targets = targets
	}
	a.pod = cmp.Or(a.pod, b.pod)
	a.hostname = cmp.Or(a.hostname, b.hostname)
	a.zone = cmp.Or(a.zone, b.zone)
	return a
}

func anyReady(list []endpoint) bool {
	return slices.ContainsFunc(list, func(e endpoint) bool { return e.state == v1alpha1.EndpointReady })
}

// group returns sorted endpoints as records have them: grouped by their targets.
func group(list []endpoint) []v1alpha1.ExportedEndpoints {
	sorted := list
	byTargets := func(a, b endpoint) int { return slices.Compare(a.targets, b.targets) }
	if !slices.IsSortedFunc(sorted, byTargets) { // mostly, all have the same
		sorted = slices.Clone(list)
		slices.SortStableFunc(sorted, byTargets)
	}
	var out []v1alpha1.ExportedEndpoints
	for i, e := range sorted {
		if i == 0 || !slices.Equal(sorted[i-1].targets, e.targets) {
			out = append(out, v1alpha1.ExportedEndpoints{Targets: e.targets})
		}
		last := &out[len(out)-1]
		last.Pods = append(last.Pods, v1alpha1.ExportedEndpoint{
			IP:       e.addr.String(),
			Hostname: e.hostname,
			Zone:     e.zone,
			State:    e.state,
		})
	}
	return out
}

// publish gives a record as many of sorted endpoints as it can have, from the first. It returns the
// rest.
func publish(r *v1alpha1.ExportedService, list []endpoint) (rest []endpoint) {
	fits := func(n int) bool {
		r.Endpoints = group(list[:n])
		return len(r.Endpoints) <= v1alpha1.MaxExportedGroups && jsonSize(r) <= maxRecord
	}
	n := min(len(list), maxPods)
	if r.Headless {
		n = min(len(list), maxEndpoints)
	}
	if !fits(n) {
		n = sort.Search(n, func(i int) bool { return !fits(i + 1) })
		r.Endpoints = group(list[:n])
	}
	return list[n:]
}
