package mesh

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// note is the IPv4 address in the annotation of a pod or a Service that tells users its global
// address. The zero value is no annotation, and noteOdd is any text that is no address.
type note [4]byte

var noteOdd = note{255, 255, 255, 255} // nobody has this address

func newNote(annotations map[string]string) note {
	text, has := annotations[submarinerv1.GlobalIPAnnotation]
	if !has {
		return note{}
	}
	if ip := parseIPv4(text); ip.is && !ip.addr().IsUnspecified() {
		return ip.bytes
	}
	return noteOdd
}

// noteDraft is a pod or a Service whose annotation changes.
type noteDraft struct {
	Object // without anything else
	note   note
}

// draw implements draft.
func (d noteDraft) draw(time.Time) Object {
	var text string // to remove it
	if d.note != (note{}) {
		text = netip.AddrFrom4(d.note).String()
	}
	d.SetAnnotations(map[string]string{submarinerv1.GlobalIPAnnotation: text})
	return d.Object
}

// notes returns the pods and Services whose annotations change: those with an address get it as
// soon as it is in the status of a GlobalIngressIP, and all others lose the annotation, whoever has
// written it.
func (a *Addresses) notes(s Snapshot) (out []draft) {
	pods := List[*slimPod](s)
	services := List[*slimService](s)
	ofPods := make([]*slimIngress, len(pods))
	ofServices := make([]*slimIngress, len(services))
	for i := range a.ingress {
		x := &a.ingress[i]
		o := a.wanted.have[i]
		if a.wanted.useless[o] != nil || !o.held.is || len(x.addrs) == 0 || x.addrs[0] != o.held.addr() {
			continue
		}
		if name, is := o.pod(); is {
			noteOf(ofPods, pods, o, name)
		} else if name, is := o.service(); is {
			noteOf(ofServices, services, o, name)
		}
	}
	for i, p := range pods {
		if n := ofPods[i].note(); n != p.note {
			out = append(
				out,
				noteDraft{
					&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.GetNamespace(), Name: p.name, UID: p.uid}},
					n,
				},
			)
		}
	}
	for i, v := range services {
		if n := ofServices[i].note(); n != v.note {
			out = append(out,
				noteDraft{&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: v.GetNamespace(), Name: v.name}}, n})
		}
	}
	return out
}

// noteOf notes that a GlobalIngressIP stands for the object with a name; of several, the oldest
// counts.
func noteOf[P sorted](of []*slimIngress, objs []P, o *slimIngress, name string) {
	if i, found := search(objs, o.GetNamespace(), name); found && (of[i] == nil || o.older(of[i])) {
		of[i] = o
	}
}

// note returns the annotation of what a GlobalIngressIP stands for; none for nil.
func (o *slimIngress) note() note {
	if o == nil {
		return note{}
	}
	return o.held.bytes
}
