package exchange

import (
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// This file plans kinds of the Named way. A local object with a name of this cluster was
// made here, whatever labels somebody has put on it: it is published in every clusterset, with
// the label of this cluster's ID. If it becomes invalid, its last valid version stays
// published. Any other local object with the label of another cluster is a copy of an object on
// the broker, and is in one or more clustersets there.

// namedPlan is the plan of one kind. Its maps are by name.
type namedPlan struct {
	kindPlan
	here  map[string]client.Object // everything in this cluster
	ours  map[string]client.Object // what this cluster publishes
	found map[string]*source       // what other clusters publish
}

// source is an object of another cluster, and the clustersets in which it was found.
type source struct {
	object client.Object
	sets   []string
}

func planNamed(of kindPlan) {
	p := &namedPlan{kindPlan: of, here: map[string]client.Object{}, ours: map[string]client.Object{}, found: map[string]*source{}}
	p.readLocal()
	for _, set := range p.sets {
		if set.Known {
			p.readSet(set)
		}
	}
	p.copyHere()
	for _, set := range p.sets {
		if set.Known {
			p.publish(set)
		}
	}
}

func (p *namedPlan) readLocal() {
	for _, o := range p.local {
		p.here[o.GetName()] = o
		if p.isCopy(o) {
			continue
		}
		if reason := p.kind.flaw(o, p.ClusterID); reason != "" {
			p.refuse(o, true, "%s", reason)
			continue
		}
		p.ours[o.GetName()] = o
	}
}

// readSet finds the objects of other clusters in a clusterset.
func (p *namedPlan) readSet(set SetSnapshot) {
	count := map[string]int{} // by cluster
	for _, o := range set.Objects {
		id, ok := submarinerv1.OwnerID(o)
		switch {
		case p.kind.Named.Names.Owns(p.ClusterID, o.GetName()):
			continue
		case !ok:
			p.refuse(o, false, "it has no label %s", submarinerv1.ClusterIDLabel)
			continue
		case id == p.ClusterID || p.kind.claimed(o) == p.ClusterID:
			p.refuse(o, false, "it claims to belong to this cluster, but is not named after it")
			continue
		}
		if reason := p.kind.flaw(o, id); reason != "" {
			p.refuse(o, false, "%s", reason)
			continue
		}
		if count[id]++; count[id] > p.kind.PerCluster {
			p.refuse(o, false, "cluster %s has more than %d of them", id, p.kind.PerCluster)
			continue
		}
		if f := p.found[o.GetName()]; f != nil {
			f.sets = append(f.sets, set.Name)
		} else {
			p.found[o.GetName()] = &source{o, []string{set.Name}}
		}
	}
}

// copyHere makes the copies in this cluster the same as the objects that were found.
func (p *namedPlan) copyHere() {
	for _, name := range slices.Sorted(maps.Keys(p.found)) {
		f, have := p.found[name], p.here[name]
		if have != nil && !p.isCopy(have) {
			p.refuse(f.object, false, "this cluster has an object of that name")
			continue
		}
		sets := slices.Clone(f.sets)
		if have != nil {
			sets = append(sets, p.unknown(have)...)
		}
		sets = append(sets, p.unread(have, sets)...)
		slices.Sort(sets)
		labels, annotations := p.kind.namedMetadata(f.object)
		annotations[submarinerv1.ClusterSetsAnnotation] = strings.Join(slices.Compact(sets), ",")
		p.copy("", p.Namespace, f.object, labels, annotations, have)
	}
	for _, have := range p.local {
		if p.found[have.GetName()] == nil && p.isCopy(have) && !p.mayExist(have) {
			p.delete("", have)
		}
	}
}

// publish makes the objects of this cluster in a clusterset the same as here.
func (p *namedPlan) publish(set SetSnapshot) {
	there := map[string]client.Object{}
	for _, o := range set.Objects {
		if p.kind.Named.Names.Owns(p.ClusterID, o.GetName()) {
			there[o.GetName()] = o
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.ours)) {
		labels, annotations := p.kind.namedMetadata(p.ours[name])
		labels[submarinerv1.ClusterIDLabel] = p.ClusterID
		p.copy(set.Name, set.Namespace, p.ours[name], labels, annotations, there[name])
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if have := p.here[name]; p.ours[name] == nil && (have == nil || p.isCopy(have)) {
			p.delete(set.Name, there[name])
		}
	}
}

// copy makes have, which may be nil, a copy of an object with the labels and annotations.
// It builds the copy only if it differs, as hardly any does.
func (p *namedPlan) copy(set, namespace string, from client.Object, labels, annotations map[string]string, have client.Object) {
	if have != nil && maps.Equal(labels, have.GetLabels()) && maps.Equal(annotations, have.GetAnnotations()) && p.kind.sameFields(from, have) {
		return
	}
	p.write(set, p.kind.namedCopy(from, namespace, labels, annotations), have)
}

// isCopy reports whether a local object is a copy from another cluster.
func (p *namedPlan) isCopy(o client.Object) bool { return !p.kind.MadeBy(p.ClusterID, o) }

// lastSets returns the clustersets in which the object of a copy was found last.
func lastSets(o client.Object) []string {
	sets := o.GetAnnotations()[submarinerv1.ClusterSetsAnnotation]
	if sets == "" {
		return nil
	}
	return strings.Split(sets, ",")
}

// unknown returns the clustersets in which the object of a copy was found last, and which
// are not known now.
func (p *namedPlan) unknown(o client.Object) []string {
	last := lastSets(o)
	var out []string
	for _, set := range p.sets {
		if !set.Known && slices.Contains(last, set.Name) {
			out = append(out, set.Name)
		}
	}
	return out
}

// unread returns the marks of the clustersets that may have the object of a copy, too: those that
// are not known now and, if there is a copy already, were not when it was made.
func (p *namedPlan) unread(have client.Object, sets []string) (marks []string) {
	for _, set := range p.sets {
		mark := set.Name + submarinerv1.UnreadMark
		if !set.Known && !slices.Contains(sets, set.Name) && (have == nil || slices.Contains(lastSets(have), mark)) {
			marks = append(marks, mark)
		}
	}
	return marks
}

// mayExist reports whether an object that was not found may be in a clusterset that is
// not known. A copy that does not state its clustersets may be in any of them; and so may
// a copy from a clusterset that this cluster has left, as the others may not have been
// looked at when it was made.
func (p *namedPlan) mayExist(o client.Object) bool {
	last := lastSets(o)
	if len(last) == 0 || slices.ContainsFunc(last, func(set string) bool { return !p.isIn(set) }) {
		return !p.allKnown()
	}
	return len(p.unknown(o)) > 0
}
