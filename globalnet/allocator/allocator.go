// Package allocator decides which objects of a cluster have which global addresses: it is the role
// of the agent that writes them into the statuses. A request is an object that asks for addresses
// (requests.go); needed.go and exports.go have the objects that the agent makes itself.
package allocator

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
	"subctl/globalnet"
)

// Role is the role of the agent that allocates the global addresses of its cluster: it writes
// the statuses of the objects that request some, and makes such objects for exported Services, for
// pods with addresses of their own, and for the cluster itself. There is one of it in a cluster, on
// any node, and it accesses no kernel: gateways translate addresses by what the statuses say.
func Role() role.Role {
	return role.Role{
		Name: "globalnet", MetricsPort: dataplane.GlobalnetMetricsPort, ProbePort: dataplane.GlobalnetProbePort,
		Resync: time.Minute,
		Watches: []role.Object{
			&v1alpha1.Submariner{},
			&corev1.Node{},
			&corev1.Namespace{},
			&corev1.Pod{},
			&corev1.Service{},
			&discoveryv1.EndpointSlice{},
			&mcsv1alpha1.ServiceExport{},
			&submarinerv1.ClusterGlobalEgressIP{},
			&submarinerv1.GlobalEgressIP{},
			&submarinerv1.GlobalIngressIP{},
		},
		Slim:   Slim,
		Parts:  []role.Part{role.Allocations},
		Plan:   planGlobalnet,
		Report: reportGlobalnet,
	}
}

// AddressMemory is what one plan of the globalnet agent hands to the next, as Snapshot.Previous.
type AddressMemory struct {
	// Allocated are the addresses that are allocated, or rest.
	Allocated *globalnet.Memory
	// Lacking has the times since which ServiceExports lack a Service, endpoints or addresses, by
	// UID, until their conditions change: see settleTime.
	Lacking map[types.UID]time.Time
}

// Addresses holds the decisions of the globalnet agent.
type Addresses struct {
	Memory AddressMemory
	// Used are the allocated addresses by kind, for metrics.
	Used map[string]int

	egress, ingress []allocated
	wanted          needed
	exports         []pendingWrite // ServiceExports whose conditions change
	again           time.Duration  // after which the first of Lacking is due; 0 for none
}

// planGlobalnet allocates the global addresses of the cluster. The kernel of the node holds nothing
// of it.
func planGlobalnet(s role.Snapshot) (role.Plan, error) {
	network, err := GlobalNetwork(s)
	if err != nil {
		return role.Plan{}, err
	}
	a := &Addresses{Used: map[string]int{}, wanted: readNeeded(s, network)}
	a.egress, a.ingress = readAllocated(s, &a.wanted)
	a.allocate(s)
	a.selectPods(s)
	a.exportStatuses(s)
	return role.Plan{State: dataplane.State{}, Decisions: a}, nil
}

// addressMemory returns what the last plan has handed to this one.
func addressMemory(s role.Snapshot) AddressMemory {
	m, _ := s.Previous.(AddressMemory)
	return m
}

// allocate grants addresses to all objects that request some, or have some.
func (a *Addresses) allocate(s role.Snapshot) {
	n := len(a.egress) + len(a.ingress)
	asking := asking{of: make([]*allocated, 0, n), held: make([][]netip.Addr, 0, n)}
	held := make([]netip.Addr, 0, n) // of many objects: most have one
	for _, list := range [][]allocated{a.egress, a.ingress} {
		for i := range list {
			x := &list[i]
			first := len(held)
			held = x.held(held)
			if its := held[first:len(held):len(held)]; x.mistake == nil || len(its) > 0 {
				asking.of, asking.held = append(asking.of, x), append(asking.held, its)
			}
		}
	}
	grants, memory := globalnet.Allocate(a.wanted.network, asking, s.Now, addressMemory(s).Allocated)
	for k, x := range asking.of {
		x.addrs = grants[k].Addrs
		x.missing = grants[k].Missing
		a.Used[x.kind()] += len(x.addrs)
	}
	a.Memory.Allocated = memory
}

// asking implements globalnet.Requests.
type asking struct {
	of   []*allocated
	held [][]netip.Addr // what each of them holds
}

func (a asking) Len() int { return len(a.of) }

func (a asking) At(i int) globalnet.Request { return a.of[i].request(a.held[i]) }

// HasGlobalNetwork reports whether the cluster has a network of global addresses.
func HasGlobalNetwork(s role.Snapshot) bool {
	sub := s.Submariner()
	return sub != nil && sub.Spec.GlobalCIDR != ""
}

// GlobalNetwork returns the global network of the cluster; the zero Prefix if it has none, or
// leaves.
func GlobalNetwork(s role.Snapshot) (netip.Prefix, error) {
	subs := role.List[*v1alpha1.Submariner](s)
	if len(subs) == 0 {
		return netip.Prefix{}, role.ErrNotJoined
	}
	sub := subs[0]
	if sub.Spec.GlobalCIDR == "" || sub.DeletionTimestamp != nil {
		return netip.Prefix{}, nil
	}
	own, _ := role.OwnNetworks(sub.Spec) // gateways report the mistake, or one in the others
	if len(own.Global) != 1 {
		return netip.Prefix{}, fmt.Errorf("globalCIDR %q of the Submariner is not a network: run subctl join again",
			sub.Spec.GlobalCIDR)
	}
	return own.Global[0], nil
}

// reportGlobalnet returns the objects to write: first requests for addresses, then statuses, and
// then annotations, on which nothing depends. All together are at most maxWrites.
func reportGlobalnet(s role.Snapshot, p role.Plan, o role.Outcome) role.Report {
	var r role.Report
	a, is := p.Decisions.(*Addresses)
	if !is {
		return r
	}
	for _, about := range a.wanted.odd {
		r.Warn = append(r.Warn, role.Warning{About: about, Condition: metav1.Condition{
			Type: "OwnGlobalIP", Reason: submarinerv1.ReasonInvalidInput,
			Message: fmt.Sprintf(
				"the value of annotation %s is not %q, so the annotation has no effect: correct the value, or remove the annotation",
				submarinerv1.OwnGlobalIPAnnotation, submarinerv1.OwnGlobalIP),
		}})
	}
	r.Warn = append(r.Warn, a.waitingPods()...)
	if o.Failure() != nil {
		return r // what has not been recorded is not given to anybody
	}
	leaving := map[role.Object]bool{}
	for _, d := range a.wanted.needless {
		leaving[d.Object] = true
	}
	var statuses []pendingWrite
	for _, list := range [][]allocated{a.egress, a.ingress} {
		for i := range list {
			if x := &list[i]; !leaving[x.object] && x.changed(o.Now) {
				statuses = append(statuses, statusWrite{x})
			}
		}
	}
	statuses = append(statuses, a.exports...)
	r.Again = a.again
	left := role.MaxWrites - min(
		len(statuses),
		role.MaxWrites/2,
	) // half of them are for statuses, even if all else fails
	r.Delete = part(&r, a.wanted.needless, left-min(len(a.wanted.missing), left/2), o.Now)
	r.Apply = part(&r, a.wanted.missing, left-len(r.Delete), o.Now)
	r.UpdateStatus = part(&r, statuses, role.MaxWrites-len(r.Delete)-len(r.Apply), o.Now)
	if !r.More {
		r.Annotate = part(&r, a.annotations(s), role.MaxWrites-len(r.Delete)-len(r.Apply)-len(r.UpdateStatus), o.Now)
	}
	return r
}

// part returns the first objects of a list, at most the given number. Namespaces take turns: a
// quota may refuse all objects of one namespace, which must not delay the others.
func part[D pendingWrite](r *role.Report, all []D, most int, now time.Time) []role.Object {
	if len(all) > most {
		r.More = true
		turns := make([]int, len(all))
		in := map[string]int{}
		order := make([]int, len(all))
		for i, d := range all {
			order[i] = i
			turns[i] = in[d.GetNamespace()]
			in[d.GetNamespace()]++
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(turns[a], turns[b]) })
		first := make([]D, most)
		for k := range first {
			first[k] = all[order[k]]
		}
		all = first
	}
	var out []role.Object
	for _, d := range all {
		out = append(out, d.build(now))
	}
	return out
}
