package allocator

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// annotationWrite is a pod or a Service whose annotation with its global address changes.
type annotationWrite struct {
	role.Object        // without anything else
	addr        string // empty to remove the annotation
}

// build implements pendingWrite.
func (d annotationWrite) build(time.Time) role.Object {
	d.SetAnnotations(map[string]string{submarinerv1.GlobalIPAnnotation: d.addr})
	return d.Object
}

// differs reports whether an object does not have the annotation for an address; empty for none.
func differs(o role.Object, addr string) bool {
	is, has := o.GetAnnotations()[submarinerv1.GlobalIPAnnotation]
	return has != (addr != "") || is != addr
}

// annotations returns the pods and Services whose annotations change: those with an address get it
// as soon as it is in the status of a GlobalIngressIP, and all others lose the annotation, whoever
// has written it.
func (a *Addresses) annotations(s role.Snapshot) (out []pendingWrite) {
	pods := role.List[*corev1.Pod](s)
	services := role.List[*corev1.Service](s)
	ofPods := make([]*submarinerv1.GlobalIngressIP, len(pods))
	ofServices := make([]*submarinerv1.GlobalIngressIP, len(services))
	for i := range a.ingress {
		x := &a.ingress[i]
		o := a.wanted.have[i]
		if held := parseIPv4(o.Status.AllocatedIP); a.wanted.useless[o] != nil || !held.IsValid() ||
			len(x.addrs) == 0 || x.addrs[0] != held {
			continue
		}
		if name, is := targetPod(o); is {
			annotate(ofPods, pods, o, name)
		} else if name, is := targetService(o); is {
			annotate(ofServices, services, o, name)
		}
	}
	for i, p := range pods {
		if addr := addressIn(ofPods[i]); differs(p, addr) {
			out = append(
				out,
				annotationWrite{
					&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID}},
					addr,
				},
			)
		}
	}
	for i, v := range services {
		if addr := addressIn(ofServices[i]); differs(v, addr) {
			out = append(out,
				annotationWrite{
					&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Name}},
					addr,
				})
		}
	}
	return out
}

// annotate notes that a GlobalIngressIP stands for the object with a name; of several, the oldest
// counts.
func annotate[P keyed](of []*submarinerv1.GlobalIngressIP, objs []P, o *submarinerv1.GlobalIngressIP, name string) {
	if i, found := search(objs, o.Namespace, name); found && (of[i] == nil || olderIngress(o, of[i])) {
		of[i] = o
	}
}

// addressIn returns the address in the status of a GlobalIngressIP; empty for nil.
func addressIn(o *submarinerv1.GlobalIngressIP) string {
	if o == nil {
		return ""
	}
	return o.Status.AllocatedIP
}
