package agent

import (
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"subctl/agent/role"
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
	all     []role.Object // never changed, only replaced
	changed map[types.NamespacedName]role.Object
}

// newLists returns empty lists of some kinds.
func newLists(kinds []role.Object) *lists {
	l := &lists{kinds: map[reflect.Type]*sortedList{}}
	for _, kind := range kinds {
		l.kinds[reflect.TypeOf(kind)] = &sortedList{}
	}
	return l
}

// has reports whether there is a list of a kind.
func (l *lists) has(kind role.Object) bool { return l != nil && l.kinds[reflect.TypeOf(kind)] != nil }

// addTo adds the lists of those kinds that have one to a snapshot.
func (l *lists) addTo(s *role.Snapshot, kinds []role.Object) {
	for _, kind := range kinds {
		if l.has(kind) {
			s.SetSorted(l.list(kind))
		}
	}
}

// recording returns the predicate p, which also makes the list of a kind, if there is one, follow
// the events.
func (l *lists) recording(kind role.Object, p predicate.Predicate) predicate.Predicate {
	if !l.has(kind) {
		return p
	}
	note := func(o, is role.Object) { l.record(kind, role.KeyOf(o), is) }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { note(e.Object, e.Object); return p.Create(e) },
		UpdateFunc: func(e event.UpdateEvent) bool { note(e.ObjectNew, e.ObjectNew); return p.Update(e) },
		DeleteFunc: func(e event.DeleteEvent) bool { note(e.Object, nil); return p.Delete(e) },
	}
}

// record notes what has become of an object; nil if it is gone.
func (l *lists) record(kind role.Object, key types.NamespacedName, is role.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.kinds[reflect.TypeOf(kind)]
	if s.changed == nil {
		s.changed = map[types.NamespacedName]role.Object{}
	}
	s.changed[key] = is
}

// list returns the objects of a kind, sorted by namespace and name.
func (l *lists) list(kind role.Object) []role.Object {
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
func (s *sortedList) merged() []role.Object {
	var added []role.Object
	gone := make([]bool, len(s.all))
	for key, is := range s.changed {
		if is != nil {
			added = append(added, is)
		}
		if i, found := slices.BinarySearchFunc(s.all, key, role.CompareKey); found {
			gone[i] = true
		}
	}
	slices.SortFunc(added, role.Compare)
	out := make([]role.Object, 0, len(s.all)+len(added))
	from := 0
	for _, o := range added {
		i, _ := slices.BinarySearchFunc(s.all[from:], role.KeyOf(o), role.CompareKey)
		out = append(present(out, s.all[from:from+i], gone[from:]), o)
		from += i
	}
	return present(out, s.all[from:], gone[from:])
}

// present appends the objects that are not gone.
func present(out, objs []role.Object, gone []bool) []role.Object {
	for i, o := range objs {
		if !gone[i] {
			out = append(out, o)
		}
	}
	return out
}
