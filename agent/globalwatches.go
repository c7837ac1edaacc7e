package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"subctl/agent/parts"
	"subctl/agent/role"
	"subctl/globalnet/allocator"
)

// globalWatches watches the kinds that only a cluster with a global network needs. A cluster gets
// one, or loses it, while agents run.
type globalWatches struct {
	kinds   []role.Object // none: there is nothing to do
	cache   cache.Cache
	trigger func()
	// watch makes changes of a kind lead to the loop, and to the lists.
	watch func(kind role.Object, l *lists) (source.SyncingSource, error)

	reader  client.Reader // of the API server itself
	scheme  *runtime.Scheme
	overdue time.Duration // after which the kinds that cannot be read are reported; 0: never

	lists *lists       // nil while nothing is watched
	known *atomic.Bool // reports that the lists have all objects
	fault *atomic.Pointer[watchFault]
}

// watchesOverdue is the time after which watches count as hindered: reading 50,000 objects takes a
// few seconds.
const watchesOverdue = 30 * time.Second

// watchFault is the reason why the lists do not have all objects.
type watchFault struct {
	err   error
	ended bool // whether the watches have ended, and must be started again
}

// follow returns the lists of the objects; nil for a cluster without a global network. The error is
// parts.ErrTooEarly until the lists have all objects, and then the loop runs again: the kernel must
// not lose what a partial list lacks. If that takes long, the error names the kinds that cannot be
// read.
func (w *globalWatches) follow(ctx context.Context, s role.Snapshot) (*lists, error) {
	switch needed := len(w.kinds) > 0 && allocator.HasGlobalNetwork(s); {
	case !needed && w.lists != nil:
		return nil, w.stop(ctx)
	case needed && w.lists == nil:
		if err := w.start(ctx); err != nil {
			return nil, err
		}
	}
	if w.lists != nil && !w.known.Load() {
		fault := w.fault.Load()
		if fault == nil {
			return nil, parts.ErrTooEarly
		}
		if fault.ended {
			return nil, errors.Join(fault.err, w.stop(ctx))
		}
		return nil, fault.err
	}
	return w.lists, nil
}

func (w *globalWatches) start(ctx context.Context) error {
	l := newLists(w.kinds)
	known := &atomic.Bool{}
	fault := &atomic.Pointer[watchFault]{}
	var sources []source.SyncingSource
	for _, kind := range w.kinds {
		s, err := w.watch(kind, l)
		if err != nil {
			return err
		}
		sources = append(sources, s)
	}
	w.lists = l
	w.known = known
	w.fault = fault
	synced := make(chan struct{})
	go func() {
		defer close(synced)
		for _, s := range sources {
			err := s.WaitForSync(ctx)
			if ctx.Err() != nil {
				return // the agent stops
			}
			if err != nil {
				fault.Store(&watchFault{fmt.Errorf("watching the objects of global networks: %v: %w", s, err), true})
				w.trigger()
				return
			}
		}
		known.Store(true)
		w.trigger()
	}()
	if w.overdue > 0 {
		go w.explain(ctx, fault, synced)
	}
	return nil
}

// explain finds out, again and again, why the lists do not have all objects, until synced is
// closed.
func (w *globalWatches) explain(ctx context.Context, fault *atomic.Pointer[watchFault], synced <-chan struct{}) {
	tick := time.NewTicker(w.overdue)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-synced:
			return
		case <-tick.C:
		}
		why := &watchFault{
			err: fmt.Errorf(
				"the objects of global networks are not known yet, so global addresses stay as they are: %w",
				w.unreadable(ctx)),
		}
		was := fault.Load()
		if was != nil && was.ended {
			return
		}
		if fault.CompareAndSwap(was, why) && (was == nil || was.err.Error() != why.err.Error()) {
			w.trigger()
		}
	}
}

// unreadable returns which kinds cannot be listed, and why.
func (w *globalWatches) unreadable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.overdue)
	defer cancel()
	var errs []error
	for _, kind := range w.kinds {
		gvk, err := apiutil.GVKForObject(kind, w.scheme)
		if err == nil {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
			err = w.reader.List(ctx, list, client.Limit(1))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("listing objects of kind %s: %w", gvk.Kind, err))
		}
	}
	if len(errs) == 0 {
		return errors.New("all kinds can be listed, but the API server has not sent all objects")
	}
	return errors.Join(errs...)
}

// loggedSource is a source with a text for the log.
type loggedSource struct{ source.SyncingSource }

// MarshalText implements encoding.TextMarshaler.
func (s loggedSource) MarshalText() ([]byte, error) { return fmt.Append(nil, s.SyncingSource), nil }

// stop ends the watches: the agent may lose the right to them. Late events reach only the old
// lists.
func (w *globalWatches) stop(ctx context.Context) error {
	for _, kind := range w.kinds {
		if err := w.cache.RemoveInformer(ctx, kind); err != nil {
			return err
		}
	}
	w.lists = nil
	w.known = nil
	w.fault = nil
	return nil
}
