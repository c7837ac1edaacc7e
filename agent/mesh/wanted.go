package mesh

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/globalnet"
)

// wanted is the objects that the globalnet agent makes. A cluster may need many thousands of GlobalIngressIPs: objects of the API are made
// only to be written.
type wanted struct {
	network   netip.Prefix
	endpoints globalnet.Endpoints
	leaving   bool     // the cluster leaves
	several   bool     // several gateways may be active
	egress    []string // names of the ClusterGlobalEgressIPs that gateways use
	gateways  []string // names of the gateway nodes that are not to be drained, sorted, if several may be active
	exports   []export
	odd       []Object // pods and namespaces whose annotation has no effect, at most maxOdd

	have    []*slimIngress // all GlobalIngressIPs, sorted
	wants   []int32        // by GlobalIngressIP that there is: the number of its want, plus 1; 0 for none
	ingress []want
	fresh   map[types.NamespacedName]int32 // the numbers of wants whose objects do not exist
	ending  map[types.NamespacedName]bool  // GlobalIngressIPs of pods that end: they stay until Kubernetes deletes them with the pods
	missing []draft                        // to apply
	// needless are objects that an agent has made and nobody needs any more, to delete.
	needless []draft
}

// want is a GlobalIngressIP that the cluster needs. Kubernetes deletes it with its owner: a pod or, for a Service, the ServiceExport.
type want struct {
	owner    Object
	at       int32 // its index in wanted.have; -1 if it does not exist
	neededBy int32 // the number of the last export that needs it, plus 1
	target   target
	endpoint ipv4
}

// draft is an object that may be written. There may be many more than one loop writes.
type draft interface {
	GetNamespace() string
	// draw returns the object of the API.
	draw(now time.Time) Object
}

// drawn is an object of the API.
type drawn struct{ Object }

func (d drawn) draw(time.Time) Object { return d.Object }

// Ours returns the labels of all objects that the globalnet agent makes; some have others, too.
func Ours() map[string]string {
	return map[string]string{submarinerv1.ManagedByLabel: submarinerv1.ManagedBy}
}

// IsOurs reports whether the globalnet agent has made an object.
func IsOurs(o Object) bool {
	return o.GetLabels()[submarinerv1.ManagedByLabel] == submarinerv1.ManagedBy
}

// readWanted returns the objects that the cluster needs, and the changes that lead to them.
func readWanted(s Snapshot, network netip.Prefix) wanted {
	sub := List[*v1alpha1.Submariner](s)[0]
	nets, _ := parseCIDRs("clusterCIDR", sub.Spec.ClusterCIDR) // gateways report a mistake
	pods := List[*slimPod](s)
	w := wanted{
		network: network, leaving: sub.DeletionTimestamp != nil, endpoints: globalnet.NewEndpoints(nets, pods), have: List[*slimIngress](s),
		fresh: map[types.NamespacedName]int32{}, ending: map[types.NamespacedName]bool{},
	}
	w.wants, w.ingress = make([]int32, len(w.have)), make([]want, 0, len(w.have)+64)
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

// readGateways determines which ClusterGlobalEgressIPs there are: one for each gateway node, if there are several; and one for the cluster, unless several
// gateways may be active.
func (w *wanted) readGateways(s Snapshot) {
	w.several = List[*v1alpha1.Submariner](s)[0].Spec.MultiActiveGatewayEnabled
	nodes := slices.DeleteFunc(slices.Clone(List[*corev1.Node](s)), func(n *corev1.Node) bool { return !IsGatewayNode(n) })
	if !w.several {
		w.egress = []string{submarinerv1.ClusterEgress}
	}
	if w.several || len(nodes) > 1 {
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

func (w *wanted) compareEgress(s Snapshot) {
	have, freed := map[string]bool{}, 0
	for _, o := range List[*submarinerv1.ClusterGlobalEgressIP](s) {
		have[o.Name] = true
		if IsOurs(o) && o.DeletionTimestamp == nil && !slices.Contains(w.egress, o.Name) {
			w.needless = append(w.needless, drawn{o})
			freed += len(o.Status.AllocatedIPs)
		}
	}
	names := slices.DeleteFunc(slices.Clone(w.egress), func(name string) bool { return have[name] })
	for _, name := range names {
		n := submarinerv1.DefaultClusterEgressIPs
		if s.Allocated != nil {
			n = max(1, min(n, w.room(name, len(names), s.Allocated.Usage().Free()+freed)))
		}
		w.missing = append(w.missing, drawn{&submarinerv1.ClusterGlobalEgressIP{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: Ours()},
			Spec:       submarinerv1.ClusterGlobalEgressIPSpec{NumGlobalIPs: &n},
		}})
	}
}

// room returns the number of addresses that a new ClusterGlobalEgressIP may have, if as many as given are missing, for the free addresses: fewer than
// usual, rather than none for some. A gateway with an active one beside it needs few.
func (w *wanted) room(name string, missing, free int) int {
	switch {
	case w.several:
		return free / (missing + 1) // as many are left for everything else
	case name == submarinerv1.ClusterEgress:
		return free - (missing - 1)
	}
	const share = 64 // of the free addresses
	return free / share
}

// compareIngress finds the GlobalIngressIPs that are missing, wrong, or needless, and the exports whose names are taken.
func (w *wanted) compareIngress() {
	for i, o := range w.have {
		if o.ours && !o.ending && w.wants[i] == 0 && !w.ending[KeyOf(o)] {
			w.needless = append(w.needless, o)
		}
	}
	for i := range w.exports {
		for _, n := range w.exports[i].needs {
			if k := &w.ingress[n]; k.at >= 0 && !w.have[k.at].ours && !w.have[k.at].is(k) {
				w.exports[i].trouble().taken = k.name()
			}
		}
	}
	for _, key := range sortedKeys(w.fresh) {
		w.missing = append(w.missing, &w.ingress[w.fresh[key]])
	}
	for i, o := range w.have {
		if n := w.wants[i]; n > 0 && o.ours {
			if k := &w.ingress[n-1]; !o.is(k) || o.ownerUID != k.owner.GetUID() || o.endpoint != k.endpoint {
				w.missing = append(w.missing, k)
			}
		}
	}
}

// is reports whether the spec of an object is as wanted. Then its ownerUID, if there is one, is of an owner with the right kind and name.
func (o *slimIngress) is(k *want) bool { return o.target == k.target && o.ref == k.owner.GetName() }

func sortedKeys[V any](m map[types.NamespacedName]V) []types.NamespacedName {
	out := make([]types.NamespacedName, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return compareKeys(a.Namespace, a.Name, b) })
	return out
}

// search returns the number of the object with a namespace and a name in a sorted list; false if there is none.
func search[P interface {
	compareTo(types.NamespacedName) int
}](in []P, namespace, name string) (int, bool) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	return sort.Find(len(in), func(i int) int { return -in[i].compareTo(key) })
}

// find returns the object with a namespace and a name in a sorted list; nil if there is none.
func find[T any, P interface {
	*T
	compareTo(types.NamespacedName) int
}](in []P, namespace, name string) P {
	if i, found := search(in, namespace, name); found {
		return in[i]
	}
	return nil
}

// want adds a GlobalIngressIP. It returns the number of the one that has its name, and whether that stands for the same: an exported Service may
// be named like the GlobalIngressIP of a pod.
func (w *wanted) want(k want) (number int32, same bool) {
	name := k.name()
	at, found := search(w.have, k.owner.GetNamespace(), name)
	number = int32(len(w.ingress))
	if found {
		if w.wants[at] > 0 {
			number = w.wants[at] - 1
			return number, w.ingress[number].same(k)
		}
		k.at, w.wants[at] = int32(at), number+1
	} else {
		key := types.NamespacedName{Namespace: k.owner.GetNamespace(), Name: name}
		if other, is := w.fresh[key]; is {
			return other, w.ingress[other].same(k)
		}
		k.at, w.fresh[key] = -1, number
	}
	w.ingress = append(w.ingress, k)
	return number, true
}

// same reports whether two objects of the same namespace stand for the same.
func (k *want) same(o want) bool {
	return k.target == o.target && k.owner.GetName() == o.owner.GetName() && k.endpoint == o.endpoint
}

// name returns the name of the object.
func (k *want) name() string {
	switch name := k.owner.GetName(); k.target {
	case targetPod:
		return podIngress(name)
	case targetEndpoint:
		return fmt.Sprintf("ep-%.44s-%.15s", name, k.endpoint) // upstream
	default:
		return name
	}
}

// GetNamespace implements draft.
func (k *want) GetNamespace() string { return k.owner.GetNamespace() }

// draw implements draft.
func (k *want) draw(time.Time) Object {
	of := ingress{k.owner.GetName(), k.target, k.endpoint}
	o := &submarinerv1.GlobalIngressIP{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.GetNamespace(), Name: k.name(), Labels: Ours(), OwnerReferences: of.owner(k.owner.GetUID())},
		Spec:       of.spec(),
	}
	if o.Spec.ServiceRef != nil {
		o.Labels[submarinerv1.ServiceRefLabel] = o.Spec.ServiceRef.Name
	}
	if k.endpoint.is {
		o.Annotations = map[string]string{submarinerv1.HeadlessEndpointAnnotation: k.endpoint.String()}
	}
	return o
}

// maxOdd is the maximum number of annotations without effect that are reported: users of namespaces decide how many there are.
const maxOdd = 1000

// ownPods gives the pods that ask for it addresses of their own.
func (w *wanted) ownPods(s Snapshot, pods []*slimPod) {
	all := map[string]bool{}
	for _, n := range List[*corev1.Namespace](s) {
		all[n.Name] = asksForOwn(n)
		if asksOddly(n) && len(w.odd) < maxOdd {
			w.odd = append(w.odd, n)
		}
	}
	for _, p := range pods {
		if p.odd && len(w.odd) < maxOdd {
			w.odd = append(w.odd, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.GetNamespace(), Name: p.name, UID: p.GetUID()}})
		}
		if p.own || all[p.GetNamespace()] {
			w.pod(p)
		}
	}
}

// pod gives a pod an address of its own, unless it has no address in the pod network. A pod that ends keeps the one it has: its connections may go
// on until then. pod reports whether the pod needs one, and returns what want does.
func (w *wanted) pod(p *slimPod) (number int32, same, needs bool) {
	switch {
	case p.none:
		return 0, false, false
	case p.ending:
		w.ending[types.NamespacedName{Namespace: p.GetNamespace(), Name: podIngress(p.name)}] = true
		return 0, false, false
	}
	number, same = w.want(want{owner: p, target: targetPod})
	return number, same, true
}

// podIngress returns the name of the GlobalIngressIP of a pod, as upstream, except that long names stay different.
func podIngress(pod string) string {
	const most = 59 // upstream
	if len(pod) <= most {
		return "pod-" + pod
	}
	h := fnv.New32a()
	h.Write([]byte(pod))
	return fmt.Sprintf("pod-%s-%08x", strings.TrimRight(pod[:most-9], "-."), h.Sum32())
}
