package agent

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/globalnet/allocator"
)

// slimNode removes from a node what plans do not use, so that a cache of thousands of nodes
// is small.
func slimNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Node{TypeMeta: n.TypeMeta, ObjectMeta: n.ObjectMeta}
	slim.ManagedFields = nil
	slim.Annotations = nil
	for _, k := range []string{
		submarinerv1.PublicIPAnnotation, submarinerv1.WeightAnnotation, submarinerv1.DrainAnnotation,
	} {
		if v, ok := n.Annotations[k]; ok {
			metav1.SetMetaDataAnnotation(&slim.ObjectMeta, k, v)
		}
	}
	slim.Spec.PodCIDR = n.Spec.PodCIDR
	slim.Spec.PodCIDRs = n.Spec.PodCIDRs
	slim.Status.Addresses = n.Status.Addresses
	return slim, nil
}

// slimOther removes from any other object what plans do not use: the signatures, which are longer
// than the objects that they prove. The exchange, which verifies them, has a cache of its own.
func slimOther(obj any) (any, error) {
	o, ok := obj.(client.Object)
	if !ok {
		return obj, nil
	}
	o.SetManagedFields(nil)
	annotations := o.GetAnnotations() // slim objects share theirs, and have none of these
	for _, key := range []string{submarinerv1.SignatureAnnotation, submarinerv1.GrantAnnotation} {
		//lint:ignore S1033 a deletion of nothing would write to the map that others read
		if _, has := annotations[key]; has {
			delete(annotations, key)
		}
	}
	return o, nil
}

// slimRouteAgent returns a function that removes from the RouteAgents of other nodes than the
// given one what only people and tools read.
func slimRouteAgent(node string) func(any) (any, error) {
	return func(obj any) (any, error) {
		r, ok := obj.(*submarinerv1.RouteAgent)
		if !ok {
			return obj, nil
		}
		r.ManagedFields = nil
		if r.Name != node {
			r.Status.RemoteEndpoints = nil
			r.Status.RemoteEndpointsOmitted = 0
			if r.Status.Node != nil {
				r.Status.Node.NeverRouted = nil
			}
		}
		return r, nil
	}
}

// slimTranslated removes what no translation of global addresses depends on: of pods, Services and
// EndpointSlices, of which a cluster may have many thousands, almost everything.
func slimTranslated(obj any) (any, error) {
	meta := func(o metav1.ObjectMeta) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: o.Labels,
			CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp,
		}
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		slim := &corev1.Pod{TypeMeta: o.TypeMeta, ObjectMeta: meta(o.ObjectMeta)}
		slim.Spec.HostNetwork = o.Spec.HostNetwork
		slim.Status.Phase = o.Status.Phase
		slim.Status.PodIP = o.Status.PodIP
		slim.Status.PodIPs = o.Status.PodIPs
		return slim, nil
	case *corev1.Service:
		slim := &corev1.Service{TypeMeta: o.TypeMeta, ObjectMeta: meta(o.ObjectMeta)}
		slim.Labels = nil
		slim.Spec.Type = o.Spec.Type
		slim.Spec.Ports = o.Spec.Ports
		slim.Spec.SessionAffinity = o.Spec.SessionAffinity
		return slim, nil
	case *discoveryv1.EndpointSlice:
		slim := &discoveryv1.EndpointSlice{
			TypeMeta:    o.TypeMeta,
			ObjectMeta:  meta(o.ObjectMeta),
			AddressType: o.AddressType,
			Ports:       o.Ports,
		}
		slim.Labels = map[string]string{discoveryv1.LabelServiceName: o.Labels[discoveryv1.LabelServiceName]}
		for _, e := range o.Endpoints {
			slim.Endpoints = append(slim.Endpoints, discoveryv1.Endpoint{
				Addresses:  e.Addresses,
				Conditions: e.Conditions,
			})
		}
		return slim, nil
	case *submarinerv1.GlobalEgressIP:
		return allocator.Slim(o), nil
	}
	return slimOther(obj)
}

// slimConfigMap removes from a ConfigMap the values of all keys but the key that has
// settings: they may be large.
func slimConfigMap(obj any) (any, error) {
	cm, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return obj, nil
	}
	slim := &corev1.ConfigMap{TypeMeta: cm.TypeMeta, ObjectMeta: cm.ObjectMeta, Data: map[string]string{}}
	slim.ManagedFields = nil
	slim.Annotations = nil
	for k, text := range cm.Data {
		if slim.Data[k] = ""; k == v1alpha1.CableCustomConfig {
			slim.Data[k] = text
		}
	}
	return slim, nil
}
