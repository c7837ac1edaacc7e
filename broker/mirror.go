package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/wake"
)

// mirror is what one namespace holds of one kind, kept up to date by a watch. It
// keeps what it last knew while the API server is away.
//
// What others write is kept within bounds (see bounds.go). A broker enforces them, so
// one that exceeds them is old or does harm. Of an object that is too large a stub is
// kept, to refuse it by. Of too many none is: any choice among them could differ from
// that of other clusters. The namespace counts as not known then, so that what was
// copied from it before stays as it is.
type mirror struct {
	client    client.WithWatch
	namespace string
	object    client.Object
	newList   func() client.ObjectList
	changed   func()
	most      int // objects of others that are kept; 0: these are our own, however many

	mu      sync.Mutex
	objects map[string]client.Object
	known   bool  // read at least once
	err     error // why it is not being watched now
	tooMany bool
	stop    context.CancelFunc // ends the watch
}

// recount is the time after which a namespace that holds too many objects is read again.
const recount = time.Minute

// watchBackoff is the wait between attempts to watch again: soon after a short
// outage, and with 1,000 clusters some 130 attempts a second after a long one.
func watchBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 20, Cap: 5 * time.Second}
}

var errNoAnswer = errors.New("the API server does not answer")

// run watches until ctx is done.
func (m *mirror) run(ctx context.Context) {
	for ctx.Err() == nil {
		m.watch(ctx)
		_ = wake.After(ctx, recount)
	}
}

// watch watches until ctx is done or there are too many objects.
func (m *mirror) watch(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	m.mu.Lock()
	m.stop = stop
	m.mu.Unlock()
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
	if m.tooMany {
		return nil, false, fmt.Errorf("namespace %s holds more than %d objects of kind %s: nothing is exchanged until some are deleted. "+
			"subctl deploy-broker sets a quota", m.namespace, m.most, kindOf(m.object))
	}
	return slices.Collect(maps.Values(m.objects)), m.known, m.err
}

// check forgets everything if there are too many objects. mu is held.
func (m *mirror) check() {
	if m.tooMany = m.most > 0 && len(m.objects) > m.most; m.tooMany {
		m.objects, m.known = map[string]client.Object{}, false
		m.stop()
	}
}

// The methods of cache.ReflectorStore.

// Add implements cache.ReflectorStore.
func (m *mirror) Add(obj any) error { return m.Update(obj) }

// Update implements cache.ReflectorStore.
func (m *mirror) Update(obj any) error {
	o := m.slim(obj.(client.Object))
	m.mu.Lock()
	m.objects[o.GetName()] = o
	m.check()
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
		o := m.slim(obj.(client.Object))
		objects[o.GetName()] = o
	}
	m.mu.Lock()
	m.objects, m.known = objects, true
	m.check()
	m.mu.Unlock()
	m.changed()
	return nil
}

// Resync implements cache.ReflectorStore.
func (m *mirror) Resync() error { return nil }

// slim returns what is kept of an object.
func (m *mirror) slim(o client.Object) client.Object {
	o.SetManagedFields(nil)
	if m.most == 0 {
		return o
	}
	n := 0
	if p, ok := o.(*v1alpha1.CablePolicies); ok {
		p.Annotations = nil // not copied
		n = policySize(p)
	} else {
		n = size(o)
	}
	if n > maxObjectSize {
		return stub(o, n)
	}
	return o
}

// sizeAnnotation is on stubs: the size of the object, in bytes.
const sizeAnnotation = "submariner.io/size"

// stub returns what it takes to say of an object that it is too large, and to replace or
// delete it.
func stub(o client.Object, size int) client.Object {
	var out client.Object
	switch o := o.(type) {
	case *submarinerv1.Cluster:
		out = &submarinerv1.Cluster{Spec: submarinerv1.ClusterSpec{ClusterID: o.Spec.ClusterID}}
	case *submarinerv1.Endpoint:
		out = &submarinerv1.Endpoint{Spec: submarinerv1.EndpointSpec{ClusterID: o.Spec.ClusterID, CableName: o.Spec.CableName}}
	default:
		out = &v1alpha1.CablePolicies{}
	}
	out.SetName(o.GetName())
	out.SetNamespace(o.GetNamespace())
	out.SetUID(o.GetUID())
	out.SetResourceVersion(o.GetResourceVersion())
	if id, ok := o.GetLabels()[submarinerv1.ClusterIDLabel]; ok {
		out.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: id})
	}
	out.SetAnnotations(map[string]string{sizeAnnotation: strconv.Itoa(size)})
	return out
}

// stubSize is the size of the object that a stub stands for; 0 if o is no stub. Who
// writes the annotation on an object of its own has that refused.
func stubSize(o client.Object) int {
	if n, err := strconv.Atoi(o.GetAnnotations()[sizeAnnotation]); err == nil && n > maxObjectSize {
		return n
	}
	return 0
}

func tooLarge(size int) string {
	return fmt.Sprintf("it has %d bytes, more than %d", size, maxObjectSize)
}
