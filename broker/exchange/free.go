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
// on whose broker it is. Each cluster has its own names there: objects of several clusters may have
// one name, and all of them are in force. Only the names of the broker's own objects are taken: the
// condition Shared reports that.
//
// Each clusterset has its own copies here, since two clustersets may have objects of one
// name. A copy never replaces an object that was made here, or another copy, and no other cluster
// takes a name that people may choose here: the copy of an object of a cluster has the name
// <name>.<cluster>.<clusterset>. The copy of an object of the broker has its name or, if that is in
// use, <name>.<clusterset>. It keeps its name, so that there is no moment without the copy.
//
// A mistake is never copied. An object of this cluster that has a mistake is not shared,
// and an object on the broker that has one, written by hand or in bad faith, is not copied
// here. The last version without a mistake stays in force: without it, connections could
// be weaker than somebody asked for. The cluster that made the object goes by what the
// broker holds, too, which its status has: see Shared.

// freePlan is the plan of one kind.
type freePlan struct {
	kindPlan
	own    []*sharedStatus
	copies map[place]client.Object // in this cluster, of what others made
	names  map[string]bool         // every name in use in this cluster
	found  map[place]bool          // what others have on the broker: whether it has a copy

	versions map[place]version // what the broker has
}

// place is whose object is where on the broker, and under which name.
type place struct{ set, maker, name string }

func (p place) compare(other place) int {
	return cmp.Or(cmp.Compare(p.set, other.set), cmp.Compare(p.name, other.name), cmp.Compare(p.maker, other.maker))
}

// version is the object of a place that counts, if the broker has several: two gateways of its
// cluster wrote at the same time, or somebody shows an earlier version again.
type version struct {
	object  client.Object // nil: there is none
	verdict               // zero for objects of this cluster
}

// over reports whether v counts rather than o.
func (v version) over(o version) bool {
	switch {
	case v.gone != o.gone:
		return !v.gone
	case (v.reason == "") != (o.reason == ""):
		return v.reason == ""
	}
	return countsOver(v.object, o.object)
}

func planFree(of kindPlan) {
	p := &freePlan{
		kindPlan: of,
		copies:   map[place]client.Object{},
		names:    map[string]bool{},
		found:    map[place]bool{},
		versions: map[place]version{},
	}
	p.readLocal()
	for _, set := range p.sets {
		if set.Known {
			p.readSet(set)
			p.copyHere(set)
		}
	}
	p.forget()
	if p.judge.left > 0 {
		return
	}
	for _, set := range p.sets {
		p.publish(set)
	}
	for _, s := range p.own {
		if s.reason != "" {
			p.refuse(s.object, true, "%s", s.message)
		}
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
			s.refuse(reasonBrokerOnly,
				"the broker accepts no %s of a cluster (deploy-broker --policies-from broker): create it on the broker, and delete this one",
				p.kind.Noun)
		} else if flaw := p.kind.nameFlaw(o.GetName()); flaw != "" {
			s.refuse(reasonInvalidName, "%s", flaw)
		} else if set, limited := o.GetLabels()[submarinerv1.ClusterSetLabel]; limited && !p.isIn(set) {
			s.refuse(reasonNoSet, "label %s specifies clusterset %q, which this cluster is not in",
				submarinerv1.ClusterSetLabel, set)
		} else if shared++; shared > p.kind.PerCluster {
			s.refuse(reasonTooMany, "a clusterset takes %d %s of one cluster, the first by name", p.kind.PerCluster,
				p.kind.Resource)
		}
		s.barred = s.reason != ""
	}
}

// readCopy notes a copy. A copy that has a name which the exchange does not give, and a
// second copy of one object, are deleted.
func (p *freePlan) readCopy(o client.Object) {
	name, _, _ := strings.Cut(o.GetName(), ".")
	from := place{o.GetLabels()[submarinerv1.ClusterSetLabel], ownerOf(o), name}
	if p.copies[from] != nil || !slices.Contains(from.copyNames(), o.GetName()) {
		p.delete("", o)
		return
	}
	p.copies[from] = o
}

// copyNames returns the names that a copy may have, in the order of preference. The last one can
// be the name of no other copy, so that no cluster can keep a copy out.
func (p place) copyNames() []string {
	switch {
	case p.maker != submarinerv1.BrokerID:
		return []string{p.name + "." + p.maker + "." + p.set}
	case p.set != submarinerv1.DefaultClusterSet:
		return []string{p.name + "." + p.set}
	}
	return []string{p.name, p.name + "." + p.set}
}

// readSet finds the objects that count in a clusterset.
func (p *freePlan) readSet(set SetSnapshot) {
	for _, o := range set.Objects {
		v := version{object: o}
		at := place{set.Name, makerOf(o), o.GetName()}
		if at.maker != p.ClusterID {
			v.verdict = p.verdict(at, o)
		}
		if other := p.versions[at]; other.object == nil || v.over(other) {
			p.versions[at] = v
		}
	}
}

// copyHere makes the copies of a clusterset's objects the same as on the broker. What is refused
// leaves the copy as it is.
func (p *freePlan) copyHere(set SetSnapshot) {
	count := map[string]int{} // by cluster
	for _, o := range set.Objects {
		from := place{set.Name, makerOf(o), o.GetName()}
		counts := p.versions[from]
		if from.maker == p.ClusterID || counts.object != o {
			continue
		}
		have := p.copies[from]
		v := counts.verdict
		if v.reason == "" && (have == nil || !sameSignature(o, have)) {
			if least := p.judge.least(from.maker, p.kind.placeOf(from.set, from.name), have); v.sequence < least {
				v.reason = older(v.sequence, least)
			}
		}
		if v.reason == "" && from.maker != submarinerv1.BrokerID {
			if count[from.maker]++; count[from.maker] > p.kind.PerCluster {
				v = verdict{
					reason: fmt.Sprintf("cluster %s has more than %d of them", from.maker, p.kind.PerCluster),
					gone:   true,
				}
			}
		}
		if v.reason != "" {
			p.refuseVerdict(o, v)
			p.found[from] = have != nil && !v.gone && p.judge.keeps(p.kind, set.Name, from.maker, have, from.name)
			continue
		}
		p.copyOne(from, o, have)
	}
}

// verdict judges an object on the broker.
func (p *freePlan) verdict(at place, o client.Object) verdict {
	maker := at.maker
	if maker != submarinerv1.BrokerID && submarinerv1.CheckClusterID(maker) != nil {
		return verdict{reason: fmt.Sprintf("%.70q is not a cluster ID", maker)}
	}
	if p.kind.Free.BrokerOnly && maker != submarinerv1.BrokerID {
		return verdict{reason: fmt.Sprintf("it is of cluster %s, and only the broker's apply", maker), gone: true}
	}
	if flaw := p.kind.nameFlaw(o.GetName()); flaw != "" {
		return verdict{reason: flaw}
	}
	if excess(o) > 0 {
		return verdict{reason: tooMuch(maker), gone: maker != submarinerv1.BrokerID}
	}
	if n := p.kind.stubSize(o); n > 0 {
		return verdict{reason: fmt.Sprintf("%s: %s", instead(p.copies[at] != nil), p.kind.tooLarge(n))}
	}
	return p.judge.of(p.kind, at.set, maker, o)
}

// copyOne makes have, which may be nil, the copy of an object on the broker.
func (p *freePlan) copyOne(from place, o, have client.Object) {
	p.found[from] = have != nil
	name := ""
	if have != nil {
		name = have.GetName()
	} else {
		names := from.copyNames()
		i := slices.IndexFunc(names, func(n string) bool { return !p.names[n] })
		if i < 0 {
			p.refuse(o, false, "this cluster has an object of the name %s", names[len(names)-1])
			return
		}
		name = names[i]
	}
	want := p.kind.freeCopy(o, p.Namespace, name,
		map[string]string{submarinerv1.ClusterIDLabel: from.maker, submarinerv1.ClusterSetLabel: from.set})
	want.SetAnnotations(
		map[string]string{submarinerv1.SignatureAnnotation: o.GetAnnotations()[submarinerv1.SignatureAnnotation]})
	if have == nil || !p.kind.same(want, have) {
		if _, flaw := p.kind.contentFlaw(want); flaw != "" {
			p.refuse(o, false, "%s: %s", instead(have != nil), flaw)
			return
		}
	}
	p.names[name] = true
	p.write("", want, have)
}

// forget deletes the copies of objects that are not on the broker any more, and of
// clustersets that this cluster has left. The latter wait until all clustersets are known,
// so that there is no moment without any objects.
func (p *freePlan) forget() {
	for _, from := range slices.SortedFunc(maps.Keys(p.copies), place.compare) {
		unread := slices.Contains(p.notKnown, from.set)
		left := !p.isIn(from.set)
		if p.found[from] || unread && !p.judge.isVoid(ownerOf(p.copies[from])) || left && !p.allKnown() {
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
