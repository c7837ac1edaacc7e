package exchange

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/wake"
)

// mirror holds the objects of one kind in one namespace, kept up to date by a watch or by
// polls: see poll.go. While the API server does not answer, it keeps what it knew last.
//
// What others write is kept within the bounds of its kind. A broker enforces the bounds,
// so a broker that exceeds them is old or acts in bad faith. An object that is too large
// is kept as a stub, which is enough to refuse it. If there are too many objects, none is
// kept, as any choice could differ from the choice of other clusters. The namespace is not
// known then, so that what was copied from it before stays as it is.
type mirror struct {
	client    client.WithWatch
	lists     rest.Interface // for poll
	namespace string
	kind      *Kind
	changed   func()
	most      int // objects that are kept; 0: all, as this is our own cluster

	mu      sync.Mutex
	objects map[string]client.Object // by their names there
	empty   map[string]types.UID     // the owners of empty objects, by their names: see reserve.go
	known   bool                     // read at least once
	err     error                    // why it is not being watched now
	asked   time.Time                // since when a request waits for its answer; zero if none does
	tooMany bool
	stop    context.CancelFunc // ends the watch; nil while there is none
	version string             // no later list may be older; empty: it must be the newest
	again   bool               // the next list replaces the stubs of fit.go
	epoch   int                // is changed when what a list has begun to read does not count any more
	digest  uint64             // of the items of the last list, as they were sent; 0 if the mirror was changed since
}

// mostKept returns how many objects of a kind are kept in a namespace of the broker: so many as the
// quota allows, and some more. An administrator may have to add a policy while the quota is used
// up, for which the quota is raised.
func (k *Kind) mostKept() int { return k.Quota + 64 }

// recount is the time after which a namespace with too many objects is read again.
const recount = time.Minute

// watchBackoff returns the wait between attempts to watch again: short after a short
// outage; after a long one, 1,000 clusters make some 130 attempts a second.
func watchBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 20, Cap: 5 * time.Second}
}

// answerTimeout is the time after which a request that has no answer counts as unanswered.
// client-go repeats one that times out, and reports it after minutes.
const answerTimeout = 15 * time.Second

var errNoAnswer = errors.New("the API server does not answer")

// run watches until ctx is done.
func (m *mirror) run(ctx context.Context) {
	for ctx.Err() == nil {
		m.watch(ctx)
		_ = wake.After(ctx, m.pause())
	}
}

// pause returns how long to wait before the namespace is read again.
func (m *mirror) pause() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.again {
		return passPause
	}
	return recount
}

// watch watches until ctx is done or there are too many objects.
func (m *mirror) watch(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	m.mu.Lock()
	m.stop = stop
	m.mu.Unlock()
	defer m.stopped()
	discard := logr.Discard() // errors are in m.err
	list := pages{most: m.most}
	r := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			m.ask()
			page := m.kind.newList()
			err := anew(m.client.List(ctx, page, &client.ListOptions{Namespace: m.namespace, Raw: &o}),
				o.ResourceVersion)
			if err == nil {
				err = list.add(o, page)
			}
			m.contact(err)
			return page, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			m.ask()
			w, err := startedWatch(
				m.client.Watch(ctx, m.kind.newList(), &client.ListOptions{Namespace: m.namespace, Raw: &o}))
			err = anew(err, o.ResourceVersion)
			m.contact(err)
			if err != nil {
				return w, err
			}
			return endedWatch(w, o, 2*m.most, m.contact), nil
		},
	}, m.kind.New(), m, cache.ReflectorOptions{Name: "broker-sync", Logger: &discard, Backoff: watchBackoff()})
	r.RunWithContext(logr.NewContext(ctx, discard))
}

// stopped notes that the watch has ended.
func (m *mirror) stopped() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop = nil
}

// startedWatch returns a watch, or an error if it did not start. If the connection is cut or times
// out, client-go returns no error, but a watch that has ended already.
func startedWatch(w watch.Interface, err error) (watch.Interface, error) {
	if err == nil && reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()) {
		return nil, errNoAnswer
	}
	return w, err
}

// ask notes that a request is sent.
func (m *mirror) ask() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = time.Now()
}

// contact notes whether the API server answers.
func (m *mirror) contact(err error) {
	m.mu.Lock()
	changed := (err == nil) != (m.err == nil)
	m.err = err
	m.asked = time.Time{}
	m.mu.Unlock()
	if changed {
		m.changed()
	}
}

// read returns the objects, whether they were ever read, and the reason why they are not
// watched now. The objects must not be changed.
func (m *mirror) read() (objects []client.Object, known bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.objects)), m.known, m.fault()
}

// fault returns the reason why the namespace is not read now; nil if it is. The caller holds mu.
func (m *mirror) fault() error {
	if m.tooMany {
		return fmt.Errorf(
			"namespace %s holds more than %d objects of kind %s: nothing is exchanged until some are deleted. "+
				"subctl deploy-broker sets a quota",
			m.namespace,
			m.most,
			m.kind.Name,
		)
	}
	if m.err == nil && !m.asked.IsZero() && time.Since(m.asked) > answerTimeout {
		return errNoAnswer
	}
	return m.err
}

// check forgets everything if there are too many objects. The caller holds mu.
func (m *mirror) check() {
	if m.tooMany = m.most > 0 && len(m.objects)+len(m.empty) > m.most; m.tooMany {
		m.objects = map[string]client.Object{}
		m.empty = nil
		m.known = false
		if m.stop != nil {
			m.stop()
		}
	}
}

// The methods of cache.ReflectorStore.

// Add implements cache.ReflectorStore.
func (m *mirror) Add(obj any) error { return m.Update(obj) }

// Update implements cache.ReflectorStore.
func (m *mirror) Update(obj any) error {
	name := obj.(client.Object).GetName()
	empty := m.isEmpty(obj)
	owner := ownerUID(obj.(client.Object))
	o := m.slim(obj.(client.Object))
	m.mu.Lock()
	if empty {
		delete(m.objects, name)
		m.setEmpty(name, owner)
	} else {
		m.objects[name] = o
		delete(m.empty, name)
	}
	m.check()
	m.mu.Unlock()
	m.changed()
	return nil
}

// Delete implements cache.ReflectorStore.
func (m *mirror) Delete(obj any) error {
	m.mu.Lock()
	delete(m.objects, obj.(client.Object).GetName())
	delete(m.empty, obj.(client.Object).GetName())
	m.mu.Unlock()
	m.changed()
	return nil
}

// Replace implements cache.ReflectorStore.
func (m *mirror) Replace(list []any, version string) error {
	m.mu.Lock()
	m.replace(list, version)
	m.mu.Unlock()
	m.changed()
	return nil
}

// replace takes over a list. It reports whether it differs from what was known. Objects that have
// not changed stay the same in memory, so that their signatures are not verified again. The caller
// holds mu.
func (m *mirror) replace(list []any, version string) (changed bool) {
	objects := make(map[string]client.Object, len(list))
	empty := map[string]types.UID{}
	same := 0
	for _, obj := range list {
		o := obj.(client.Object)
		name := o.GetName()
		before := m.objects[o.GetName()]
		switch {
		case before != nil && before.GetUID() == o.GetUID() && before.GetResourceVersion() == o.GetResourceVersion() &&
			!(m.again && excess(before) > 0):
			objects[name] = before
			same++
		case m.isEmpty(obj):
			empty[name] = ownerUID(o)
		default:
			objects[name] = m.slim(o)
		}
	}
	changed = !m.known || same != len(objects) || same != len(m.objects) || !maps.Equal(empty, m.empty)
	m.objects = objects
	m.empty = empty
	m.known = true
	m.version = version
	m.again = false
	m.check()
	return changed
}

// Resync implements cache.ReflectorStore.
func (m *mirror) Resync() error { return nil }

// isEmpty reports whether an object of the broker is empty. It has its name there.
func (m *mirror) isEmpty(obj any) bool { return m.most > 0 && m.kind.IsEmpty(obj.(client.Object)) }

// setEmpty notes an empty object. The caller holds mu.
func (m *mirror) setEmpty(name string, owner types.UID) {
	if m.empty == nil {
		m.empty = map[string]types.UID{}
	}
	m.empty[name] = owner
}

// reservations adds the empty objects to a set: see SetSnapshot.
func (m *mirror) reservations(to map[string]types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, owner := range m.empty {
		to[m.kind.reservation(name)] = owner
	}
}
