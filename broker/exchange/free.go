package exchange

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// This file plans kinds of the Free way, such as cable policies.
//
// The broker decides: an object is in force, for every cluster alike, in the clustersets
// on whose broker it is. Whoever creates an object there takes its name, and the API
// server lets one cluster do that. The others are told so by the condition Shared.
//
// Each clusterset has its own copies here, since two clustersets may have objects of one
// name. A copy never replaces an object that was made here: if the name is taken, the copy
// gets the name <name>.<clusterset>, and keeps it, so that there is no moment without the
// copy.
//
// A mistake is never copied. An object of this cluster that has a mistake is not shared,
// and an object on the broker that has one, written by hand or in bad faith, is not copied
// here. The last version without a mistake stays in force: without it, connections could
// be weaker than somebody asked for. The cluster that made the object goes by what the
// broker holds, too, which its status has: see Shared.

// freePlan is the plan of one kind.
type freePlan struct {
	kindPlan
	own    []*share
	copies map[place]client.Object // in this cluster, of what others made
	names  map[string]bool         // every name in use in this cluster
	found  map[place]bool          // what others have on the broker: whether it has a copy
}

// place is where an object is on the broker.
type place struct{ set, name string }

func (p place) compare(other place) int {
	return cmp.Or(cmp.Compare(p.set, other.set), cmp.Compare(p.name, other.name))
}

func planFree(of kindPlan) {
	p := &freePlan{kindPlan: of, copies: map[place]client.Object{}, names: map[string]bool{}, found: map[place]bool{}}
	p.readLocal()
	for _, set := range p.sets {
		if set.Known {
			p.copyHere(set)
		}
	}
	p.forget()
	for _, set := range p.sets {
		p.publish(set)
	}
	for _, s := range p.own {
		p.report(s)
	}
}

func (p *freePlan) readLocal() {
	shared := 0
	for _, o := range p.local {
		p.names[o.GetName()] = true
		if !p.kind.MadeBy(p.ClusterID, o) {
			p.readCopy(o)
			continue
		}
		s := newShare(p.kind, o)
		p.own = append(p.own, s)
		if p.kind.Free.BrokerOnly {
			s.refuse(reasonBrokerOnly, "the broker accepts no %s of a cluster (deploy-broker --policies-from broker): create it on the broker, and delete this one", p.kind.Noun)
		} else if flaw := p.kind.nameFlaw(o.GetName()); flaw != "" {
			s.refuse(reasonInvalidName, "%s", flaw)
		} else if set, limited := o.GetLabels()[submarinerv1.ClusterSetLabel]; limited && !p.isIn(set) {
			s.refuse(reasonNoSet, "label %s specifies clusterset %q, which this cluster is not in", submarinerv1.ClusterSetLabel, set)
		} else if shared++; shared > p.kind.PerCluster {
			s.refuse(reasonTooMany, "a clusterset takes %d %s of one cluster, the first by name", p.kind.PerCluster, p.kind.Resource)
		}
		s.barred = s.reason != ""
	}
}

// readCopy notes a copy. A copy that has a name which the exchange does not give, and a
// second copy of one object, are deleted.
func (p *freePlan) readCopy(o client.Object) {
	name, _, _ := strings.Cut(o.GetName(), ".")
	from := place{o.GetLabels()[submarinerv1.ClusterSetLabel], name}
	if p.copies[from] != nil || o.GetName() != from.name && o.GetName() != from.name+"."+from.set {
		p.delete("", o)
		return
	}
	p.copies[from] = o
}

// copyHere makes the copies of a clusterset's objects the same as on the broker. What is refused
// leaves the copy as it is.
func (p *freePlan) copyHere(set SetSnapshot) {
	count := map[string]int{} // by cluster
	for _, o := range set.Objects {
		id, from := makerOf(o), place{set.Name, o.GetName()}
		if id == p.ClusterID {
			continue
		}
		have := p.copies[from]
		v := p.verdict(set.Name, id, o)
		if v.reason == "" && (have == nil || ownerOf(have) != id || !sameSignature(o, have)) {
			if least := p.least(from, id, have); v.sequence < least {
				v.reason = older(v.sequence, least)
			}
		}
		if v.reason == "" && id != submarinerv1.BrokerID {
			if count[id]++; count[id] > p.kind.PerCluster {
				v = verdict{reason: fmt.Sprintf("cluster %s has more than %d of them", id, p.kind.PerCluster), gone: true}
			}
		}
		if v.reason != "" {
			p.refuseVerdict(o, v)
			p.found[from] = have != nil && !v.gone && p.judge.keeps(p.kind, set.Name, ownerOf(have), have, from.name)
			continue
		}
		p.copyOne(from, id, o, have)
	}
}

// verdict judges an object on the broker.
func (p *freePlan) verdict(set, maker string, o client.Object) verdict {
	if maker != submarinerv1.BrokerID && submarinerv1.CheckClusterID(maker) != nil {
		return verdict{reason: fmt.Sprintf("%.70q is not a cluster ID", maker)}
	}
	if p.kind.Free.BrokerOnly && maker != submarinerv1.BrokerID {
		return verdict{reason: fmt.Sprintf("it is of cluster %s, and only the broker's apply", maker), gone: true}
	}
	if flaw := p.kind.nameFlaw(o.GetName()); flaw != "" {
		return verdict{reason: flaw}
	}
	if n := p.kind.stubSize(o); n > 0 {
		return verdict{reason: fmt.Sprintf("%s: %s", instead(p.copies[place{set, o.GetName()}] != nil), p.kind.tooLarge(n))}
	}
	return p.judge.of(p.kind, set, maker, o)
}

// least returns the least acceptable sequence number of an object on the broker. have is its
// copy, or nil.
func (p *freePlan) least(from place, maker string, have client.Object) int64 {
	if have != nil && ownerOf(have) != maker {
		have = nil
	}
	return p.judge.least(maker, p.kind.placeOf(from.set, from.name), have)
}

// copyOne makes have, which may be nil, the copy of an object on the broker.
func (p *freePlan) copyOne(from place, maker string, o, have client.Object) {
	name := from.name
	p.found[from] = have != nil
	switch {
	case have != nil:
		name = have.GetName()
	case from.set != submarinerv1.DefaultClusterSet || p.names[name]:
		name += "." + from.set
	}
	if have == nil && p.names[name] {
		p.refuse(o, false, "this cluster has an object of the name %s", name)
		return
	}
	want := p.kind.freeCopy(o, p.Namespace, name, map[string]string{submarinerv1.ClusterIDLabel: maker, submarinerv1.ClusterSetLabel: from.set})
	want.SetAnnotations(map[string]string{submarinerv1.SignatureAnnotation: o.GetAnnotations()[submarinerv1.SignatureAnnotation]})
	if have == nil || !p.kind.same(want, have) {
		if _, flaw := p.kind.contentFlaw(want); flaw != "" {
			p.refuse(o, false, "%s: %s", instead(have != nil), flaw)
			return
		}
	}
	if have != nil && ownerOf(have) != maker {
		p.judge.remember(p.kind, have, p.kind.placeOf(from.set, from.name), sequenceOf(have)+1)
	}
	p.write("", want, have)
}

// forget deletes the copies of objects that are not on the broker any more, and of
// clustersets that this cluster has left. The latter wait until all clustersets are known,
// so that there is no moment without any objects.
func (p *freePlan) forget() {
	for _, from := range slices.SortedFunc(maps.Keys(p.copies), place.compare) {
		unread := slices.ContainsFunc(p.sets, func(s SetSnapshot) bool { return s.Name == from.set && !s.Known })
		left := !p.isIn(from.set)
		if p.found[from] || unread && !p.judge.revoked(ownerOf(p.copies[from])) || left && !p.allKnown() {
			continue
		}
		least := sequenceOf(p.copies[from])
		if _, there := p.found[from]; !there && !left {
			least++ // its cluster has deleted it
		}
		p.judge.remember(p.kind, p.copies[from], p.kind.placeOf(from.set, from.name), least)
		p.delete("", p.copies[from])
	}
}

// publish makes the objects of this cluster in a clusterset the same as here, unless
// their names are taken.
func (p *freePlan) publish(set SetSnapshot) {
	there, wanted := map[string]client.Object{}, map[string]bool{}
	for _, o := range set.Objects {
		there[o.GetName()] = o
	}
	for _, s := range p.own {
		name := s.object.GetName()
		only, limited := s.object.GetLabels()[submarinerv1.ClusterSetLabel]
		if s.barred || limited && only != set.Name {
			continue
		}
		if !set.Known {
			s.unread(set.Name)
			continue
		}
		have := there[name]
		if have != nil && makerOf(have) != p.ClusterID {
			remedy := "create this one again under another name"
			if makerOf(have) == submarinerv1.BrokerID {
				remedy = "delete this one if the broker has adopted it; otherwise create it again under another name"
			}
			s.refuse(reasonNameTaken, "%s shared a %s of this name in clusterset %s first: %s", makerName(have), p.kind.Noun, set.Name, remedy)
			continue
		}
		want := s.shareable(p.ClusterID, set.Namespace, have)
		if want == nil {
			continue
		}
		annotations, err := p.signed(want, only, have)
		if err != nil {
			s.refuse(reasonMistake, "%v", err)
			continue
		}
		want.SetAnnotations(annotations)
		wanted[name] = true
		s.share(set.Name, want, have)
		p.write(set.Name, want, have)
	}
	for _, o := range set.Objects {
		if makerOf(o) == p.ClusterID && !wanted[o.GetName()] {
			p.delete(set.Name, o)
		}
	}
}
