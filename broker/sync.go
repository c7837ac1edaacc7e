package broker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// This file decides what the sync writes. It is a pure function of what both
// sides hold now, so an event that was missed, in an outage or while no gateway
// was active, makes no difference.
//
// A local object without the cluster ID label is ours: every clusterset gets it,
// with the label. A local object with the label of another cluster is a copy of
// one on the broker. What is refused is treated as if it were not there.
//
// Cable policies go other ways: see syncpolicy.go.

// Limits on what another cluster can make this one store. A real Endpoint has
// about 1 KiB, and a cluster as many as it has active gateways.
const (
	maxObjectSize = 16 << 10 // bytes of JSON
	maxPerCluster = 16       // objects of one kind, in one clusterset
)

// Snapshot is what both sides hold.
type Snapshot struct {
	ClusterID string
	Namespace string          // local
	Local     []client.Object // Clusters, Endpoints and CablePolicies
	Sets      []SetSnapshot
}

// SetSnapshot is what a clusterset on the broker holds.
type SetSnapshot struct {
	Set
	// Known says that Objects is the truth, if maybe an old one: it has been read
	// at least once.
	Known   bool
	Objects []client.Object
}

// Op is what to do with an object.
type Op string

// The operations.
const (
	Create Op = "create"
	Update Op = "update"
	Delete Op = "delete"
	// Report writes the status of a cable policy that was made here.
	Report Op = "report on"
)

// Write is one change to one side.
type Write struct {
	Op     Op
	Set    string // the clusterset on the broker; empty: here
	Object client.Object

	news bool // a Report that tells of new trouble
}

func (w Write) String() string {
	where := "here"
	if w.Set != "" {
		where = "on the broker in clusterset " + w.Set
	}
	return fmt.Sprintf("%s %s %s %s", w.Op, kindOf(w.Object), w.Object.GetName(), where)
}

// PlanSync returns what makes both sides the same, and what it refuses to copy. Only clustersets that are known are written to, and
// nothing that an unknown one may hold is deleted.
func PlanSync(s Snapshot) ([]Write, []Refusal) {
	p := &syncPlan{Snapshot: s, ours: map[key]client.Object{}, local: map[key]client.Object{}, found: map[key]*source{}}
	slices.SortFunc(p.Sets, func(a, b SetSnapshot) int { return cmp.Compare(a.Name, b.Name) })
	p.readLocal()
	for _, set := range p.Sets {
		if set.Known {
			p.readSet(set)
		}
	}
	p.copyHere()
	for _, set := range p.Sets {
		if set.Known {
			p.publish(set)
		}
	}
	p.planPolicies()
	return p.writes, p.refused
}

// source is an object of another cluster, and the clustersets it was found in.
type source struct {
	object client.Object
	sets   []string
}

type syncPlan struct {
	Snapshot
	local   map[key]client.Object // everything here
	ours    map[key]client.Object // what we publish
	found   map[key]*source       // what others publish
	writes  []Write
	refused []Refusal
}

func (p *syncPlan) refuse(o client.Object, local bool, format string, args ...any) {
	p.refused = append(p.refused, Refusal{
		Kind: kindOf(o), Namespace: o.GetNamespace(), Name: o.GetName(), Local: local, Reason: fmt.Sprintf(format, args...),
	})
}

func (p *syncPlan) readLocal() {
	for _, o := range members(p.Local) {
		p.local[keyOf(o)] = o
		label, labelled := o.GetLabels()[submarinerv1.ClusterIDLabel]
		switch {
		case labelled && label != p.ClusterID:
		case labelled:
			p.refuse(o, true, "label %s is this cluster's own ID, but only copies from other clusters carry it", submarinerv1.ClusterIDLabel)
		default:
			if reason := flaw(o, p.ClusterID); reason != "" {
				p.refuse(o, true, "%s", reason)
				continue
			}
			p.ours[keyOf(o)] = o
		}
	}
}

// readSet finds the objects of other clusters in a clusterset.
func (p *syncPlan) readSet(set SetSnapshot) {
	count := map[key]int{} // by kind and cluster
	for _, o := range members(set.Objects) {
		id, ok := o.GetLabels()[submarinerv1.ClusterIDLabel]
		switch {
		case owns(p.ClusterID, kindOf(o), o.GetName()):
			continue
		case !ok:
			p.refuse(o, false, "it has no label %s", submarinerv1.ClusterIDLabel)
			continue
		case id == p.ClusterID || clusterID(o) == p.ClusterID:
			p.refuse(o, false, "it claims to be of this cluster, and is not named so")
			continue
		}
		if reason := flaw(o, id); reason != "" {
			p.refuse(o, false, "%s", reason)
			continue
		}
		if count[key{kindOf(o), id}]++; count[key{kindOf(o), id}] > maxPerCluster {
			p.refuse(o, false, "cluster %s has more than %d of them", id, maxPerCluster)
			continue
		}
		if f := p.found[keyOf(o)]; f != nil {
			f.sets = append(f.sets, set.Name)
		} else {
			p.found[keyOf(o)] = &source{o, []string{set.Name}}
		}
	}
}

// copyHere makes the copies in this cluster those of what was found.
func (p *syncPlan) copyHere() {
	for _, k := range sortedKeys(p.found) {
		f, have := p.found[k], p.local[k]
		if have != nil && !isCopy(have, p.ClusterID) {
			p.refuse(f.object, false, "an object of this cluster has its name")
			continue
		}
		sets := slices.Clone(f.sets)
		if have != nil {
			sets = append(sets, p.unknown(have)...)
		}
		slices.Sort(sets)
		want := federate(f.object, p.Namespace)
		annotate(want, submarinerv1.ClusterSetsAnnotation, strings.Join(slices.Compact(sets), ","))
		p.write("", want, have)
	}
	for _, k := range sortedKeys(p.local) {
		have := p.local[k]
		if p.found[k] == nil && isCopy(have, p.ClusterID) && !p.mayExist(have) {
			p.writes = append(p.writes, Write{Op: Delete, Object: have})
		}
	}
}

// publish makes our objects in a clusterset those that we have.
func (p *syncPlan) publish(set SetSnapshot) {
	there := map[key]client.Object{}
	for _, o := range set.Objects {
		if owns(p.ClusterID, kindOf(o), o.GetName()) {
			there[keyOf(o)] = o
		}
	}
	for _, k := range sortedKeys(p.ours) {
		want := federate(p.ours[k], set.Namespace)
		labels := maps.Clone(want.GetLabels())
		if labels == nil {
			labels = map[string]string{}
		}
		labels[submarinerv1.ClusterIDLabel] = p.ClusterID
		want.SetLabels(labels)
		p.write(set.Name, want, there[k])
	}
	for _, k := range sortedKeys(there) {
		if p.ours[k] == nil {
			p.writes = append(p.writes, Write{Op: Delete, Set: set.Name, Object: there[k]})
		}
	}
}

// write appends what turns have, which may be nil, into want.
func (p *syncPlan) write(set string, want, have client.Object) {
	switch {
	case have == nil:
		p.writes = append(p.writes, Write{Op: Create, Set: set, Object: want})
	case !same(want, have):
		update := have.DeepCopyObject().(client.Object)
		update.SetLabels(want.GetLabels())
		update.SetAnnotations(want.GetAnnotations())
		setSpec(update, want)
		p.writes = append(p.writes, Write{Op: Update, Set: set, Object: update})
	}
}

// unknown returns the clustersets a copy was last found in that are not known now.
func (p *syncPlan) unknown(o client.Object) []string {
	was := strings.Split(o.GetAnnotations()[submarinerv1.ClusterSetsAnnotation], ",")
	var out []string
	for _, set := range p.Sets {
		if !set.Known && slices.Contains(was, set.Name) {
			out = append(out, set.Name)
		}
	}
	return out
}

// mayExist says that a copy which was not found may be in a clusterset that is
// not known. One that does not say where it is from may be in any.
func (p *syncPlan) mayExist(o client.Object) bool {
	if o.GetAnnotations()[submarinerv1.ClusterSetsAnnotation] == "" {
		return slices.ContainsFunc(p.Sets, func(s SetSnapshot) bool { return !s.Known })
	}
	return len(p.unknown(o)) > 0
}

func isCopy(o client.Object, own string) bool {
	id, ok := o.GetLabels()[submarinerv1.ClusterIDLabel]
	return ok && id != own
}
