package allocator

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/globalnet"
)

// needed is the objects that the globalnet agent makes. A cluster may need many thousands of
// GlobalIngressIPs: objects of the API are made only to be written.
type needed struct {
	network   netip.Prefix
	endpoints globalnet.Endpoints
	leaving   bool     // the cluster leaves
	several   bool     // several gateways may be active
	standbys  bool     // only one gateway is active, and there are others
	egress    []string // names of the ClusterGlobalEgressIPs that gateways use
	gateways  []string // names of the gateway nodes that are not to be drained, sorted, if several may be active
	exports   []export
	odd       []role.Object // pods and namespaces whose annotation has no effect, at most maxWarnings

	have    []*submarinerv1.GlobalIngressIP // all, sorted
	wants   []int32                         // by GlobalIngressIP that there is: the number of its want, plus 1; 0 for none
	ingress []ingress
	fresh   map[types.NamespacedName]int32 // the numbers of wants whose objects do not exist
	// useless are GlobalIngressIPs without effect; see duplicates.
	useless map[*submarinerv1.GlobalIngressIP]*submarinerv1.GlobalIngressIP
	// GlobalIngressIPs of pods that end: they stay until Kubernetes deletes them with the pods
	ending  map[types.NamespacedName]bool
	missing []pendingWrite // to apply
	// needless are objects that an agent has made and nobody needs any more, to delete.
	needless []object
}

// pendingWrite is an object that may be written. There may be many more than one loop writes.
type pendingWrite interface {
	GetNamespace() string
	// build returns the object of the API.
	build(now time.Time) role.Object
}

// object is an object of the API.
type object struct{ role.Object }

func (d object) build(time.Time) role.Object { return d.Object }

// readNeeded returns the objects that the cluster needs, and the changes that lead to them.
func readNeeded(s role.Snapshot, network netip.Prefix) needed {
	sub := role.List[*v1alpha1.Submariner](s)[0]
	pods := role.List[*corev1.Pod](s)
	w := needed{
		network:   network,
		leaving:   sub.DeletionTimestamp != nil,
		endpoints: globalnet.NewEndpoints(s.PodNetworks(), podsOf(pods)),
		have:      role.List[*submarinerv1.GlobalIngressIP](s),
		fresh:     map[types.NamespacedName]int32{},
		ending:    map[types.NamespacedName]bool{},
	}
	w.wants, w.ingress = make([]int32, len(w.have)), make([]ingress, 0, len(w.have)+64)
	if network.IsValid() {
		w.readGateways(s)
		w.ownPods(s, pods)
	}
	w.export(s, pods)
	w.compareEgress(s)
	w.compareIngress()
	w.compareEndpoints(pods)
	w.endpoints = globalnet.Endpoints{} // it has an index of all pods
	return w
}

// readGateways determines which ClusterGlobalEgressIPs there are: one for each gateway node, if
// there are several; and one for the cluster, unless several gateways may be active.
func (w *needed) readGateways(s role.Snapshot) {
	w.several = role.List[*v1alpha1.Submariner](s)[0].Spec.MultiActiveGatewayEnabled
	nodes := slices.DeleteFunc(slices.Clone(role.List[*corev1.Node](s)),
		func(n *corev1.Node) bool { return !role.IsGatewayNode(n) })
	if !w.several {
		w.egress = []string{submarinerv1.ClusterEgress}
	}
	w.standbys = !w.several && len(nodes) > 1
	if w.several || w.standbys {
		for _, n := range nodes {
			w.egress = append(w.egress, n.Name+submarinerv1.GatewayEgressSuffix)
		}
	}
	if !w.several {
		return
	}
	var drained []string
	for _, n := range nodes {
		if submarinerv1.ToBeDrained(n.Annotations) {
			drained = append(drained, n.Name)
		} else {
			w.gateways = append(w.gateways, n.Name)
		}
	}
	if len(w.gateways) == 0 { // then drained gateways are used
		w.gateways = drained
	}
	slices.Sort(w.gateways)
}

func (w *needed) compareEgress(s role.Snapshot) {
	have := map[string]bool{}
	freed := 0
	for _, o := range role.List[*submarinerv1.ClusterGlobalEgressIP](s) {
		have[o.Name] = true
		if role.IsOurs(o) && o.DeletionTimestamp == nil && !slices.Contains(w.egress, o.Name) {
			w.needless = append(w.needless, object{o})
			freed += len(o.Status.AllocatedIPs)
		}
	}
	names := slices.DeleteFunc(slices.Clone(w.egress), func(name string) bool { return have[name] })
	for _, name := range names {
		n := submarinerv1.DefaultClusterEgressIPs
		if allocated := addressMemory(s).Allocated; allocated != nil {
			n = max(1, min(n, w.room(name, len(names), allocated.Usage().Free()+freed)))
		}
		w.missing = append(w.missing, object{&submarinerv1.ClusterGlobalEgressIP{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: role.Ours()},
			Spec:       submarinerv1.ClusterGlobalEgressIPSpec{NumGlobalIPs: &n},
		}})
	}
}

// room returns the number of addresses that a new ClusterGlobalEgressIP may have, if as many as
// given are missing, for the free addresses: fewer than usual, rather than none for some. A gateway
// with an active one beside it needs few.
func (w *needed) room(name string, missing, free int) int {
	switch {
	case w.several:
		return free / (missing + 1) // as many are left for everything else
	case name == submarinerv1.ClusterEgress:
		return free - (missing - 1)
	}
	const share = 64 // of the free addresses
	return free / share
}

// compareIngress finds the GlobalIngressIPs that are missing, wrong, or needless, and the exports
// whose names are taken.
func (w *needed) compareIngress() {
	for i, o := range w.have {
		if w.wants[i] == 0 && role.IsOurs(o) && o.DeletionTimestamp == nil && !w.ending[role.KeyOf(o)] {
			w.needless = append(w.needless, object{o})
		}
	}
	for i := range w.exports {
		for _, n := range w.exports[i].needs {
			if k := &w.ingress[n]; k.at >= 0 && !role.IsOurs(w.have[k.at]) && !k.matches(w.have[k.at]) {
				w.exports[i].trouble().taken = k.name()
			}
		}
	}
	for _, key := range sortedKeys(w.fresh) {
		w.missing = append(w.missing, &w.ingress[w.fresh[key]])
	}
	for i, o := range w.have {
		if n := w.wants[i]; n > 0 && role.IsOurs(o) {
			if k := &w.ingress[n-1]; !k.keeps(o) {
				w.missing = append(w.missing, k)
			}
		}
	}
}
