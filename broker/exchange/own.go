package exchange

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// This file plans what this cluster publishes: it makes the objects of this cluster on the broker
// the same as here. sign.go signs them.

// publish makes the objects of this cluster on the broker the same as here. If there are more
// objects than the grant allows, it first refuses objects that are not on the broker yet.
func (p *namedPlan) publish() {
	there := map[string]map[string]client.Object{} // by clusterset and name
	spare := map[string][]client.Object{}          // by clusterset: what is in a slot without need
	onBroker := map[string]bool{}
	for _, set := range p.sets {
		there[set.Name] = map[string]client.Object{}
		for _, o := range set.Objects {
			if !p.isOwn(o) {
				continue
			}
			name := o.GetName()
			later := o
			if !p.kind.Named.Names.Owns(p.ClusterID, name) || p.isStray(set, o) {
				spare[set.Name] = append(spare[set.Name], o)
				continue
			}
			if other := there[set.Name][name]; other != nil {
				if !countsOver(o, other) {
					later = other
					other = o
				}
				spare[set.Name] = append(spare[set.Name], other)
			}
			there[set.Name][name] = later
			onBroker[name] = true
		}
	}
	wants := map[string]client.Object{}
	for _, name := range p.allowed(onBroker) {
		labels, annotations := p.kind.namedMetadata(p.ours[name])
		labels[submarinerv1.ClusterIDLabel] = p.ClusterID
		wants[name] = p.kind.namedCopy(p.ours[name], "", labels, annotations)
	}
	latest := p.latest(wants, there)
	for _, set := range p.sets {
		if set.Known {
			emptying := len(spare[set.Name]) > 0
			for name := range there[set.Name] {
				emptying = emptying || p.surplus[name]
			}
			p.publishIn(set, wants, there[set.Name], latest, emptying)
			for _, o := range spare[set.Name] {
				p.delete(set.Name, o)
			}
		} else {
			for name := range wants {
				if s := p.shares[name]; s != nil {
					s.unread(set.Name)
				}
			}
		}
	}
}

// latest returns, by name, the object with the latest of the signatures that fit: those that the
// clustersets have of this cluster. All clustersets that have the object get that one. Otherwise a
// cluster that has read the latest in a clusterset which it leaves would refuse the others as
// older.
func (p *namedPlan) latest(
	wants map[string]client.Object,
	there map[string]map[string]client.Object,
) map[string]client.Object {
	out := map[string]client.Object{}
	sequences := map[string]int64{}
	for _, objects := range there {
		for name, o := range objects {
			if want := wants[name]; want != nil {
				if sequence, ok := p.states(want, "", o); ok && sequence > sequences[name] {
					out[name] = o
					sequences[name] = sequence
				}
			}
		}
	}
	return out
}

// publishIn makes what a clusterset has of this cluster the same as what it should have. What
// became invalid here stays as it was. emptying reports whether slots will be empty that are not
// yet.
func (p *namedPlan) publishIn(set SetSnapshot, wants, there, latest map[string]client.Object, emptying bool) {
	slots := p.slots(set)
	lacking := 0 // objects without a slot
	inSpare := 0 // slots of spare objects
	for name := range wants {
		if p.isSpare(name) && there[name] != nil {
			inSpare++
		}
	}
	for _, name := range p.spareLast(slices.SortedFunc(maps.Keys(wants), byNumber)) {
		want := wants[name]
		slot, ok := slots.of(there[name])
		switch {
		case !ok && p.isSpare(name):
			continue
		case !ok:
			if lacking++; !emptying && lacking > inSpare {
				p.refuseOwn(p.ours[name], p.shares[name].lacks(), "%s", slots.none())
			} else if s := p.shares[name]; s != nil {
				s.behind = true
			}
			continue
		case lacking > 0 && p.isSpare(name) && there[name] != nil:
			p.delete(set.Name, there[name])
			lacking--
			continue
		}
		var signed client.Object // what is missing needs a later signature: others may have seen that it was deleted
		if there[name] != nil {
			if _, ok := p.states(want, "", there[name]); ok {
				signed = latest[name]
			}
		}
		if s := p.shares[name]; s != nil && there[name] != nil {
			s.found(set.Name, signed != nil)
		} else if s != nil {
			s.behind = true
		}
		annotations, err := p.signed(want, "", signed)
		if err != nil {
			p.refuseOwn(p.ours[name], reasonMistake, "%v", err)
			continue
		}
		if p.kind.Named.HasGrant {
			annotations[submarinerv1.GrantAnnotation] = p.judge.published(set.Name)
		}
		if slot != "" {
			annotations[slotAnnotation] = slot
		}
		p.copy(set.Name, set.Namespace, want, []string{set.Name}, want.GetLabels(), annotations, there[name])
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if have := p.here[name]; p.surplus[name] || p.ours[name] == nil && (have == nil || p.isCopy(have)) {
			p.delete(set.Name, there[name])
		}
	}
}

// allowed returns the names of the objects of this cluster that its grant and its slots allow,
// sorted. The others are refused; spare objects become surplus.
func (p *namedPlan) allowed(onBroker map[string]bool) []string {
	names := slices.Sorted(maps.Keys(p.ours))
	most := p.kind.PerCluster
	why := fmt.Sprintf("a clusterset takes %d %s of one cluster", p.kind.PerCluster, p.kind.Resource)
	if granted := p.kind.most(p.judge.own); p.judge.own.Serial > 0 && granted < most {
		most = granted
		why = fmt.Sprintf("the grant of this cluster allows %d %s: join again with subctl join, which renews it", most,
			p.kind.Resource)
	}
	if len(names) <= most {
		return names
	}
	first := slices.Clone(names)
	incumbentsFirst(first, func(name string) bool { return onBroker[name] })
	over := p.spareLast(first)[most:]
	for _, name := range over {
		if p.surplus[name] = p.isSpare(name); !p.surplus[name] {
			p.refuseOwn(p.ours[name], reasonTooMany, "%s", why)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(over, name) })
}

// byNumber sorts names. Of names that differ in the number at their end, such as those of pages,
// the lowest number comes first.
func byNumber(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// isSpare reports whether an object of this cluster gives way to the others: see Named.Spare.
func (p *namedPlan) isSpare(name string) bool {
	return p.kind.Named.Spare != nil && p.kind.Named.Spare(p.ours[name])
}

// spareLast returns names, with the names of spare objects last.
func (p *namedPlan) spareLast(names []string) []string {
	needed := slices.DeleteFunc(slices.Clone(names), p.isSpare)
	return append(needed, slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !p.isSpare(name) })...)
}

// incumbentsFirst sorts names: those that are in place already, then the others, each by name.
func incumbentsFirst(names []string, isIn func(name string) bool) {
	slices.Sort(names)
	slices.SortStableFunc(names, func(a, b string) int {
		switch in := isIn(a); {
		case in == isIn(b):
			return 0
		case in:
			return -1
		}
		return 1
	})
}

// empties reports whether the broker has an object of this cluster that is not here any more, so
// that its slot is going to be empty.
func (p *freePlan) empties(set SetSnapshot) bool {
	return slices.ContainsFunc(set.Objects, func(o client.Object) bool {
		return makerOf(o) == p.ClusterID &&
			!slices.ContainsFunc(p.own, func(s *sharedStatus) bool { return s.object.GetName() == o.GetName() })
	})
}

// taken reports whether the broker's own object of a place takes its name: it is in force, or its
// last valid version is. Another one, such as one that somebody has made without the
// administrator's key, counts nowhere.
func (p *freePlan) taken(at place) bool {
	v := p.versions[at]
	return v.object != nil && (v.reason == "" || p.copies[at] != nil)
}

// publish makes the objects of this cluster in a clusterset the same as here, unless the
// broker has objects of their names.
func (p *freePlan) publish(set SetSnapshot) {
	slots := p.slots(set)
	wanted := map[client.Object]bool{}
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
		if p.taken(place{set.Name, submarinerv1.BrokerID, name}) {
			s.refuse(reasonNameTaken,
				"the broker has a %s of this name in clusterset %s: delete this one if the broker has adopted it; otherwise create it again under another name",
				p.kind.Noun, set.Name)
			continue
		}
		have := p.versions[place{set.Name, p.ClusterID, name}].object
		if have != nil && p.isStray(set, have) {
			have = nil // it is deleted
		}
		want := s.shareable(p.ClusterID, set.Namespace, have)
		if want == nil {
			continue
		}
		slot, ok := slots.of(have)
		if !ok && p.empties(set) {
			s.behind = true
			continue
		}
		if !ok {
			s.refuse(reasonTooMany, "%s", slots.none())
			continue
		}
		annotations, err := p.signed(want, only, have)
		if err != nil {
			s.refuse(reasonMistake, "%v", err)
			continue
		}
		want.SetAnnotations(annotations)
		setSlot(want, slot)
		if have != nil {
			wanted[have] = true
		}
		s.share(set.Name, want, have)
		p.write(set.Name, want, have)
	}
	for _, o := range set.Objects {
		if makerOf(o) == p.ClusterID && !wanted[o] {
			p.delete(set.Name, o)
		}
	}
}
