package exchange

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// This file plans kinds of the Named way. A local object with a name of this cluster was
// made here, whatever labels somebody has put on it: it is published in every clusterset, with
// the label of this cluster's ID. If it becomes invalid, its last valid version stays
// published. Any other local object with the label of another cluster is a copy of an object on
// the broker, and is in one or more clustersets there.

// namedPlan is the plan of one kind. Its maps are by name.
type namedPlan struct {
	kindPlan
	here map[string]client.Object // everything in this cluster
	ours map[string]client.Object // what this cluster publishes
	// surplus are the names of the objects that are not published because others come first: see
	// Named.Spare.
	surplus map[string]bool
	found   map[string]*source       // what other clusters publish
	shares  map[string]*sharedStatus // what becomes of the objects of this cluster; empty for kinds without a status
}

// source is the objects of one name of another cluster, in all clustersets. The copy has the
// newest version.
type source struct {
	owner    string
	object   client.Object // the newest version that counts; nil if none does
	sequence int64
	sets     []string // that have a version that counts
	refused  []string // that have another version
}

func planNamed(of kindPlan) {
	p := &namedPlan{
		kindPlan: of,
		here:     map[string]client.Object{},
		ours:     map[string]client.Object{},
		surplus:  map[string]bool{},
		found:    map[string]*source{},
		shares:   map[string]*sharedStatus{},
	}
	p.readLocal()
	for _, set := range p.sets {
		if set.Known {
			p.readSet(set)
		}
	}
	p.limit()
	p.copyHere()
	switch {
	case p.judge.left > 0:
		p.refuseLeft()
	case len(p.sets) == 0:
		for _, s := range p.shares {
			s.refuse(reasonNoSet,
				"this cluster is in no clusterset: let the administrator of the broker add it with subctl clusterset add")
		}
	default:
		p.publish()
	}
	for _, name := range slices.Sorted(maps.Keys(p.shares)) {
		if s := p.shares[name]; s.reason != "" || !s.unknown || len(s.last.Conditions) == 0 { // else it is as it was
			p.report(s)
		}
	}
}

// refuseLeft refuses the objects of a cluster that has left.
func (p *namedPlan) refuseLeft() {
	for _, name := range slices.Sorted(maps.Keys(p.ours)) {
		if p.kind.Named.HasGrant { // once
			p.refuse(p.ours[name], true, "%s", p.judge.hasLeft())
		}
	}
	for _, s := range p.shares {
		s.refuse(reasonNoSet, "%s", p.judge.hasLeft())
	}
}

// refuseOwn refuses an object of this cluster. reason is that of its condition Shared, if it has a
// status.
func (p *namedPlan) refuseOwn(o client.Object, reason, format string, args ...any) {
	p.refuse(o, true, format, args...)
	if s := p.shares[o.GetName()]; s != nil {
		s.refuse(reason, format, args...)
	}
}

func (p *namedPlan) readLocal() {
	for _, o := range p.local {
		p.here[o.GetName()] = o
		if p.isCopy(o) {
			continue
		}
		if p.kind.Status != nil {
			p.shares[o.GetName()] = newShare(p.kind, o)
		}
		reason := p.kind.flaw(o, p.ClusterID)
		if reason == "" && p.judge.own.Serial > 0 {
			reason = p.exceedsOwn(o)
		}
		if reason != "" {
			p.refuseOwn(o, reasonMistake, "%s", reason)
			continue
		}
		p.ours[o.GetName()] = o
	}
}

// exceedsOwn returns what in an object of this cluster its grant does not cover, and what to do; or
// "".
func (p *namedPlan) exceedsOwn(o client.Object) string {
	if reason := p.kind.exceedsNetworks(o, p.judge.own); reason != "" {
		return reason + ": join again with subctl join, which renews the grant"
	}
	return p.kind.exceedsNamespaces(o, p.judge.own)
}

// readSet finds the objects of other clusters in a clusterset.
func (p *namedPlan) readSet(set SetSnapshot) {
	for _, o := range set.Objects {
		name := o.GetName()
		if p.isOwn(o) {
			continue
		}
		id, ok := submarinerv1.OwnerID(o)
		v := verdict{}
		switch {
		case !ok:
			v.reason = fmt.Sprintf("it has no label %s", submarinerv1.ClusterIDLabel)
		case id == p.ClusterID || p.kind.claimed(o) == p.ClusterID:
			v.reason = "it claims to belong to this cluster, but is not named after it"
		case excess(o) > 0:
			v.reason = tooMuch(id)
		default:
			if v.reason = p.kind.flaw(o, id); v.reason == "" {
				v = p.judge.of(p.kind, set.Name, id, o)
			}
		}
		f := p.found[name]
		if f == nil {
			f = &source{owner: id}
			p.found[name] = f
		}
		switch {
		case v.reason == "":
			f.owner, f.sets = id, append(f.sets, set.Name)
			if f.object == nil || v.sequence > f.sequence {
				f.object = o
				f.sequence = v.sequence
			}
		case v.gone && isRemoved(o): // the object itself is the reason
		case p.formerly(set.Name, id, o): // the cluster has joined again, in other clustersets
		default:
			p.refuseVerdict(o, v)
			if !v.gone {
				f.refused = append(f.refused, set.Name)
			}
		}
	}
}

// formerly reports whether an object states, with a valid proof, that a cluster was removed from a
// clusterset or has left, and the cluster has no copy from there. If it has one, a broker may be
// hiding the object behind an old statement.
func (p *namedPlan) formerly(set, id string, o client.Object) bool {
	if !p.kind.Named.HasGrant || o.GetName() != id || !isRemoved(o) ||
		!provesRemoval(o, set, id, p.judge.Administrator) {
		return false
	}
	have := p.here[id]
	return have == nil || !slices.Contains(lastSets(have), set)
}

// limit refuses what is more than the grant of a cluster allows. Objects that have a copy here
// go first, so that a cluster which announces too many changes nothing.
func (p *namedPlan) limit() {
	byOwner := map[string][]string{}
	for name, f := range p.found {
		if f.object == nil { // the label of a refused object may claim any owner
			have := p.here[name]
			if have == nil || !p.isCopy(have) || !p.kind.Named.Names.Owns(ownerOf(have), name) {
				continue
			}
			f.owner = ownerOf(have)
		}
		byOwner[f.owner] = append(byOwner[f.owner], name)
	}
	for _, id := range slices.Sorted(maps.Keys(byOwner)) {
		names := byOwner[id]
		most := p.judge.most(p.kind, id)
		if len(names) <= most {
			continue
		}
		incumbentsFirst(names, func(name string) bool { return p.here[name] != nil })
		for _, name := range names[most:] {
			if f := p.found[name]; f.object != nil {
				p.refuse(f.object, false, "cluster %s has more than %d of them", id, most)
			}
			p.found[name] = &source{owner: id}
		}
	}
}

// copyHere makes the copies in this cluster the same as the objects that were found.
func (p *namedPlan) copyHere() {
	for _, name := range slices.Sorted(maps.Keys(p.found)) {
		f := p.found[name]
		have := p.here[name]
		if have != nil && !p.isCopy(have) {
			if f.object != nil {
				p.refuse(f.object, false, "this cluster has an object of that name")
			}
			continue
		}
		p.refuseOlder(f, have)
		kept := p.kept(f, have)
		switch {
		case f.object != nil:
			p.copyFrom(f.object, append(kept, f.sets...), have)
		case len(kept) > 0:
			p.copyFrom(have, kept, have)
		}
	}
	for _, have := range p.local {
		if p.isCopy(have) && !p.stays(have) {
			p.forget(have)
		}
	}
}

// refuseOlder refuses what was found if a later version was seen before.
func (p *namedPlan) refuseOlder(f *source, have client.Object) {
	if f.object == nil || have != nil && sameSignature(f.object, have) {
		return
	}
	least := p.judge.least(f.owner, p.kind.placeOf("", f.object.GetName()), have)
	if f.sequence >= least {
		return
	}
	p.refuse(f.object, false, "%s", older(f.sequence, least))
	f.refused = append(f.refused, f.sets...)
	f.sets = nil
	f.object = nil
}

// kept returns the clustersets whose version is refused, and which a copy still lists.
func (p *namedPlan) kept(f *source, have client.Object) (sets []string) {
	if have == nil {
		return nil
	}
	last := lastSets(have)
	version := have
	if f.object != nil {
		version = f.object
	}
	for _, set := range f.refused {
		if (len(last) == 0 || slices.Contains(last, set)) &&
			p.judge.keeps(p.kind, set, ownerOf(have), version, have.GetName()) {
			sets = append(sets, set)
		}
	}
	return sets
}

// copyFrom makes have, which may be nil, a copy of an object that is in the clustersets.
func (p *namedPlan) copyFrom(from client.Object, sets []string, have client.Object) {
	if have != nil {
		sets = append(sets, p.unknown(have)...)
	}
	sets = append(sets, p.unread(have, sets)...)
	slices.Sort(sets)
	labels, annotations := p.kind.namedMetadata(from)
	for _, a := range proofs {
		if text := from.GetAnnotations()[a]; text != "" {
			annotations[a] = text
		}
	}
	if token := annotations[submarinerv1.GrantAnnotation]; token != "" {
		annotations[submarinerv1.GrantAnnotation] = trust.Bare(token) // the same from all clustersets
	}
	sets = slices.Compact(sets)
	annotations[submarinerv1.ClusterSetsAnnotation] = strings.Join(sets, ",")
	sets = slices.DeleteFunc(sets, func(s string) bool { return strings.HasSuffix(s, submarinerv1.UnreadMark) })
	p.copy("", p.Namespace, from, sets, labels, annotations, have)
}

// stays reports whether there should be a copy.
func (p *namedPlan) stays(have client.Object) bool {
	f := p.found[have.GetName()]
	if f != nil && (f.object != nil || len(p.kept(f, have)) > 0) {
		return true
	}
	return p.mayExist(have) && !p.judge.isVoid(ownerOf(have))
}

// forget deletes a copy and remembers its version. The version may come back, unless its cluster
// has deleted it: then it is not on the broker any more, in a clusterset in which this cluster
// still is.
func (p *namedPlan) forget(have client.Object) {
	least := sequenceOf(have)
	if p.found[have.GetName()] == nil && slices.ContainsFunc(lastSets(have), p.isIn) {
		least++
	}
	p.judge.remember(p.kind, have, p.kind.placeOf("", have.GetName()), least)
	p.delete("", have)
}

// copy makes have, which may be nil, a copy of an object with the clustersets, labels and
// annotations. It builds the copy only if it differs, as hardly any does.
func (p *namedPlan) copy(
	set, namespace string,
	from client.Object,
	sets []string,
	labels, annotations map[string]string,
	have client.Object,
) {
	if have != nil && maps.Equal(labels, have.GetLabels()) && maps.Equal(annotations, have.GetAnnotations()) &&
		p.kind.sameFields(from, have) {
		return
	}
	want := p.kind.namedCopy(from, namespace, labels, annotations)
	p.kind.setSets(want, sets)
	p.write(set, want, have)
}

// isOwn reports whether an object on the broker is of this cluster.
func (p *namedPlan) isOwn(o client.Object) bool {
	if id, ok := slotOwner(o); ok {
		return id == p.ClusterID
	}
	return p.kind.Named.Names.Owns(p.ClusterID, o.GetName())
}

// isCopy reports whether a local object is a copy from another cluster.
func (p *namedPlan) isCopy(o client.Object) bool { return !p.kind.MadeBy(p.ClusterID, o) }
