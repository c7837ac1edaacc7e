package mesh

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/globalnet"
)

// wanted is the objects that the globalnet agent makes.
type wanted struct {
	network   netip.Prefix
	endpoints globalnet.Endpoints
	egress    []string // names of the ClusterGlobalEgressIPs that gateways use
	gateways  []string // names of the gateway nodes that are not to be drained, sorted, if several may be active
	exports   []export

	ingress map[types.NamespacedName]*submarinerv1.GlobalIngressIP
	ending  map[types.NamespacedName]bool // GlobalIngressIPs of pods that end: they stay until Kubernetes deletes them with the pods
	missing []Object                      // to apply
	// needless are objects that an agent has made and nobody needs any more, to delete.
	needless []Object
}

// managedBy is the label of all objects that subctl makes (cluster.ManagedByLabel).
const managedBy = "app.kubernetes.io/managed-by"

// Ours returns the labels of all objects that the globalnet agent makes; some have others, too.
func Ours() map[string]string { return map[string]string{managedBy: "subctl"} }

// IsOurs reports whether the globalnet agent has made an object.
func IsOurs(o Object) bool { return o.GetLabels()[managedBy] == "subctl" }

// readWanted returns the objects that the cluster needs, and the changes that lead to them.
func readWanted(s Snapshot, network netip.Prefix) wanted {
	pods, _ := parseCIDRs("clusterCIDR", List[*v1alpha1.Submariner](s)[0].Spec.ClusterCIDR) // gateways report a mistake
	w := wanted{network: network, endpoints: globalnet.NewEndpoints(pods, List[*corev1.Pod](s)), ingress: map[types.NamespacedName]*submarinerv1.GlobalIngressIP{}, ending: map[types.NamespacedName]bool{}}
	if network.IsValid() {
		w.readGateways(s)
		w.ownPods(s)
	}
	w.export(s)
	w.compareEgress(s)
	w.compareIngress(s)
	w.compareEndpoints(s)
	return w
}

// readGateways determines which ClusterGlobalEgressIPs there are: one for the cluster, or with several active
// gateways one for each gateway node.
func (w *wanted) readGateways(s Snapshot) {
	if subs := List[*v1alpha1.Submariner](s); !subs[0].Spec.MultiActiveGatewayEnabled {
		w.egress = []string{submarinerv1.ClusterEgress}
		return
	}
	var drained []string
	for _, n := range List[*corev1.Node](s) {
		if !IsGatewayNode(n) {
			continue
		}
		w.egress = append(w.egress, n.Name+submarinerv1.GatewayEgressSuffix)
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
	have := map[string]bool{}
	for _, o := range List[*submarinerv1.ClusterGlobalEgressIP](s) {
		have[o.Name] = true
		if IsOurs(o) && o.DeletionTimestamp == nil && !slices.Contains(w.egress, o.Name) {
			w.needless = append(w.needless, o)
		}
	}
	for _, name := range w.egress {
		if !have[name] {
			n := submarinerv1.DefaultClusterEgressIPs
			w.missing = append(w.missing, &submarinerv1.ClusterGlobalEgressIP{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: Ours()},
				Spec:       submarinerv1.ClusterGlobalEgressIPSpec{NumGlobalIPs: &n},
			})
		}
	}
}

func (w *wanted) compareIngress(s Snapshot) {
	have := map[types.NamespacedName]*submarinerv1.GlobalIngressIP{}
	for _, o := range List[*submarinerv1.GlobalIngressIP](s) {
		key := keyOf(o)
		have[key] = o
		if IsOurs(o) && o.DeletionTimestamp == nil && w.ingress[key] == nil && !w.ending[key] {
			w.needless = append(w.needless, o)
		}
	}
	for i := range w.exports {
		for _, key := range w.exports[i].needs {
			if o := have[key]; o != nil && !IsOurs(o) && !reflect.DeepEqual(o.Spec, w.ingress[key].Spec) {
				w.exports[i].taken = key.Name
			}
		}
	}
	for _, key := range sortedKeys(w.ingress) {
		o, want := have[key], w.ingress[key]
		if o == nil || IsOurs(o) && (!reflect.DeepEqual(o.Spec, want.Spec) || !reflect.DeepEqual(o.OwnerReferences, want.OwnerReferences) || endpointOf(o) != endpointOf(want)) {
			w.missing = append(w.missing, want)
		}
	}
}

// endpointOf returns the endpoint that a GlobalIngressIP stands for; empty if it stands for something else.
func endpointOf(o *submarinerv1.GlobalIngressIP) string {
	return o.Annotations[submarinerv1.HeadlessEndpointAnnotation]
}

func sortedKeys[V any](m map[types.NamespacedName]V) []types.NamespacedName {
	out := make([]types.NamespacedName, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func keyOf(o Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// want adds a GlobalIngressIP, which Kubernetes deletes with its owner. It reports whether none that stands for something else has the name: an
// exported Service may be named like the GlobalIngressIP of a pod.
func (w *wanted) want(o *submarinerv1.GlobalIngressIP, owner Object, version, kind string) (types.NamespacedName, bool) {
	o.Labels = Ours()
	if o.Spec.ServiceRef != nil {
		o.Labels[submarinerv1.ServiceRefLabel] = o.Spec.ServiceRef.Name
	}
	o.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: owner.GetName(), UID: owner.GetUID()}}
	key := keyOf(o)
	if w.ingress[key] == nil {
		w.ingress[key] = o
	}
	return key, reflect.DeepEqual(w.ingress[key].Spec, o.Spec) && endpointOf(w.ingress[key]) == endpointOf(o)
}

// ownPods gives the pods that ask for it addresses of their own.
func (w *wanted) ownPods(s Snapshot) {
	all := map[string]bool{}
	for _, n := range List[*corev1.Namespace](s) {
		all[n.Name] = n.Annotations[submarinerv1.OwnGlobalIPAnnotation] == submarinerv1.OwnGlobalIP
	}
	for _, p := range List[*corev1.Pod](s) {
		if all[p.Namespace] || p.Annotations[submarinerv1.OwnGlobalIPAnnotation] == submarinerv1.OwnGlobalIP {
			w.pod(p)
		}
	}
}

// pod gives a pod an address of its own, unless it has no address in the pod network. A pod that ends keeps the one it has: its connections may go
// on until then. pod reports whether the pod needs one, and returns what want does.
func (w *wanted) pod(p *corev1.Pod) (key types.NamespacedName, free, needs bool) {
	switch {
	case p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.Status.PodIP != "" && !globalnet.PodIP(p).IsValid():
		return key, false, false
	case p.DeletionTimestamp != nil:
		w.ending[types.NamespacedName{Namespace: p.Namespace, Name: podIngress(p.Name)}] = true
		return key, false, false
	}
	key, free = w.want(&submarinerv1.GlobalIngressIP{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: podIngress(p.Name)},
		Spec: submarinerv1.GlobalIngressIPSpec{
			Target: submarinerv1.TargetHeadlessServicePod, PodRef: &corev1.LocalObjectReference{Name: p.Name},
		},
	}, p, "v1", "Pod")
	return key, free, true
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
