package mesh

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/globalnet"
)

// slimPod is a pod.
type slimPod struct {
	slimMeta
	labels slimLabels // by which GlobalEgressIPs select pods
	ip     ipv4       // none if it has no address of its own, or has ended
	own    bool       // whether it asks for a global address of its own
	odd    bool       // whether the annotation for that has another value
	none   bool       // whether it can have none: it uses the address of its node, has ended, or has no IPv4 address
	note   note
}

func newSlimPod(p *corev1.Pod) *slimPod {
	ip := globalnet.PodIP(p)
	return &slimPod{
		slimMeta: newSlimMeta(
			&p.ObjectMeta), labels: newSlimLabels(p.Labels), ip: newIPv4(ip), own: asksForOwn(p), odd: asksOddly(p),
		none: p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed ||
			p.Status.PodIP != "" && !ip.IsValid(),
		note: newNote(p.Annotations),
	}
}

// DeepCopyObject implements runtime.Object.
func (p *slimPod) DeepCopyObject() runtime.Object { c := *p; return &c }

// IP implements globalnet.Pod.
func (p *slimPod) IP() netip.Addr { return p.ip.addr() }

// Created implements globalnet.Pod.
func (p *slimPod) Created() int64 { return p.created }

// LabelSet implements globalnet.Pod.
func (p *slimPod) LabelSet() labels.Labels { return p.labels }

// slimService is a Service.
type slimService struct {
	slimMeta
	external, headless, selects, ipv4 bool // type ExternalName, no address, a selector, an IPv4 address
	note                              note
}

func newSlimService(s *corev1.Service) *slimService {
	slim := &slimService{
		slimMeta: newSlimMeta(
			&s.ObjectMeta),
		external: s.Spec.Type == corev1.ServiceTypeExternalName,
		headless: s.Spec.ClusterIP == corev1.ClusterIPNone,
		selects: len(
			s.Spec.Selector) > 0,
		ipv4: isIPv4(s.Spec.ClusterIP) || slices.ContainsFunc(s.Spec.ClusterIPs, isIPv4),
		note: newNote(s.Annotations),
	}
	slim.uid = "" // nobody owns anything by a Service
	return slim
}

func isIPv4(text string) bool { return parseIPv4(text).is }

// DeepCopyObject implements runtime.Object.
func (s *slimService) DeepCopyObject() runtime.Object { c := *s; return &c }

// slimSlice is an EndpointSlice. Whether the Service is headless, and exported, is not in it.
type slimSlice struct {
	slimMeta
	service   string
	endpoints []slimEndpoint
}

// slimEndpoint is an IPv4 address of an endpoint and its pod, either of which may be absent.
type slimEndpoint struct {
	pod string
	ip  ipv4
}

func newSlimSlice(s *discoveryv1.EndpointSlice) *slimSlice {
	slim := &slimSlice{slimMeta: newSlimMeta(&s.ObjectMeta)}
	slim.uid, slim.service = "", part(slim.name, s.Labels[discoveryv1.LabelServiceName])
	slim.endpoints = make([]slimEndpoint, 0, len(s.Endpoints))
	for _, ep := range s.Endpoints {
		var pod string
		if ep.TargetRef != nil && ep.TargetRef.Kind == "Pod" {
			pod = part(slim.name, ep.TargetRef.Name)
		}
		before := len(slim.endpoints)
		for _, text := range ep.Addresses {
			if ip := parseIPv4(text); ip.is { // Kubernetes gives no meaning to others
				slim.endpoints = append(slim.endpoints, slimEndpoint{pod, ip})
				break
			}
		}
		if pod != "" && len(slim.endpoints) == before {
			slim.endpoints = append(slim.endpoints, slimEndpoint{pod: pod})
		}
	}
	return slim
}

// DeepCopyObject implements runtime.Object.
func (s *slimSlice) DeepCopyObject() runtime.Object { c := *s; return &c }

// part returns a text, as a part of another text if that has it: objects are named after each
// other, and text that is there twice takes memory twice.
func part(of, text string) string {
	if i := strings.Index(of, text); i >= 0 {
		return of[i : i+len(text)]
	}
	return text
}

// slimExport is a ServiceExport.
type slimExport struct {
	slimMeta
	version    string
	generation int64
	// at is the address that other clusters reach, if the conditions are exactly what exported
	// returns; since is the time at which each last changed.
	at         ipv4
	since      [2]int64
	conditions []metav1.Condition // else
}

func newSlimExport(o *mcsv1alpha1.ServiceExport) *slimExport {
	slim := &slimExport{slimMeta: newSlimMeta(&o.ObjectMeta), version: o.ResourceVersion, generation: o.Generation}
	if is := o.Status.Conditions; len(is) == 2 {
		slim.at = parseIPv4(strings.TrimPrefix(is[1].Message, reachedAt))
		slim.since = [2]int64{is[0].LastTransitionTime.Unix(), is[1].LastTransitionTime.Unix()}
		if slim.at.is && sameConditions(slim.Conditions(), is) {
			return slim
		}
	}
	slim.at = ipv4{}
	slim.since = [2]int64{}
	slim.conditions = exact(o.Status.Conditions)
	return slim
}

// Conditions returns the conditions of the status.
func (e *slimExport) Conditions() []metav1.Condition {
	if !e.at.is {
		return slices.Clone(e.conditions)
	}
	out := exported(e.at.String())
	for i := range out {
		out[i].ObservedGeneration = e.generation
		out[i].LastTransitionTime = metav1.Unix(e.since[i], 0)
	}
	return out
}

// full returns the object of the API with other conditions.
func (e *slimExport) full(conditions []metav1.Condition) *mcsv1alpha1.ServiceExport {
	o := &mcsv1alpha1.ServiceExport{
		ObjectMeta: e.objectMeta(),
		Status:     mcsv1alpha1.ServiceExportStatus{Conditions: conditions},
	}
	o.ResourceVersion = e.version
	o.Generation = e.generation
	return o
}

// GetResourceVersion implements metav1.Object.
func (e *slimExport) GetResourceVersion() string { return e.version }

// SetResourceVersion implements metav1.Object.
func (e *slimExport) SetResourceVersion(version string) { e.version = version }

// DeepCopyObject implements runtime.Object.
func (e *slimExport) DeepCopyObject() runtime.Object { c := *e; return &c }

// asksForOwn reports whether a pod or a namespace asks for addresses of pods' own.
func asksForOwn(o Object) bool {
	return o.GetAnnotations()[submarinerv1.OwnGlobalIPAnnotation] == submarinerv1.OwnGlobalIP
}

// asksOddly reports whether a pod or a namespace has the annotation for that with a value that has
// no effect.
func asksOddly(o Object) bool {
	value, has := o.GetAnnotations()[submarinerv1.OwnGlobalIPAnnotation]
	return has && value != submarinerv1.OwnGlobalIP
}
