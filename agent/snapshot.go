package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/discovery"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/keys"
	"subctl/dataplane"
	"subctl/policy"
)

// Snapshot is all a plan may look at, read once: what the API server says, sorted
// by name, and what the node says.
type Snapshot struct {
	// Node is the node's name.
	Node string
	// Leader says that the gateway on this node is the active one.
	Leader bool
	// Facts is what is known of the node's own network.
	Facts submarinerv1.NodeFacts
	// PodIPMissing says that no device of the node holds its PodIP yet.
	PodIPMissing bool
	// Now is when it was taken.
	Now time.Time
	// Keys is what the cables of a gateway are encrypted with; nil if a plan is only to
	// be shown.
	Keys *keys.Ring
	// Using is what carries the traffic to each remote gateway, by cable name.
	Using map[string]Using
	// Book is the policies compiled; nil: that is done when they are needed.
	Book *policy.Book
	// Held are the gateways of other clusters whose claims stood until now.
	Held []cable.Gateway
	// Health is the result of the probes so far, by name of the probe.
	Health map[string]Health
	// Paths is what is known of the path to each remote gateway, by cable name.
	Paths map[string]discovery.Path
	// PublicIP is where other clusters may reach the node as a gateway from outside; the
	// zero Addr if that is not known. PublicIPErr is what is wrong with what the user says.
	PublicIP    netip.Addr
	PublicIPErr error
	// Cables is what the kernel says of the gateway's encrypted cables.
	Cables []dataplane.CableState

	objects map[reflect.Type][]client.Object
}

// kinds lists what a Snapshot may hold: what agents watch.
func kinds() []client.Object {
	return []client.Object{
		&v1alpha1.Submariner{}, &submarinerv1.Cluster{}, &submarinerv1.Endpoint{},
		&submarinerv1.Gateway{}, &submarinerv1.RouteAgent{}, &corev1.Node{}, &v1alpha1.CablePolicies{},
		&corev1.ConfigMap{},
	}
}

// List returns the snapshot's objects of one kind, sorted. They are shared: do
// not change them.
func List[T client.Object](s Snapshot) []T {
	objs := s.objects[reflect.TypeFor[T]()]
	out := make([]T, len(objs))
	for i, o := range objs {
		out[i] = o.(T)
	}
	return out
}

// NewSnapshot makes a Snapshot of objects, as ReadSnapshot does of a cluster's.
func NewSnapshot(node string, facts submarinerv1.NodeFacts, leader bool, objs ...client.Object) Snapshot {
	s := Snapshot{Node: node, Facts: facts, Leader: leader, objects: map[reflect.Type][]client.Object{}}
	for _, o := range objs {
		t := reflect.TypeOf(o)
		s.objects[t] = append(s.objects[t], o)
	}
	for _, objs := range s.objects {
		slices.SortFunc(objs, func(x, y client.Object) int {
			return cmp.Or(strings.Compare(x.GetNamespace(), y.GetNamespace()), strings.Compare(x.GetName(), y.GetName()))
		})
	}
	return s
}

// readObjects lists all objects of some kinds.
func readObjects(ctx context.Context, r client.Reader, s *runtime.Scheme, namespace string, kinds []client.Object) ([]client.Object, error) {
	var objs []client.Object
	for _, kind := range kinds {
		gvks, _, err := s.ObjectKinds(kind)
		if err != nil {
			return nil, err
		}
		made, err := s.New(gvks[0].GroupVersion().WithKind(gvks[0].Kind + "List"))
		if err != nil {
			return nil, err
		}
		list := made.(client.ObjectList)
		var opts []client.ListOption
		if _, global := kind.(*corev1.Node); !global {
			opts = append(opts, client.InNamespace(namespace))
		}
		// What a cache returns is shared, not copied: plans only read.
		opts = append(opts, client.UnsafeDisableDeepCopy)
		if err := r.List(ctx, list, opts...); err != nil {
			return nil, fmt.Errorf("listing %s: %w", gvks[0].Kind, err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			objs = append(objs, o.(client.Object))
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return objs, nil
}

// podNetworks are the cluster's pod networks; none if the cluster is not joined.
func (s Snapshot) podNetworks() []netip.Prefix {
	for _, sub := range List[*v1alpha1.Submariner](s) {
		nets, err := parseCIDRs("clusterCIDR", sub.Spec.ClusterCIDR)
		if err == nil {
			return nets
		}
	}
	return nil
}

// ReadSnapshot reads what the plan of a node looks at through the API server, from
// anywhere: what the node's own agents reported about it stands in for its kernel.
func ReadSnapshot(ctx context.Context, c client.Client, node string) (Snapshot, error) {
	objs, err := readObjects(ctx, c, c.Scheme(), submarinerv1.OperatorNamespace, kinds())
	if err != nil {
		return Snapshot{}, err
	}
	s := NewSnapshot(node, submarinerv1.NodeFacts{}, false, objs...)
	if len(s.podNetworks()) == 0 {
		return s, errNotJoined
	}
	if find[*corev1.Node](s, node) == nil {
		return s, &UnknownNodeError{Node: node, Nodes: names(List[*corev1.Node](s))}
	}
	ra := find[*submarinerv1.RouteAgent](s, node)
	if ra == nil || ra.Status.Node == nil {
		return s, fmt.Errorf("the route agent of node %s has not reported yet: see kubectl -n %s get pods -o wide", node, submarinerv1.OperatorNamespace)
	}
	s.Facts = *ra.Status.Node
	for _, e := range List[*submarinerv1.Endpoint](s) {
		if e.Spec.Hostname == node && e.Labels[submarinerv1.ClusterIDLabel] == "" {
			s.Leader = true
		}
	}
	s.Held = heldFromReports(List[*submarinerv1.Gateway](s))
	if g := find[*submarinerv1.Gateway](s, node); s.Leader && g != nil {
		s.Using, s.Paths = usingFromReport(g, s.Now), pathsFromReport(g)
	}
	return s, nil
}

// UnknownNodeError says that a cluster has no such node.
type UnknownNodeError struct {
	Node  string
	Nodes []string // those it has
}

func (e *UnknownNodeError) Error() string {
	return fmt.Sprintf("the cluster has no node %q: it has %v", e.Node, e.Nodes)
}

func names[T client.Object](objs []T) []string {
	var out []string
	for _, o := range objs {
		out = append(out, o.GetName())
	}
	return out
}
