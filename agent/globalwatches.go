package agent

import (
	"context"
	"fmt"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"subctl/agent/mesh"
	"subctl/agent/parts"
)

// globalWatches watches the kinds that only a cluster with a global network needs. A cluster gets one, or loses it, while agents run.
type globalWatches struct {
	kinds []mesh.Object // none: there is nothing to do
	cache cache.Cache
	nudge func()
	// watch makes changes of a kind lead to the loop, and to the lists.
	watch func(kind mesh.Object, l *lists) (source.SyncingSource, error)

	lists *lists       // nil while nothing is watched
	known *atomic.Bool // reports that the lists have all objects
}

// follow returns the lists of the objects; nil for a cluster without a global network. The error is parts.ErrTooEarly until the lists have all
// objects, and then the loop runs again: the kernel must not lose what a partial list lacks.
func (w *globalWatches) follow(ctx context.Context, s mesh.Snapshot) (*lists, error) {
	switch needed := len(w.kinds) > 0 && mesh.HasGlobalNetwork(s); {
	case !needed && w.lists != nil:
		return nil, w.stop(ctx)
	case needed && w.lists == nil:
		if err := w.start(ctx); err != nil {
			return nil, err
		}
	}
	if w.lists != nil && !w.known.Load() {
		return nil, parts.ErrTooEarly
	}
	return w.lists, nil
}

func (w *globalWatches) start(ctx context.Context) error {
	l, known := newLists(w.kinds), &atomic.Bool{}
	var sources []source.SyncingSource
	for _, kind := range w.kinds {
		s, err := w.watch(kind, l)
		if err != nil {
			return err
		}
		sources = append(sources, s)
	}
	w.lists, w.known = l, known
	go func() {
		for _, s := range sources {
			if s.WaitForSync(ctx) != nil || ctx.Err() != nil {
				return // the agent stops
			}
		}
		known.Store(true)
		w.nudge()
	}()
	return nil
}

// loggedSource is a source with a text for the log.
type loggedSource struct{ source.SyncingSource }

// MarshalText implements encoding.TextMarshaler.
func (s loggedSource) MarshalText() ([]byte, error) { return fmt.Append(nil, s.SyncingSource), nil }

// stop ends the watches: the agent may lose the right to them. Late events reach only the old lists.
func (w *globalWatches) stop(ctx context.Context) error {
	for _, kind := range w.kinds {
		if err := w.cache.RemoveInformer(ctx, kind); err != nil {
			return err
		}
	}
	w.lists, w.known = nil, nil
	return nil
}
