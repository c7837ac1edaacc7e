package services

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
)

// Contact is whether the cluster knows what others publish now.
//
// While it does not, pods may be replaced, and their addresses may go to others. The address of the
// Service does not change: so it stands for the pods then, where an exporter has published both.
type Contact int

// Contacts with the broker.
const (
	// ContactRead means that the broker is read.
	ContactRead Contact = iota
	// ContactUnknown means that nobody knows, or not for long enough: pods stay pods, and addresses
	// stay addresses.
	ContactUnknown
	// ContactLost means that nothing has been read from the broker for a while.
	ContactLost
)

// before is how the EndpointSlices of a cluster are, or were a moment ago.
type before struct {
	unreachable bool // its endpoints are not used
	address     bool // the only endpoint is its address of the Service
}

// heldBefore returns how the EndpointSlices of an import are, by cluster.
func (i *importer) heldBefore(key types.NamespacedName) map[string]before {
	out := map[string]before{}
	for _, s := range i.held.slices[key] {
		if isOurSlice(s) {
			cluster := s.Labels[mcsv1alpha1.LabelSourceCluster]
			was := out[cluster]
			was.unreachable = was.unreachable || s.Annotations[WithheldAnnotation] == WithheldUnreachable
			was.address = was.address || HasAddress(s)
			out[cluster] = was
		}
	}
	return out
}

// HasAddress reports whether the only endpoint of an EndpointSlice is the address at which the
// exporter serves the Service.
func HasAddress(s *discoveryv1.EndpointSlice) bool {
	return len(s.Endpoints) == 1 && slices.Equal(s.Endpoints[0].Addresses, []string{s.Annotations[AddressAnnotation]})
}

// standsFor reports whether the address of a record stands for the pods that it also has, as these
// may be others by now. It does not lead to them if the exporter's kube-proxy uses only pods of the
// gateway.
func (i *importer) standsFor(r *v1alpha1.ExportedService, was before) bool {
	if r.InternalTrafficPolicy == string(corev1.ServiceInternalTrafficPolicyLocal) {
		return false
	}
	return i.Contact == ContactLost || i.Contact == ContactUnknown && was.address
}
