package agent

import (
	"context"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
)

// informer is the informer of one kind of an agent without a node: it keeps the objects in the
// agent's lists, and nowhere else. The informers of client-go keep an index, a key and a queue
// besides the objects, which take as much memory as slim objects do. Nobody reads the objects from
// the cache of the manager, and nobody calls methods of the embedded interface, which is nil.
type informer struct {
	toolscache.SharedIndexInformer

	lists  *lists
	kind   mesh.Object
	source toolscache.ListerWatcherWithContext
	slim   toolscache.TransformFunc

	mu       sync.Mutex // held while handlers are called
	handlers []toolscache.ResourceEventHandler
	synced   chan struct{} // closed when all objects are in the lists and handlers know them
}

// newInformer returns the informer of a kind; it has the signature of cache.Options.NewInformer.
func (l *lists) newInformer(
	source toolscache.ListerWatcher,
	kind runtime.Object,
	_ time.Duration,
	_ toolscache.Indexers,
) toolscache.SharedIndexInformer {
	return &informer{
		lists:  l,
		kind:   kind.(mesh.Object),
		source: toolscache.ToListerWatcherWithContext(source),
		synced: make(chan struct{}),
	}
}

// SetTransform implements toolscache.SharedIndexInformer.
func (i *informer) SetTransform(slim toolscache.TransformFunc) error { i.slim = slim; return nil }

// GetIndexer implements toolscache.SharedIndexInformer.
func (i *informer) GetIndexer() toolscache.Indexer { return nil }

// HasSynced implements toolscache.SharedIndexInformer.
func (i *informer) HasSynced() bool {
	select {
	case <-i.synced:
		return true
	default:
		return false
	}
}

// HasSyncedChecker implements toolscache.SharedIndexInformer.
func (i *informer) HasSyncedChecker() toolscache.DoneChecker { return syncedChecker{i} }

// syncedChecker implements toolscache.DoneChecker.
type syncedChecker struct{ *informer }

// Name implements toolscache.DoneChecker.
func (c syncedChecker) Name() string { return reflect.TypeOf(c.kind).String() }

// Done implements toolscache.DoneChecker.
func (c syncedChecker) Done() <-chan struct{} { return c.synced }

// AddEventHandlerWithOptions implements toolscache.SharedIndexInformer. The handler gets the
// objects that there are before this returns. It is synced when the informer is.
func (i *informer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler,
	_ toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, o := range i.lists.list(i.kind) {
		h.OnAdd(o, true)
	}
	i.handlers = append(i.handlers, h)
	return i, nil
}

// AddEventHandler implements toolscache.SharedIndexInformer.
func (i *informer) AddEventHandler(
	h toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// listedAtOnce is the size of a page where the API server does not stream lists, so that no more
// objects are in memory before they are slim. If a list takes so long that its next page has
// expired, client-go lists all objects at once.
const listedAtOnce = 500

// RunWithContext implements toolscache.SharedIndexInformer.
func (i *informer) RunWithContext(ctx context.Context) {
	r := toolscache.NewReflectorWithOptions(&toolscache.ListWatch{
		ListWithContextFunc: i.page,
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return i.source.WatchWithContext(ctx, opts)
		},
	}, i.kind, store{i}, toolscache.ReflectorOptions{Name: "agent"})
	r.WatchListPageSize = listedAtOnce
	r.RunWithContext(ctx)
}

// page lists a page of objects, and returns them slim. It reads the newest objects, because API
// servers ignore the limit for objects from their caches.
func (i *informer) page(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.ResourceVersion = ""
	opts.ResourceVersionMatch = ""
	full, err := i.source.ListWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	of, err := meta.ListAccessor(full)
	if err != nil {
		return nil, err
	}
	out := &internalversion.List{
		ListMeta: metav1.ListMeta{
			ResourceVersion:    of.GetResourceVersion(),
			Continue:           of.GetContinue(),
			RemainingItemCount: of.GetRemainingItemCount(),
		},
	}
	return out, meta.EachListItemWithAlloc(full, func(o runtime.Object) error {
		slim, err := store{i}.slimmed(o)
		out.Items = append(out.Items, slim)
		return err
	})
}

// store is the part of an informer to which a reflector writes: the lists.
type store struct{ *informer }

var _ toolscache.TransformingStore = store{}

// slimmed returns a slim object. Slim objects stay as they are.
func (s store) slimmed(o any) (client.Object, error) {
	if s.slim != nil {
		var err error
		if o, err = s.slim(o); err != nil {
			return nil, err
		}
	}
	return o.(client.Object), nil
}

// Transformer implements toolscache.TransformingStore.
func (s store) Transformer() toolscache.TransformFunc { return s.slim }

// Add implements toolscache.ReflectorStore.
func (s store) Add(o any) error { return s.Update(o) }

// Update implements toolscache.ReflectorStore.
func (s store) Update(o any) error {
	is, err := s.slimmed(o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed(s.lists.note(s.kind, mesh.KeyOf(is), is), is, false)
	return nil
}

// Delete implements toolscache.ReflectorStore.
func (s store) Delete(o any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed(s.lists.note(s.kind, mesh.KeyOf(o.(client.Object)), nil), nil, false)
	return nil
}

// Replace implements toolscache.ReflectorStore.
func (s store) Replace(objs []any, _ string) error {
	all := make([]mesh.Object, len(objs))
	for i, o := range objs {
		slim, err := s.slimmed(o)
		if err != nil {
			return err
		}
		all[i] = slim
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.HasSynced()
	s.lists.replace(s.kind, all, func(was, is mesh.Object) { s.changed(was, is, first) })
	if first {
		close(s.synced)
	}
	return nil
}

// Resync implements toolscache.ReflectorStore.
func (s store) Resync() error { return nil }

// changed tells handlers what has become of an object, either of which may be nil.
func (s store) changed(was, is mesh.Object, first bool) {
	for _, h := range s.handlers {
		switch {
		case is == nil && was == nil:
		case is == nil:
			h.OnDelete(was)
		case was == nil:
			h.OnAdd(is, first)
		default:
			h.OnUpdate(was, is)
		}
	}
}
