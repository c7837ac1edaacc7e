package agent

import (
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"subctl/agent/mesh"
)

// lists keeps sorted lists of the objects of some kinds, of which a cluster may have many
// thousands. To list them from the cache copies and sorts all for every loop. The lists are as the
// cache: they follow the events that make the loop run, before it does, and it does not run before
// they have had all objects. They have the cache's own objects, which must not be changed, so an
// object that is the same in memory has not changed. A nil *lists has no kind.
type lists struct {
	mu    sync.Mutex
	kinds map[reflect.Type]*sortedList
}

// sortedList is the objects of one kind.
type sortedList struct {
	all     []mesh.Object // never changed, only replaced
	changed map[types.NamespacedName]mesh.Object
}

// newLists returns empty lists of some kinds.
func newLists(kinds []mesh.Object) *lists {
	l := &lists{kinds: map[reflect.Type]*sortedList{}}
	for _, kind := range kinds {
		l.kinds[reflect.TypeOf(kind)] = &sortedList{}
	}
	return l
}

// keeps reports whether there is a list of a kind.
func (l *lists) keeps(kind mesh.Object) bool { return l != nil && l.kinds[reflect.TypeOf(kind)] != nil }

// addTo adds the lists of those kinds that have one to a snapshot.
func (l *lists) addTo(s *mesh.Snapshot, kinds []mesh.Object) {
	for _, kind := range kinds {
		if l.keeps(kind) {
			s.SetSorted(l.list(kind))
		}
	}
}

// following returns the predicate p, which also makes the list of a kind, if there is one, follow
// the events.
func (l *lists) following(kind mesh.Object, p predicate.Predicate) predicate.Predicate {
	if !l.keeps(kind) {
		return p
	}
	note := func(o, is mesh.Object) { l.note(kind, mesh.KeyOf(o), is) }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { note(e.Object, e.Object); return p.Create(e) },
		UpdateFunc: func(e event.UpdateEvent) bool { note(e.ObjectNew, e.ObjectNew); return p.Update(e) },
		DeleteFunc: func(e event.DeleteEvent) bool { note(e.Object, nil); return p.Delete(e) },
	}
}

// note notes what has become of an object; nil if it is gone.
func (l *lists) note(kind mesh.Object, key types.NamespacedName, is mesh.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.kinds[reflect.TypeOf(kind)]
	if s.changed == nil {
		s.changed = map[types.NamespacedName]mesh.Object{}
	}
	s.changed[key] = is
}

// list returns the objects of a kind, sorted by namespace and name.
func (l *lists) list(kind mesh.Object) []mesh.Object {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.kinds[reflect.TypeOf(kind)]
	if len(s.changed) > 0 {
		s.all = s.merged()
		s.changed = nil
	}
	return s.all
}

// merged returns the list with what has changed.
func (s *sortedList) merged() []mesh.Object {
	var added []mesh.Object
	gone := make([]bool, len(s.all))
	for key, is := range s.changed {
		if is != nil {
			added = append(added, is)
		}
		if i, found := slices.BinarySearchFunc(s.all, key, mesh.CompareKey); found {
			gone[i] = true
		}
	}
	slices.SortFunc(added, mesh.Compare)
	out := make([]mesh.Object, 0, len(s.all)+len(added))
	from := 0
	for _, o := range added {
		i, _ := slices.BinarySearchFunc(s.all[from:], mesh.KeyOf(o), mesh.CompareKey)
		out = append(kept(out, s.all[from:from+i], gone[from:]), o)
		from += i
	}
	return kept(out, s.all[from:], gone[from:])
}

// kept appends the objects that are not gone.
func kept(out, objs []mesh.Object, gone []bool) []mesh.Object {
	for i, o := range objs {
		if !gone[i] {
			out = append(out, o)
		}
	}
	return out
}
