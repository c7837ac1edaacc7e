package services

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// held is what the API server holds, by name. An object is ours by its labels and the UID of its
// owner, never by its name.
type held struct {
	imports map[types.NamespacedName]*mcsv1alpha1.ServiceImport
	// uids has the UIDs of all imports.
	uids map[types.UID]bool
	// services are those with names like derived Services.
	services map[types.NamespacedName]*corev1.Service
	// slices are by import, whoever has made them.
	slices map[types.NamespacedName][]*discoveryv1.EndpointSlice
	// unlabeled are EndpointSlices of no import, with names like ours.
	unlabeled map[types.NamespacedName]*discoveryv1.EndpointSlice
	// bySource is the result of sources.
	bySource map[string]map[types.NamespacedName]bool
}

func hold(v View) held {
	h := held{
		imports:  make(map[types.NamespacedName]*mcsv1alpha1.ServiceImport, len(v.Imports)),
		uids:     make(map[types.UID]bool, len(v.Imports)),
		services: make(map[types.NamespacedName]*corev1.Service, len(v.Imports)),
		slices:   make(map[types.NamespacedName][]*discoveryv1.EndpointSlice, len(v.Imports)),

		unlabeled: map[types.NamespacedName]*discoveryv1.EndpointSlice{},
	}
	for _, i := range v.Imports {
		h.imports[keyOf(i)] = i
		h.uids[i.UID] = true
	}
	for _, s := range v.Services {
		if strings.HasPrefix(s.Name, derivedPrefix) {
			h.services[keyOf(s)] = s
		}
	}
	for _, s := range v.Slices {
		if name := s.Labels[mcsv1alpha1.LabelServiceName]; name != "" {
			key := types.NamespacedName{Namespace: s.Namespace, Name: name}
			h.slices[key] = append(h.slices[key], s)
		} else if strings.HasPrefix(s.Name, derivedPrefix) {
			h.unlabeled[keyOf(s)] = s
		}
	}
	return h
}

// orphan reports whether a Service is one of ours, and its ServiceImport is gone.
func (h held) orphan(s *corev1.Service) bool {
	if !isOurs(s) || s.Labels[mcsv1alpha1.LabelServiceName] == "" {
		return false
	}
	owner := importOwner(s)
	return owner != nil && !h.uids[owner.UID]
}

func isOurs(o metav1.Object) bool {
	return o.GetLabels()[submarinerv1.ManagedByLabel] == submarinerv1.ManagedBy
}

func isOurSlice(s *discoveryv1.EndpointSlice) bool {
	return s.Labels[discoveryv1.LabelManagedBy] == ManagedBy
}

// importOwner returns the reference to the ServiceImport that owns an object, or nil.
func importOwner(o metav1.Object) *metav1.OwnerReference {
	refs := o.GetOwnerReferences()
	for n := range refs {
		group, _, _ := strings.Cut(refs[n].APIVersion, "/")
		if group == mcsv1alpha1.GroupName && refs[n].Kind == mcsv1alpha1.ServiceImportKindName {
			return &refs[n]
		}
	}
	return nil
}

// ownedBy reports whether a Service is ours, and that of an import.
func ownedBy(s *corev1.Service, i *mcsv1alpha1.ServiceImport) bool {
	return isOurs(s) && hasOwner(s, i.UID)
}

// spoiled reports whether a derived Service has got what we never give it, and what applying our
// fields does not remove.
func spoiled(s *corev1.Service) bool {
	return len(s.Spec.Selector) > 0 || s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.ExternalIPs) > 0 ||
		s.Spec.ExternalName != ""
}

// sameImport reports whether an import has all that is wanted. Labels and annotations of others
// remain.
func sameImport(have, want *mcsv1alpha1.ServiceImport) bool {
	return sameKeys(have, want, derivedServiceAnnotation, exportedKeys) &&
		sameKeys(have, want, v1alpha1.DirectAnnotation, v1alpha1.SpreadAnnotation) &&
		includes(have.Labels, want.Labels) && includes(have.Annotations, want.Annotations) &&
		equality.Semantic.DeepEqual(have.Spec, want.Spec)
}

// sameService compares only fields that we set: the API server sets others.
func sameService(have, want *corev1.Service) bool {
	h := &have.Spec
	w := &want.Spec
	if !includes(have.Labels, want.Labels) || !includes(have.Annotations, want.Annotations) ||
		h.Type != w.Type || h.SessionAffinity != w.SessionAffinity || !slices.Equal(h.IPFamilies, w.IPFamilies) ||
		!slices.EqualFunc(h.Ports, w.Ports, samePort) {
		return false
	}
	return equality.Semantic.DeepEqual(h.SessionAffinityConfig, w.SessionAffinityConfig) &&
		equality.Semantic.DeepEqual(h.IPFamilyPolicy, w.IPFamilyPolicy)
}

func samePort(have, want corev1.ServicePort) bool {
	return have.Name == want.Name && have.Protocol == want.Protocol && have.Port == want.Port &&
		have.TargetPort == want.TargetPort && same(have.AppProtocol, want.AppProtocol)
}

func sameSlice(have, want *discoveryv1.EndpointSlice) bool {
	_, had := have.Labels[corev1.IsHeadlessService]
	_, wanted := want.Labels[corev1.IsHeadlessService]
	return had == wanted && includes(have.Labels, want.Labels) &&
		sameKeys(have, want, WithheldAnnotation, AddressAnnotation) &&
		hasOwner(have, want.OwnerReferences[0].UID) &&
		slices.EqualFunc(have.Ports, want.Ports, sameEndpointPort) &&
		slices.EqualFunc(have.Endpoints, want.Endpoints, sameEndpoint)
}

// hasOwner reports whether an object is among the owners of another one.
func hasOwner(o metav1.Object, uid types.UID) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == uid })
}

func sameEndpointPort(have, want discoveryv1.EndpointPort) bool {
	return same(have.Name, want.Name) && same(have.Protocol, want.Protocol) && same(have.Port, want.Port) &&
		same(have.AppProtocol, want.AppProtocol)
}

func sameEndpoint(have, want discoveryv1.Endpoint) bool {
	h := have.Conditions
	w := want.Conditions
	return slices.Equal(have.Addresses, want.Addresses) && have.NodeName == nil && have.TargetRef == nil &&
		same(h.Ready, w.Ready) && same(h.Serving, w.Serving) && same(h.Terminating, w.Terminating) &&
		same(have.Hostname, want.Hostname) && same(have.Zone, want.Zone) && slices.Equal(zones(have), zones(want))
}

// zones returns the zones of the hints of an endpoint.
func zones(e discoveryv1.Endpoint) []discoveryv1.ForZone {
	if e.Hints == nil {
		return nil
	}
	return e.Hints.ForZones
}

// sameKeys reports whether two objects have the same values of annotations, or neither has any.
func sameKeys(a, b metav1.Object, keys ...string) bool {
	return !slices.ContainsFunc(keys,
		func(key string) bool { return a.GetAnnotations()[key] != b.GetAnnotations()[key] })
}

// same reports whether two optional values are equal.
func same[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// includes reports whether a map has all entries of another one.
func includes(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}
