package exchange

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kube"
)

// fieldOwner is the field manager of the copies on either side.
const fieldOwner = kube.FieldOwner + "-sync"

const (
	// writers is the maximum number of writes under way at a time: the first pass with 1,000
	// clusters has 2,000 writes.
	writers = 16
	// writeTimeout keeps a broker that drops packets from holding up the exchange.
	writeTimeout = 10 * time.Second
)

// phases returns the indices of writes in the order in which they are to be carried out: an
// object is written after the objects that it may depend on, of kinds before its own, and
// deleted before them. Writes of one phase may be carried out at the same time.
func (t Table) phases(writes []Write) [][]int {
	out := make([][]int, 2*len(t))
	for i, w := range writes {
		phase := t.index(w.Object)
		if w.Op == Delete {
			phase = len(out) - 1 - phase
		}
		out[phase] = append(out[phase], i)
	}
	return out
}

// write carries out writes, to a clusterset only while it can be read. It returns how many
// it has carried out, whether the mirrors turned out to be behind, and what failed. It notes
// in writes what was carried out, and what the API server has rejected for good.
func (e *Exchange) write(ctx context.Context, writes []Write) (done uint64, stale bool, errs []error) {
	for _, phase := range e.config.Kinds.phases(writes) {
		n, behind, failed := e.writePhase(ctx, writes, phase)
		done = done + n
		stale = stale || behind
		errs = append(errs, failed...)
	}
	return done, stale, errs
}

func (e *Exchange) writePhase(
	ctx context.Context,
	writes []Write,
	phase []int,
) (done uint64, stale bool, errs []error) {
	to := map[string]side{"": e.local}
	for _, set := range e.sets {
		if set.fault() == nil { // else it is reported why, and a later pass writes
			to[set.set.Name] = set.side
		}
	}
	var (
		count  atomic.Uint64
		behind atomic.Bool
		mu     sync.Mutex
		group  sync.WaitGroup
	)
	slots := make(chan struct{}, writers)
	for _, i := range phase {
		w := writes[i]
		side, ok := to[w.Set]
		if !ok {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			there, err := do(ctx, side.client, w)
			switch {
			case err == nil:
				count.Add(1)
				side.wrote(w, there)
				writes[i].done = true
				e.config.Log.Info("synced", "op", w.String())
				if w.news != nil && e.config.Warn != nil {
					e.config.Warn(w.Object, *w.news)
				}
			case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) ||
				apierrors.IsNotFound(err) && (w.Op != Create || w.Set != ""):
				behind.Store(true)
				e.rounds.hasten(w.Set)
			default:
				writes[i].rejected = apierrors.IsInvalid(err)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, side.failed(w, err))
			}
		})
	}
	group.Wait()
	return count.Load(), behind.Load(), errs
}

// failed returns the error of a write. If the broker does not accept the token of the cluster, it
// is the same for all objects.
func (s side) failed(w Write, err error) error {
	if s.set.Name != "" && apierrors.IsUnauthorized(err) {
		return fmt.Errorf(
			"writing to %s: %w: this cluster was revoked, or its token was deleted: join it again with subctl join", s,
			err)
	}
	return fmt.Errorf("%s: %w", w, err)
}

// wrote notes what was written to a side that is not watched; there is nil if the object was
// deleted.
func (s side) wrote(w Write, there client.Object) {
	for _, m := range s.mirrors {
		if s.polled && m.kind == w.kind {
			m.wrote(slotOf(w.Object), there)
		}
	}
}

// do carries out a write, unless the object has changed since the plan was made. It returns the
// object as it is then; nil if it was deleted.
func do(ctx context.Context, c client.Client, w Write) (there client.Object, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	obj := w.Object.DeepCopyObject().(client.Object)
	if w.Set != "" {
		w.kind.toBroker(obj)
	}
	switch {
	case w.Set != "" && w.Op == Create:
		return obj, w.kind.fill(ctx, c, obj)
	case w.Set != "" && w.Op == Delete:
		return w.kind.empty(ctx, c, obj)
	}
	return obj, doHere(ctx, c, w, obj)
}

// doHere carries out a write of an object, by its name there.
func doHere(ctx context.Context, c client.Client, w Write, obj client.Object) error {
	switch w.Op {
	case Create:
		return c.Create(ctx, obj, client.FieldOwner(fieldOwner))
	case Update:
		return c.Update(ctx, obj, client.FieldOwner(fieldOwner))
	case Report:
		conditions := w.kind.Status(obj).Conditions // of obj, not copies
		for i := range conditions {
			if conditions[i].LastTransitionTime.IsZero() {
				conditions[i].LastTransitionTime = metav1.Now()
			}
		}
		return kube.ApplyStatus(ctx, c, fieldOwner, obj)
	default:
		uid := obj.GetUID()
		version := obj.GetResourceVersion()
		return c.Delete(ctx, obj, client.Preconditions{UID: &uid, ResourceVersion: &version})
	}
}
