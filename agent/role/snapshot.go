package role

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/keys"
	"subctl/cable/natdiscovery"
	"subctl/dataplane"
	"subctl/globalnet"
	"subctl/policy"
)

// parseCIDRs parses the networks in a field of Submariner.spec, separated by commas.
func parseCIDRs(field, text string) ([]netip.Prefix, error) {
	list := slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return strings.TrimSpace(s) == "" })
	if len(list) == 0 {
		return nil, fmt.Errorf("Submariner.spec.%s is empty: run subctl join again", field)
	}
	out, err := cable.ParseCIDRs("Submariner.spec."+field, list)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out), nil
}

// OwnNetworks parses the networks with which a cluster has joined: its pods, its Services and, if
// it has one, its global network. The error contains all mistakes; the other networks are returned.
func OwnNetworks(spec v1alpha1.SubmarinerSpec) (cable.Networks, error) {
	var n cable.Networks
	var pods, services, global error
	n.Pods, pods = parseCIDRs("clusterCIDR", spec.ClusterCIDR)
	n.Services, services = parseCIDRs("serviceCIDR", spec.ServiceCIDR)
	if spec.GlobalCIDR != "" {
		n.Global, global = parseCIDRs("globalCIDR", spec.GlobalCIDR)
	}
	return n, errors.Join(pods, services, global)
}

// ErrNotJoined is the error of a cluster without a Submariner object: its agents have
// nothing to do.
var ErrNotJoined = errors.New("there is no Submariner object in this cluster: run subctl join")

// FoundNetworks are networks of this cluster, and where they were found.
type FoundNetworks struct {
	CIDRs []netip.Prefix
	From  string
}

// Flows is the number of connections to and from other clusters through a gateway.
type Flows struct {
	Known bool
	Count int
	Some  []string  // the first of them
	At    time.Time // when they were counted
	// Sources is the use of the addresses to which the gateway translates the sources of
	// connections, the fullest first.
	Sources []dataplane.SourceUse
}

// Snapshot is everything that a plan may depend on, read once: the objects of the API
// server, sorted by name, the facts of the node's kernel, and the knowledge of the parts
// that run beside the loop.
type Snapshot struct {
	// Node is the node's name.
	Node string
	// Now is the time at which the snapshot was taken.
	Now time.Time
	// Facts describes the node's own network.
	Facts submarinerv1.NodeFacts
	// PodIPMissing reports whether no device of the node holds Facts.PodIP yet.
	PodIPMissing bool
	// NoCableRule is dataplane.Facts.NoCableRule; false if it is not known.
	NoCableRule bool
	// FormerRoutes and FormerRules are those of dataplane.Facts; false if they are not known.
	FormerRoutes, FormerRules bool
	// BootID is dataplane.Facts.BootID; empty if it is not known.
	BootID string
	// Standing is the result of the election among this cluster's gateways.
	Standing Standing
	// Keys is the key material of a gateway's cables; nil where a plan is only shown.
	// KeysErr reports key material that the gateway's pod lacks.
	Keys    *keys.Ring
	KeysErr error
	// Memory is the Memory of the last plan.
	Memory Memory
	// ReportTimes is when the last reports of this cluster's gateways came; see NoteReports. It is
	// nil where a plan is only shown: then none is outdated.
	ReportTimes ReportTimes
	// Book is the compiled policies; nil if they are to be compiled when needed.
	Book *policy.Book
	// Translator remembers what it has translated; nil if everything is to be translated anew. The
	// plan is the same.
	Translator *globalnet.Translator
	// Health is the result of the probes so far, by name of the probe.
	Health Healths
	// Paths are the discovered paths to remote gateways, by cable name; nil if this agent does not
	// search for them.
	Paths map[string]natdiscovery.Path
	// PublicIP is the address at which other clusters may reach the node as a gateway
	// from outside; the zero Addr if it is not known. PublicIPErr is a mistake in the
	// address that the user specifies.
	PublicIP    netip.Addr
	PublicIPErr error
	// FoundPods and FoundServices are the networks of this cluster that were found while it is a
	// member; empty if unknown.
	FoundPods, FoundServices FoundNetworks
	// PoliciesDigest is policy.Digest of the policies that this cluster holds since the
	// exchange has read all from the broker; empty if it has not, or does not run here.
	PoliciesDigest string
	// ClusterSets are the clustersets in this cluster's grant, from which PoliciesDigest was read.
	// They are nil if PoliciesDigest is empty.
	ClusterSets []string
	// Cables are the states of the gateway's encrypted cables, as the kernel has them; nil if
	// unknown. They are read after Health: a cable that has answered has its keys here.
	Cables []dataplane.CableState
	// Flows is the number of connections to and from other clusters through this gateway.
	Flows Flows
	// Previous is what the last plan of a role hands to this one besides Memory, of a type of the
	// role's own; nil if there was none.
	Previous any
	// Refused are writes of this agent that the API server has refused: see Report.Tolerant.
	Refused Refused
	// Forwarded is the result of the last Plan.Forward; the zero value if it is not known.
	Forwarded dataplane.Forwarded
	// NotRunning names the agents of this cluster that do not run; empty if all do, or if it is not
	// known.
	NotRunning string
	// Drops are the packets that the node has dropped between clusters, by cluster ID; nil if
	// unknown.
	Drops map[string]uint64
	// Dropping is why and for whom the node drops packets now.
	Dropping Dropping

	// Mislabelled are the objects of this cluster that the API server has with the label of
	// copies, without it, as the snapshot has them. They are named after this cluster.
	Mislabelled []Object

	Objects map[reflect.Type][]Object
}

// Standing is the result of the election among the gateways of a cluster, as one of
// them knows it. Carrying traffic and speaking for the cluster are separate questions.
type Standing struct {
	// Active reports whether the gateway on this node holds cables and publishes its Endpoint.
	Active bool
	// Drain is cable.Standby if another gateway is the only one that is to carry traffic, and
	// cable.Draining while the gateway on this node leaves the traffic to it. A node may be drained
	// as well: see package members.
	Drain cable.Drain
	// Speaker reports whether it speaks for its cluster: it publishes the Cluster object,
	// shares the cluster's policies and exchanges objects with the broker. A cluster has
	// one speaker at a time.
	Speaker bool
	// Gateways lists the nodes whose Endpoints stay. Only a speaker needs it, to tell
	// a sibling's Endpoint from one that a lost gateway left.
	Gateways []string
	// Replaced lists the nodes among Gateways whose gateways were active before this one, which is
	// to be the only one, and do not announce that they are standbys, perhaps because their agents
	// are dead: the speaker announces it in their place.
	Replaced []string
}

// Kinds lists the kinds of objects that a Snapshot may hold.
func Kinds() []Object {
	return []Object{
		&v1alpha1.Submariner{}, &submarinerv1.Cluster{}, &submarinerv1.Endpoint{},
		&submarinerv1.Gateway{}, &submarinerv1.RouteAgent{}, &corev1.Node{}, &v1alpha1.CablePolicies{},
		&corev1.ConfigMap{},
	}
}

// NewSnapshot returns a Snapshot of a node with the given objects, which are shared: they must
// not be changed afterwards. Only copies of objects of other clusters may have the label of
// copies: see exchange.Reclaim. T is Object, or an interface with the same methods.
func NewSnapshot[T Object](node string, objs ...T) Snapshot {
	s := Snapshot{Node: node, Objects: map[reflect.Type][]Object{}}
	for _, o := range objs {
		t := reflect.TypeOf(o)
		s.Objects[t] = append(s.Objects[t], o)
	}
	for _, objs := range s.Objects {
		slices.SortFunc(objs, Compare)
	}
	return s
}

// SetSorted sets all objects of a kind, of which there is no other in the snapshot. They are sorted
// by namespace and name, and shared.
func (s *Snapshot) SetSorted(objs []Object) {
	if len(objs) > 0 {
		s.Objects[reflect.TypeOf(objs[0])] = objs
	}
}

// List returns the snapshot's objects of one kind, sorted. They are shared: do not
// change them.
func List[T Object](s Snapshot) []T {
	objs := s.Objects[reflect.TypeFor[T]()]
	out := make([]T, len(objs))
	for i, o := range objs {
		out[i] = o.(T)
	}
	return out
}

// Find returns the snapshot's object of a kind and a name; nil if there is none.
func Find[T interface {
	Object
	comparable
}](s Snapshot, name string) T {
	o, _ := s.find(reflect.TypeFor[T](), name).(T) // nil: none
	return o
}

// Same returns the snapshot's object of the kind, namespace and name of o; nil if there is none.
func (s Snapshot) Same(o Object) Object {
	objs := s.Objects[reflect.TypeOf(o)]
	i, found := slices.BinarySearchFunc(objs, o, Compare)
	if !found {
		return nil
	}
	return objs[i]
}

func (s Snapshot) find(kind reflect.Type, name string) Object {
	for _, o := range s.Objects[kind] {
		if o.GetName() == name {
			return o
		}
	}
	return nil
}

// PodNetworks returns the cluster's pod networks; none if the cluster has not joined.
func (s Snapshot) PodNetworks() []netip.Prefix {
	if sub := s.Submariner(); sub != nil {
		nets, _ := OwnNetworks(sub.Spec) // gateways report a mistake
		return nets.Pods
	}
	return nil
}

// Submariner returns how the cluster has joined; nil if it has not.
func (s Snapshot) Submariner() *v1alpha1.Submariner {
	for _, sub := range List[*v1alpha1.Submariner](s) {
		return sub
	}
	return nil
}

// Makers returns who made the snapshot's policies, and whose policies apply.
func (s Snapshot) Makers() policy.Makers {
	if sub := s.Submariner(); sub != nil {
		return policy.MakersFor(sub.Spec)
	}
	return policy.Makers{}
}

// ConfigMap finds a ConfigMap in the namespace of the agents; nil if there is none.
func (s Snapshot) ConfigMap(name string) (*corev1.ConfigMap, error) {
	return Find[*corev1.ConfigMap](s, name), nil
}

func Names[T Object](objs []T) []string {
	var out []string
	for _, o := range objs {
		out = append(out, o.GetName())
	}
	return out
}

// This file is about standbys. If only one gateway of a cluster is to be active, the others are
// standbys: each publishes its Endpoint, marked as a standby, holds cables to the gateways of all
// other clusters, probes, and is probed. Other nodes and clusters use a standby only if no active
// gateway answers: see cable.Drain. So the failure of the active gateway is found by probes, and
// the takeover is a change of routes, on each node by itself. The election follows within seconds:
// then the standby is the active gateway, and its Endpoint is without the mark.

// Standby reports whether the gateway on this node is a standby.
func (s Standing) Standby() bool { return s.Active && s.Drain == cable.Standby }
