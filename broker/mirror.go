package broker

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mirror is what one namespace holds of one kind, kept up to date by a watch. It
// keeps what it last knew while the API server is away.
type mirror struct {
	client    client.WithWatch
	namespace string
	object    client.Object
	newList   func() client.ObjectList
	changed   func()

	mu      sync.Mutex
	objects map[string]client.Object
	known   bool  // read at least once
	err     error // why it is not being watched now
}

// watchBackoff is the wait between attempts to watch again: soon after a short
// outage, and with 1,000 clusters some 130 attempts a second after a long one.
func watchBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 20, Cap: 5 * time.Second}
}

var errNoAnswer = errors.New("the API server does not answer")

// run watches until ctx is done.
func (m *mirror) run(ctx context.Context) {
	discard := logr.Discard() // what goes wrong is in err
	r := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := m.newList()
			err := m.client.List(ctx, list, &client.ListOptions{Namespace: m.namespace, Raw: &o})
			m.contact(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := m.client.Watch(ctx, m.newList(), &client.ListOptions{Namespace: m.namespace, Raw: &o})
			// client-go answers a connection that is cut or times out with a watch that
			// is over at once, and no error.
			if err == nil && reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()) {
				w, err = nil, errNoAnswer
			}
			m.contact(err)
			return w, err
		},
	}, m.object, m, cache.ReflectorOptions{Name: "broker-sync", Logger: &discard, Backoff: watchBackoff()})
	r.RunWithContext(logr.NewContext(ctx, discard))
}

// contact notes whether the API server answers.
func (m *mirror) contact(err error) {
	m.mu.Lock()
	changed := (err == nil) != (m.err == nil)
	m.err = err
	m.mu.Unlock()
	if changed {
		m.changed()
	}
}

// read returns the objects, whether they were ever read, and why they are not
// watched now. The objects must not be changed.
func (m *mirror) read() (objects []client.Object, known bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.objects {
		objects = append(objects, o)
	}
	return slices.Clip(objects), m.known, m.err
}

// The methods of cache.ReflectorStore.

// Add implements cache.ReflectorStore.
func (m *mirror) Add(obj any) error { return m.Update(obj) }

// Update implements cache.ReflectorStore.
func (m *mirror) Update(obj any) error {
	o := obj.(client.Object)
	m.mu.Lock()
	m.objects[o.GetName()] = o
	m.mu.Unlock()
	m.changed()
	return nil
}

// Delete implements cache.ReflectorStore.
func (m *mirror) Delete(obj any) error {
	m.mu.Lock()
	delete(m.objects, obj.(client.Object).GetName())
	m.mu.Unlock()
	m.changed()
	return nil
}

// Replace implements cache.ReflectorStore.
func (m *mirror) Replace(list []any, _ string) error {
	objects := make(map[string]client.Object, len(list))
	for _, obj := range list {
		o := obj.(client.Object)
		objects[o.GetName()] = o
	}
	m.mu.Lock()
	m.objects, m.known = objects, true
	m.mu.Unlock()
	m.changed()
	return nil
}

// Resync implements cache.ReflectorStore.
func (m *mirror) Resync() error { return nil }
