package role

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnySelector stands for all selectors: which pods a Service selects is in its EndpointSlices.
var AnySelector = map[string]string{"": ""}

// Identity keeps what identifies an object.
func Identity(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
}

func KeepAnnotation(out *metav1.ObjectMeta, m metav1.ObjectMeta, key string) {
	if v, ok := m.Annotations[key]; ok {
		metav1.SetMetaDataAnnotation(out, key, v)
	}
}

func KeepLabel(out *metav1.ObjectMeta, m metav1.ObjectMeta, key string) {
	if v, ok := m.Labels[key]; ok {
		metav1.SetMetaDataLabel(out, key, v)
	}
}
