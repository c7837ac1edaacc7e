package exchange

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
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

// copyHere makes the copies of a clusterset's objects the same as on the broker.
func (p *freePlan) copyHere(set SetSnapshot) {
	count := map[string]int{} // by cluster
	for _, o := range set.Objects {
		id := makerOf(o)
		if id == p.ClusterID {
			continue
		}
		if id != submarinerv1.BrokerID && submarinerv1.CheckClusterID(id) != nil {
			p.refuse(o, false, "%.70q is not a cluster ID", id)
			continue
		}
		if p.kind.Free.BrokerOnly && id != submarinerv1.BrokerID {
			p.refuse(o, false, "it is of cluster %s, and only the broker's apply", id)
			continue
		}
		if flaw := p.kind.nameFlaw(o.GetName()); flaw != "" {
			p.refuse(o, false, "%s", flaw)
			continue
		}
		if count[id]++; count[id] > p.kind.PerCluster && id != submarinerv1.BrokerID {
			p.refuse(o, false, "cluster %s has more than %d of them", id, p.kind.PerCluster)
			continue
		}
		from := place{set.Name, o.GetName()}
		have, name := p.copies[from], o.GetName()
		p.found[from] = have != nil
		switch {
		case have != nil:
			name = have.GetName()
		case set.Name != submarinerv1.DefaultClusterSet || p.names[name]:
			name += "." + set.Name
		}
		if have == nil && p.names[name] {
			p.refuse(o, false, "this cluster has an object of the name %s", name)
			continue
		}
		if n := p.kind.stubSize(o); n > 0 {
			p.refuse(o, false, "%s: %s", instead(have != nil), p.kind.tooLarge(n))
			continue
		}
		want := p.kind.freeCopy(o, p.Namespace, name, map[string]string{submarinerv1.ClusterIDLabel: id, submarinerv1.ClusterSetLabel: set.Name})
		if have == nil || !p.kind.same(want, have) {
			if _, flaw := p.kind.contentFlaw(want); flaw != "" {
				p.refuse(o, false, "%s: %s", instead(have != nil), flaw)
				continue
			}
		}
		p.write("", want, have)
	}
}

// forget deletes the copies of objects that are not on the broker any more, and of
// clustersets that this cluster has left. The latter wait until all clustersets are known,
// so that there is no moment without any objects.
func (p *freePlan) forget() {
	for _, from := range slices.SortedFunc(maps.Keys(p.copies), place.compare) {
		unread := slices.ContainsFunc(p.sets, func(s SetSnapshot) bool { return s.Name == from.set && !s.Known })
		left := !p.isIn(from.set)
		if !p.found[from] && !unread && (!left || p.allKnown()) {
			p.delete("", p.copies[from])
		}
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
		if only, limited := s.object.GetLabels()[submarinerv1.ClusterSetLabel]; s.barred || limited && only != set.Name {
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

// nameFlaw returns the reason why an object cannot be shared under its name, or "".
func (k *Kind) nameFlaw(name string) string {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Sprintf("%.70q cannot name a %s: use at most 63 lower case letters, digits and '-', with a letter or digit at both ends", name, k.Noun)
	}
	return ""
}

// contentFlaw returns the reason why an object must not be copied, as a reason of the
// condition Shared and as a text, or "".
func (k *Kind) contentFlaw(o client.Object) (reason, text string) {
	if n := k.boundedSize(o); n > k.MaxSize {
		return reasonTooLarge, k.tooLarge(n)
	}
	if k.Free.Check == nil {
		return "", ""
	}
	if err := k.Free.Check(o); err != nil {
		const most = 1000 // bytes: the first mistakes will do
		text := strings.ReplaceAll(err.Error(), "\n", "; ")
		if len(text) > most {
			text = strings.ToValidUTF8(text[:most], "") + " …"
		}
		return reasonMistake, text
	}
	return "", ""
}

// instead returns what is in force instead of an object with a flaw.
func instead(before bool) string {
	if before {
		return "its last valid version stays in force"
	}
	return "it is not in force anywhere"
}

// makerOf returns the ID of the cluster that made an object on the broker, or BrokerID.
func makerOf(o client.Object) string {
	if id, ok := submarinerv1.OwnerID(o); ok {
		return id
	}
	return submarinerv1.BrokerID
}

func makerName(o client.Object) string {
	if id := makerOf(o); id != submarinerv1.BrokerID {
		return fmt.Sprintf("cluster %.63s", id)
	}
	return "the broker"
}
