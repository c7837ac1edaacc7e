package mesh

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
)

// usualIngress returns a GlobalIngressIP as nearly all are, with everything that the agent knows of
// one.
func usualIngress() *submarinerv1.GlobalIngressIP {
	o := &submarinerv1.GlobalIngressIP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "shop",
			Name:              "pod-web-1",
			UID:               "u",
			ResourceVersion:   "7",
			Generation:        3,
			CreationTimestamp: metav1.Unix(1700000000, 0),
			Labels:            Ours(),
			OwnerReferences:   []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-1", UID: "pod"}},
		},
		Spec: submarinerv1.GlobalIngressIPSpec{
			Target: submarinerv1.TargetHeadlessServicePod,
			PodRef: &corev1.LocalObjectReference{Name: "web-1"},
		},
	}
	o.Status.AllocatedIP = "242.0.0.9"
	o.Status.Conditions = []metav1.Condition{{
		Type:               submarinerv1.ConditionAllocated,
		Status:             metav1.ConditionTrue,
		Reason:             submarinerv1.ReasonAllocated,
		Message:            "allocated 242.0.0.9",
		ObservedGeneration: 3,
		LastTransitionTime: metav1.Unix(1700000001, 0),
	}}
	return o
}

// A slim GlobalIngressIP has all that the agent writes back, whatever somebody else has written
// into the object: no condition of others is lost.
func TestSlimIngress(t *testing.T) {
	usual := newSlimIngress(usualIngress())
	require.Nil(t, usual.odd, "it is compact")
	require.True(t, usual.allocated)
	ref := func(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }
	for name, change := range map[string]func(o *submarinerv1.GlobalIngressIP){
		"usual":            func(*submarinerv1.GlobalIngressIP) {},
		"without a status": func(o *submarinerv1.GlobalIngressIP) { o.Status = submarinerv1.GlobalIngressIPStatus{} },
		"foreign condition": func(o *submarinerv1.GlobalIngressIP) {
			o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{Type: "Theirs", Status: "True"})
		},
		"other message":    func(o *submarinerv1.GlobalIngressIP) { o.Status.Conditions[0].Message += "!" },
		"older generation": func(o *submarinerv1.GlobalIngressIP) { o.Status.Conditions[0].ObservedGeneration = 2 },
		"fraction of a second": func(o *submarinerv1.GlobalIngressIP) {
			o.Status.Conditions[0].LastTransitionTime = metav1.Unix(1700000001, 5)
		},
		"since 1970": func(o *submarinerv1.GlobalIngressIP) {
			o.Status.Conditions[0].LastTransitionTime = metav1.Unix(0, 0)
		},
		"other address": func(o *submarinerv1.GlobalIngressIP) { o.Status.AllocatedIP = "242.0.0.8" },
		"no address":    func(o *submarinerv1.GlobalIngressIP) { o.Status.AllocatedIP = "x" },
		"IPv6 address":  func(o *submarinerv1.GlobalIngressIP) { o.Status.AllocatedIP = "fd00::1" },
		"two owners": func(o *submarinerv1.GlobalIngressIP) {
			o.OwnerReferences = append(o.OwnerReferences, o.OwnerReferences[0])
		},
		"no owner":          func(o *submarinerv1.GlobalIngressIP) { o.OwnerReferences = nil },
		"owner with a flag": func(o *submarinerv1.GlobalIngressIP) { o.OwnerReferences[0].Controller = new(true) },
		"two references":    func(o *submarinerv1.GlobalIngressIP) { o.Spec.ServiceRef = ref("web") },
		"empty reference":   func(o *submarinerv1.GlobalIngressIP) { o.Spec.PodRef = ref("") },
		"other target":      func(o *submarinerv1.GlobalIngressIP) { o.Spec.Target = "Other" },
		"no target":         func(o *submarinerv1.GlobalIngressIP) { o.Spec.Target = "" },
		"made by a user":    func(o *submarinerv1.GlobalIngressIP) { o.Labels = nil },
		"endpoint": func(o *submarinerv1.GlobalIngressIP) {
			o.Spec = submarinerv1.GlobalIngressIPSpec{
				Target:     submarinerv1.TargetHeadlessServiceEndpoints,
				ServiceRef: ref("web"),
			}
			o.OwnerReferences[0] = metav1.OwnerReference{
				APIVersion: mcsv1alpha1.GroupVersion.String(),
				Kind:       "ServiceExport",
				Name:       "web",
				UID:        "e",
			}
			o.Annotations = map[string]string{submarinerv1.HeadlessEndpointAnnotation: "10.244.1.9"}
		},
	} {
		o := usualIngress()
		change(o)
		slim := Slim(o).(*slimIngress)
		require.Equal(t, o, slim.full(), name)
		require.Same(t, slim, Slim(slim), name)
		require.True(t, reflect.DeepEqual(slim, Slim(o.DeepCopy())), name)
	}
}

// A slim ServiceExport has all conditions, too.
func TestSlimExport(t *testing.T) {
	for name, change := range map[string]func(o *mcsv1alpha1.ServiceExport){
		"usual": func(*mcsv1alpha1.ServiceExport) {},
		"foreign condition": func(o *mcsv1alpha1.ServiceExport) {
			o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{Type: "Conflict"})
		},
		"foreign first": func(o *mcsv1alpha1.ServiceExport) { o.Status.Conditions[0].Type = "Theirs" },
		"more to say":   func(o *mcsv1alpha1.ServiceExport) { o.Status.Conditions[1].Message += ", 242.0.0.8" },
		"older":         func(o *mcsv1alpha1.ServiceExport) { o.Status.Conditions[1].ObservedGeneration = 1 },
		"none":          func(o *mcsv1alpha1.ServiceExport) { o.Status.Conditions = nil },
	} {
		o := &mcsv1alpha1.ServiceExport{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:         "shop",
				Name:              "web",
				UID:               "u",
				ResourceVersion:   "7",
				Generation:        2,
				CreationTimestamp: metav1.Unix(1700000000, 0),
			},
		}
		o.Status.Conditions = exported("242.0.0.9")
		for i := range o.Status.Conditions {
			o.Status.Conditions[i].ObservedGeneration = 2
			o.Status.Conditions[i].LastTransitionTime = metav1.Unix(1700000001+int64(i), 0)
		}
		change(o)
		slim := Slim(o).(*slimExport)
		require.Equal(t, o, slim.full(slim.Conditions()), name)
		require.Equal(t, name == "usual", slim.at.is, "%s: it is compact", name)
		require.Same(t, slim, Slim(slim), name)
	}
}

// Two versions of a pod with the same meaning are equal, and keep all labels of the pod.
func TestSlimPod(t *testing.T) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      "web-1",
			UID:       types.UID("u"),
			Labels:    map[string]string{},
		},
	}
	p.Status.PodIP = "10.244.1.9"
	for _, k := range []string{"a", "b", "c", "d", "e"} {
		p.Labels[k] = "v-" + k
	}
	slim := Slim(p).(*slimPod)
	for range 20 {
		other := p.DeepCopy()
		other.ResourceVersion = "8"
		other.Status.Message = "something"
		require.True(t, reflect.DeepEqual(slim, Slim(other)))
	}
	for k, v := range p.Labels {
		require.True(t, labels.SelectorFromSet(labels.Set{k: v}).Matches(slim.LabelSet()))
		require.False(t, labels.SelectorFromSet(labels.Set{k: "x"}).Matches(slim.LabelSet()))
	}
	require.False(t, slim.LabelSet().Has("x"))
	require.Equal(t, "10.244.1.9", slim.IP().String())
}
