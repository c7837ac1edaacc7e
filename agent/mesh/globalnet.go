package mesh

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
	"subctl/globalnet"
)

// Globalnet is the role of the agent that allocates the global addresses of its cluster: it writes the
// statuses of the objects that request some, and makes such objects for exported Services, for pods with
// addresses of their own, and for the cluster itself. There is one of it in a cluster, on any node, and it
// accesses no kernel: gateways translate addresses by what the statuses say.
func Globalnet() Role {
	return Role{
		Name: "globalnet", MetricsPort: dataplane.GlobalnetMetricsPort, ProbePort: dataplane.GlobalnetProbePort,
		Resync: time.Minute,
		Watches: []Object{
			&v1alpha1.Submariner{}, &corev1.Node{}, &corev1.Namespace{}, &corev1.Pod{}, &corev1.Service{}, &discoveryv1.EndpointSlice{},
			&mcsv1alpha1.ServiceExport{}, &submarinerv1.ClusterGlobalEgressIP{}, &submarinerv1.GlobalEgressIP{}, &submarinerv1.GlobalIngressIP{},
		},
		Parts:  []Part{Allocations},
		Plan:   planGlobalnet,
		Report: reportGlobalnet,
	}
}

// Addresses is what the globalnet agent has decided.
type Addresses struct {
	Memory *globalnet.Memory
	// Used are the allocated addresses by kind, for metrics.
	Used map[string]int

	allocated []allocated
	wanted    wanted
}

// planGlobalnet allocates the global addresses of the cluster. The kernel of the node holds nothing of it.
func planGlobalnet(s Snapshot) (Plan, error) {
	network, err := globalNetwork(s)
	if err != nil {
		return Plan{}, err
	}
	a := &Addresses{Used: map[string]int{}, wanted: readWanted(s, network)}
	a.allocated = readAllocated(s, a.wanted)
	var requests []globalnet.Request
	var of []int
	for i := range a.allocated {
		if r := &a.allocated[i]; r.mistake == "" || len(r.held) > 0 {
			requests = append(requests, r.request())
			of = append(of, i)
		}
	}
	grants, memory := globalnet.Allocate(network, requests, s.Now, s.Allocated)
	for k, i := range of {
		a.allocated[i].grant = grants[k]
		a.Used[a.allocated[i].kind] += len(grants[k].Addrs)
	}
	a.Memory = memory
	a.selectPods(s)
	return Plan{State: dataplane.State{}, Addresses: a}, nil
}

// globalNetwork returns the global network of the cluster; the zero Prefix if it has none, or leaves.
func globalNetwork(s Snapshot) (netip.Prefix, error) {
	subs := List[*v1alpha1.Submariner](s)
	if len(subs) == 0 {
		return netip.Prefix{}, ErrNotJoined
	}
	sub := subs[0]
	if sub.Spec.GlobalCIDR == "" || sub.DeletionTimestamp != nil {
		return netip.Prefix{}, nil
	}
	network, err := netip.ParsePrefix(sub.Spec.GlobalCIDR)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("globalCIDR %q of the Submariner is not a network: run subctl join again", sub.Spec.GlobalCIDR)
	}
	return network.Masked(), nil
}

// maxWrites is the most objects that the globalnet agent writes in one loop: they take well less than the time
// that a loop has for its report. Loops follow each other until all are written.
const maxWrites = 400

// reportGlobalnet returns the objects to write: first those that request addresses, then statuses.
func reportGlobalnet(_ Snapshot, p Plan, o Outcome) Report {
	var r Report
	a := p.Addresses
	if a == nil || o.failure() != nil {
		return r // what has not been recorded is not given to anybody
	}
	r.Apply, r.Delete = a.wanted.missing, a.wanted.needless
	leaving := map[types.UID]bool{}
	for _, obj := range r.Delete {
		leaving[obj.GetUID()] = true
	}
	for i := range a.allocated {
		if obj := a.allocated[i].status(o.Now); obj != nil && !leaving[obj.GetUID()] {
			r.UpdateStatus = append(r.UpdateStatus, obj)
		}
	}
	r.UpdateStatus = append(r.UpdateStatus, a.exportStatuses(o.Now)...)
	left := maxWrites - min(len(r.UpdateStatus), maxWrites/2) // half of them are for statuses, even if all else fails
	r.Delete = r.part(r.Delete, left-min(len(r.Apply), left/2))
	r.Apply = r.part(r.Apply, left-len(r.Delete))
	r.UpdateStatus = r.part(r.UpdateStatus, maxWrites-len(r.Delete)-len(r.Apply))
	return r
}

// part returns the first objects of a list, at most the given number. Namespaces take turns: a quota may refuse all objects of one namespace, which must
// not delay the others.
func (r *Report) part(all []Object, most int) []Object {
	if len(all) <= most {
		return all
	}
	r.More = true
	turns := make(map[Object]int, len(all))
	in := map[string]int{}
	for _, o := range all {
		turns[o] = in[o.GetNamespace()]
		in[o.GetNamespace()]++
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Object) int { return cmp.Compare(turns[a], turns[b]) })
	return all[:most]
}
