package exchange

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// This file bounds how many objects a member stores on a broker. An admission policy looks at one
// object at a time, and cannot count. A quota counts the objects of all members together, so that
// one member could use it up: see docs/adr/0019-bounds.md. What an API server enforces exactly is
// that a name exists once. So a member has a fixed number of names for its objects, its slots:
// <cluster ID>.0, <cluster ID>.1 and so on. The admission policy accepts no other names, and the
// names of two members differ, as no cluster ID contains a '.'.
//
// A slot says nothing about the object in it. The name that the object has in clusters is in
// submarinerv1.NameAnnotation; signatures cover that name, and everything else uses it. It is
// replaced by the slot where objects are written to a broker, and the other way round where they
// are read. In between, the slot is in slotAnnotation.
//
// Objects that the administrator makes on the broker, and kinds of which a cluster has only one
// object, have no slot.

// slotAnnotation is on objects of a broker in memory: their name on the broker.
const slotAnnotation = "submariner.io/slot"

// Slotted reports whether the objects of members are in slots on the broker.
func (k *Kind) Slotted() bool { return k.Named == nil || k.Named.Names.Rest != nil }

// SlotName returns the name of slot n of cluster id.
func SlotName(id string, n int) string { return fmt.Sprintf("%s.%d", id, n) }

// SlotExpression returns a CEL expression that reports whether variables.slot is a slot of cluster
// variables.id, and the name in clusters is not too long.
func (k *Kind) SlotExpression() string {
	const number = "variables.slot.substring(size(variables.id) + 1)"
	return fmt.Sprintf(
		"(variables.slot.startsWith(variables.id + '.') && %[1]s.matches('^(0|[1-9][0-9]{0,3})$') && int(%[1]s) < %[2]d && size(variables.name) <= %[3]d)",
		number, k.PerCluster, validation.DNS1123SubdomainMaxLength)
}

// FromBroker gives an object that was read from a broker the name that it has in clusters.
func (t Table) FromBroker(o client.Object) {
	if i := t.index(o); i >= 0 {
		t[i].fromBroker(o)
	}
}

// ToBroker is the inverse of FromBroker.
func (t Table) ToBroker(o client.Object) {
	if i := t.index(o); i >= 0 {
		t[i].toBroker(o)
	}
}

func (k *Kind) fromBroker(o client.Object) {
	slot := o.GetName()
	name := o.GetAnnotations()[submarinerv1.NameAnnotation]
	if !k.Slotted() || !strings.Contains(slot, ".") {
		slot = ""
	} else if name != "" && len(name) <= validation.DNS1123SubdomainMaxLength {
		o.SetName(name)
	}
	if slot != "" || o.GetAnnotations()[slotAnnotation] != "" { // somebody may have set the annotation
		setSlot(o, slot)
	}
}

func (k *Kind) toBroker(o client.Object) {
	slot := o.GetAnnotations()[slotAnnotation]
	if slot == "" {
		return
	}
	setSlot(o, "")
	o.GetAnnotations()[submarinerv1.NameAnnotation] = o.GetName()
	o.SetName(slot)
}

// setSlot sets the annotation of an object that names its slot, and removes the one with its own
// name. If slot is empty, both are removed.
func setSlot(o client.Object, slot string) {
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, submarinerv1.NameAnnotation)
	delete(annotations, slotAnnotation)
	if slot != "" {
		annotations[slotAnnotation] = slot
	}
	o.SetAnnotations(annotations)
}

// slotOf returns the name that an object has on the broker.
func slotOf(o client.Object) string { return cmp.Or(o.GetAnnotations()[slotAnnotation], o.GetName()) }

// slotOwner returns the ID of the cluster in whose slot an object is, if it is in any.
func slotOwner(o client.Object) (id string, ok bool) {
	return cutSlot(o.GetAnnotations()[slotAnnotation])
}

// countsOver reports whether object o of a cluster counts rather than another one of its name: the
// one in a slot, or else the later one. Only a broker puts objects of clusters elsewhere, and
// sequence numbers are not verified yet.
func countsOver(o, other client.Object) bool {
	_, in := slotOwner(o)
	_, otherIn := slotOwner(other)
	if in != otherIn {
		return in
	}
	return sequenceOf(o) > sequenceOf(other)
}

// cutSlot returns the ID of the cluster to which a slot belongs, and reports whether name is a
// slot.
func cutSlot(name string) (id string, ok bool) {
	id, _, ok = strings.Cut(name, ".")
	return id, ok
}

// slots are the slots of this cluster in a clusterset.
type slots struct {
	*kindPlan
	set    SetSnapshot
	used   map[string]bool
	owners map[types.UID]bool // of the objects of this cluster that are in use
}

func (p *kindPlan) slots(set SetSnapshot) *slots {
	s := &slots{p, set, map[string]bool{}, p.owners[set.Name]}
	for _, o := range set.Objects {
		if id, ok := slotOwner(o); ok && id == p.ClusterID {
			s.used[slotOf(o)] = true
		}
	}
	return s
}

// ownersOf returns the UIDs of the owners of the objects of a cluster that are in use in a
// clusterset.
func (s SetSnapshot) ownersOf(cluster string) map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, o := range s.Objects {
		if id, ok := slotOwner(o); ok && id == cluster || !ok && o.GetName() == cluster {
			out[ownerUID(o)] = true
		}
	}
	delete(out, "")
	return out
}

// maxUID is more than the 36 characters of a UID. A broker without the admission policy lets
// members choose longer ones.
const maxUID = 64

// ownerUID returns the UID of the owner of an object, up to maxUID characters of it; "" if it has
// no owner.
func ownerUID(o client.Object) types.UID {
	for _, owner := range o.GetOwnerReferences() {
		return types.UID(strings.Clone(string(owner.UID[:min(len(owner.UID), maxUID)])))
	}
	return ""
}

// isReserved reports whether the broker has an empty object of a name that belongs to the account
// of this cluster. The holder of a join file can make others, which the broker deletes, with what
// is in them. The account is known by the objects that are in use.
func (s *slots) isReserved(name string) bool {
	if s.set.Reserved == nil {
		return true
	}
	owner, ok := s.set.Reserved[s.kind.reservation(name)]
	return ok && (owner == "" || len(s.owners) == 0 || s.owners[owner])
}

// isStray reports whether an object of this cluster is in no slot. Somebody else has made it, and
// the broker lets this cluster delete it, but not change it.
func (p *kindPlan) isStray(set SetSnapshot, o client.Object) bool {
	_, ok := slotOwner(o)
	return set.Reserved != nil && p.kind.Slotted() && !ok
}

// NotReserved is part of the message about an object for which a clusterset has no place: the
// clusterset is gone, or what a member had in it.
const NotReserved = "reserved for this cluster in clusterset"

// none returns why there is no slot.
func (s *slots) none() string {
	if len(s.used) >= s.kind.PerCluster {
		return fmt.Sprintf("a clusterset takes %d %s of one cluster", s.kind.PerCluster, s.kind.Resource)
	}
	if len(s.used) == 0 {
		return fmt.Sprintf(
			"the broker has no %s "+NotReserved+
				" %s: the clusterset was deleted, or somebody has deleted what this cluster has in it: "+
				"look at it with subctl clusterset list on the broker, and run subctl join again with a join file of the broker",
			s.kind.Resource,
			s.set.Name,
		)
	}
	return fmt.Sprintf(
		"%s "+NotReserved+
			" %s: %d, all in use: run subctl join again with a join file of the broker, which reserves as many as this cluster has",
		s.kind.Resource,
		s.set.Name,
		len(s.used),
	)
}

// of returns the slot for an object: the one that it has, if have, the object as it is on the
// broker, is not nil. Otherwise it is one that is free now, or there is none.
func (s *slots) of(have client.Object) (slot string, ok bool) {
	if have != nil {
		return have.GetAnnotations()[slotAnnotation], true
	}
	if !s.kind.Slotted() {
		return "", s.isReserved(s.ClusterID)
	}
	for n := range s.kind.PerCluster {
		if slot := SlotName(s.ClusterID, n); !s.used[slot] && s.isReserved(slot) {
			s.used[slot] = true
			return slot, true
		}
	}
	return "", false
}

// InClusters returns objects that were read from a namespace of a broker as clusters have them:
// under the names that they have there, and of several versions of an object the latest. It does
// not verify signatures.
func InClusters[T any, P interface {
	*T
	client.Object
}](objects []T) []T {
	kinds := Kinds()
	at := map[string]int{}
	out := objects[:0:0]
	for _, item := range objects {
		o := P(&item)
		if kinds.IsEmpty(o) {
			continue
		}
		kinds.FromBroker(o)
		key := makerOf(o) + "/" + o.GetName()
		i, taken := at[key]
		switch {
		case !taken:
			at[key] = len(out)
			out = append(out, item)
		case sequenceOf(o) > sequenceOf(P(&out[i])):
			out[i] = item
		}
	}
	return out
}
