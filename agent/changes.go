package agent

import (
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	submarinerv1 "subctl/api/submariner/v1"
)

// changes passes on the events that can lead to another plan or report. Kubelets and
// gateway agents update their objects every few seconds to show that they are alive. If
// these updates woke the loops, an idle cluster would keep all its agents busy.
var changes = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !reflect.DeepEqual(withoutHeartbeat(e.ObjectOld), withoutHeartbeat(e.ObjectNew))
	},
}

// withoutHeartbeat returns a copy of an object of the cache, without what differs after
// every update and without what a gateway agent updates to show that it is alive. What a
// kubelet updates is not in the cache: see slimNode.
func withoutHeartbeat(o client.Object) client.Object {
	o = o.DeepCopyObject().(client.Object)
	o.SetResourceVersion("")
	o.SetManagedFields(nil)
	if g, ok := o.(*submarinerv1.Gateway); ok {
		g.Generation = 0 // counts updates of the status, too, which is a plain field
		delete(g.Annotations, submarinerv1.TimestampAnnotation)
		g.Status.ClearMeasurements()
		g.Status.ConnectionsOmitted = 0
		g.Status.ConnectionsOmittedDown = 0 // for people and tools
		for i := range g.Status.Connections {
			g.Status.Connections[i].ClearMeasurements()
		}
	}
	if r, ok := o.(*submarinerv1.RouteAgent); ok {
		r.Generation = 0
		r.Status.RemoteEndpoints = nil
		r.Status.RemoteEndpointsOmitted = 0 // for people and tools
	}
	return o
}
