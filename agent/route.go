package agent

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/dataplane"
	"subctl/internal/version"
)

// Route is the role of the route agent, which runs on every node: the way between
// the nodes and the gateways of one cluster.
type Route struct{}

// Name implements Role.
func (Route) Name() string { return "route" }

// Owner implements Role.
func (Route) Owner() dataplane.Owner { return dataplane.RouteOwner }

// Watches implements Role: not Gateways, each of which is written every few seconds,
// and not ConfigMaps, of which the gateway notes on the Cluster what is in force.
func (Route) Watches() []client.Object {
	return slices.DeleteFunc(kinds(), func(o client.Object) bool {
		switch o.(type) {
		case *submarinerv1.Gateway, *corev1.ConfigMap:
			return true
		}
		return false
	})
}

// Plan implements Role.
func (Route) Plan(s Snapshot) (Plan, error) {
	v, err := newView(s)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{State: dataplane.State{}, Using: map[string]Using{}, view: v}
	node := find[*corev1.Node](s, s.Node)
	if !isGatewayNode(node) {
		// No gateway agent runs here; one that did left its work in place.
		p.Sweep = []dataplane.Owner{dataplane.GatewayOwner}
	}
	if v.leaving() {
		return p, nil
	}
	in := cable.Intra{
		Self: v.self, MTU: s.Facts.MTU, PodIP: v.local().PodIP, OwnPodIP: s.Facts.PodIPPlanned,
		Gateways: v.active, Local: v.own,
	}
	for _, n := range v.nodes {
		if !contains(v.active, n) {
			in.Workers = append(in.Workers, n)
		}
	}
	local := v.local()
	for _, c := range v.peers {
		p.Using[c.Name] = using(c)
		in.Remote = append(in.Remote, cable.Reached{Cluster: c.Cluster, Subnets: c.Subnets, MTU: c.MTU(local)})
	}
	in.CableIn = v.cableDevices()
	if p.State, err = cable.PlanIntra(in); err != nil {
		return Plan{}, err
	}
	return p, nil
}

// cableDevices are the devices on which packets of other clusters can come in: those
// of all drivers, those that policies want for some pairs, and those that there are, as
// a pair that changes its cable has two.
func (v *view) cableDevices() []string {
	devices := slices.Clone(v.snap.Facts.CableDevices)
	for _, d := range drivers.All() {
		devices = append(devices, d.Device(nil))
	}
	for _, c := range v.peers {
		devices = append(devices, c.Device())
	}
	slices.Sort(devices)
	return slices.Compact(devices)
}

func contains(nodes []cable.Node, n cable.Node) bool {
	for _, other := range nodes {
		if other.Name == n.Name {
			return true
		}
	}
	return false
}

// Report implements Role.
func (Route) Report(s Snapshot, p Plan, o Outcome) Report {
	old := find[*submarinerv1.RouteAgent](s, s.Node)
	facts := s.Facts
	ra := &submarinerv1.RouteAgent{
		ObjectMeta: metav1.ObjectMeta{Name: s.Node, Namespace: submarinerv1.OperatorNamespace},
		Status: submarinerv1.RouteAgentStatus{
			Version: version.Version, RemoteEndpoints: []submarinerv1.RemoteEndpoint{}, Node: &facts,
		},
	}
	if n := find[*corev1.Node](s, s.Node); n != nil { // goes with its node
		ra.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}
	}
	if o.Err != nil {
		ra.Status.StatusFailure = clip(o.Err.Error())
	}
	var was []metav1.Condition
	if old != nil {
		was = old.Status.Conditions
	}
	ra.Status.Conditions = conditions(was, p, o)
	if old != nil && reflect.DeepEqual(old.Status, ra.Status) {
		return Report{}
	}
	return Report{Apply: []client.Object{ra}}
}

// find returns the snapshot's object of a name, or nil.
func find[T interface {
	client.Object
	comparable
}](s Snapshot, name string) T {
	for _, o := range List[T](s) {
		if o.GetName() == name {
			return o
		}
	}
	var none T
	return none
}
