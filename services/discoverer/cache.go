package discoverer

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/services"
)

// slimForServices returns what the role of Services looks at of an object: its agent holds all
// Services and endpoints of the cluster. What the agent itself has made stays as it is, as all of
// it is compared. The result shares parts with the object.
func slimForServices(o role.Object) role.Object {
	switch o := o.(type) {
	case *corev1.Service:
		return slimExportable(o)
	case *discoveryv1.EndpointSlice:
		return slimEndpoints(o)
	case *mcsv1alpha1.ServiceExport:
		slim := &mcsv1alpha1.ServiceExport{ObjectMeta: role.Identity(o.ObjectMeta), Spec: o.Spec, Status: o.Status}
		slim.Generation = o.Generation
		role.KeepAnnotation(&slim.ObjectMeta, o.ObjectMeta, v1alpha1.SpreadAnnotation)
		role.KeepAnnotation(&slim.ObjectMeta, o.ObjectMeta, v1alpha1.DirectAnnotation)
		return slim
	case *submarinerv1.GlobalIngressIP:
		slim := &submarinerv1.GlobalIngressIP{ObjectMeta: role.Identity(o.ObjectMeta), Spec: o.Spec}
		slim.Status.AllocatedIP = o.Status.AllocatedIP
		role.KeepAnnotation(&slim.ObjectMeta, o.ObjectMeta, submarinerv1.HeadlessEndpointAnnotation)
		return slim
	case *submarinerv1.Gateway:
		return slimConnections(o)
	case *corev1.Node:
		slim := &corev1.Node{ObjectMeta: role.Identity(o.ObjectMeta)}
		role.KeepLabel(&slim.ObjectMeta, o.ObjectMeta, corev1.LabelTopologyZone)
		slim.Status.Addresses = o.Status.Addresses
		return slim
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: role.Identity(o.ObjectMeta)}
	}
	return o
}

// slimExportable keeps what of a Service may be exported.
func slimExportable(o *corev1.Service) *corev1.Service {
	if role.IsOurs(o) {
		return o
	}
	slim := &corev1.Service{ObjectMeta: role.Identity(o.ObjectMeta), Spec: corev1.ServiceSpec{
		Type: o.Spec.Type, Ports: exact(o.Spec.Ports), ClusterIP: o.Spec.ClusterIP, ClusterIPs: o.Spec.ClusterIPs,
		IPFamilies: o.Spec.IPFamilies, SessionAffinity: o.Spec.SessionAffinity,
		SessionAffinityConfig: o.Spec.SessionAffinityConfig, InternalTrafficPolicy: o.Spec.InternalTrafficPolicy,
		TrafficDistribution: o.Spec.TrafficDistribution, PublishNotReadyAddresses: o.Spec.PublishNotReadyAddresses,
	}}
	if len(o.Spec.Selector) > 0 {
		slim.Spec.Selector = role.AnySelector
	}
	slim.OwnerReferences = o.OwnerReferences
	role.KeepLabel(&slim.ObjectMeta, o.ObjectMeta, mcsv1alpha1.LabelServiceName)
	return slim
}

// slimEndpoints keeps the endpoints of a Service.
func slimEndpoints(o *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	if o.Labels[discoveryv1.LabelManagedBy] == services.ManagedBy {
		return o
	}
	slim := &discoveryv1.EndpointSlice{
		ObjectMeta: role.Identity(o.ObjectMeta), AddressType: o.AddressType, Ports: exact(o.Ports),
		Endpoints: make([]discoveryv1.Endpoint, len(o.Endpoints)),
	}
	for _, key := range []string{
		discoveryv1.LabelServiceName, discoveryv1.LabelManagedBy, mcsv1alpha1.LabelServiceName,
	} {
		role.KeepLabel(&slim.ObjectMeta, o.ObjectMeta, key)
	}
	for i, e := range o.Endpoints {
		slim.Endpoints[i] = discoveryv1.Endpoint{
			Addresses: e.Addresses, Conditions: e.Conditions, Hostname: e.Hostname, Zone: e.Zone,
		}
		if ref := e.TargetRef; ref != nil {
			slim.Endpoints[i].TargetRef = &corev1.ObjectReference{Kind: ref.Kind, Name: ref.Name}
		}
	}
	return slim
}

// slimConnections keeps to which clusters a gateway is connected, for which networks, and whether
// it reads the broker.
func slimConnections(g *submarinerv1.Gateway) *submarinerv1.Gateway {
	slim := &submarinerv1.Gateway{ObjectMeta: role.Identity(g.ObjectMeta)}
	role.KeepAnnotation(&slim.ObjectMeta, g.ObjectMeta, submarinerv1.TimestampAnnotation)
	slim.Status.HAStatus = g.Status.HAStatus
	slim.Status.ConnectionsOmitted = g.Status.ConnectionsOmitted
	keepContact(slim, g)
	connected := map[string]*submarinerv1.Connection{}
	for _, c := range g.Status.Connections {
		id := c.Endpoint.ClusterID
		if connected[id] == nil {
			connected[id] = &submarinerv1.Connection{
				Endpoint: submarinerv1.EndpointSpec{ClusterID: id}, Status: submarinerv1.ConnectionError,
			}
		}
		if c.Status == submarinerv1.Connected {
			to := connected[id]
			to.Status, to.Endpoint.Subnets = submarinerv1.Connected, append(to.Endpoint.Subnets, c.Endpoint.Subnets...)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(connected)) {
		c := connected[id]
		slices.Sort(c.Endpoint.Subnets)
		c.Endpoint.Subnets = slices.Compact(c.Endpoint.Subnets)
		slim.Status.Connections = append(slim.Status.Connections, *c)
	}
	return slim
}

// isBeingDeleted reports whether an object is about to be gone.
func isBeingDeleted(o metav1.Object) bool { return o.GetDeletionTimestamp() != nil }

// exact copies a list without spare capacity. Decoders leave room for at least four elements.
func exact[T any](list []T) []T { return append([]T(nil), list...) }
