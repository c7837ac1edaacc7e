package broker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kube"
)

// fieldOwner is the field manager of the copies on either side.
const fieldOwner = kube.FieldOwner + "-sync"

const (
	// writers is how many writes are under way at a time: the first sync with
	// 1,000 clusters is 2,000 of them.
	writers = 16
	// writeTimeout keeps a broker that swallows packets from holding up the sync.
	writeTimeout = 10 * time.Second
)

// write does the writes, those to a clusterset only while it is watched. It
// returns how many were done, whether the mirrors turned out to be behind, and
// what failed.
func (s *Syncer) write(ctx context.Context, writes []Write, local side, sets []side) (done uint64, stale bool, errs []error) {
	to := map[string]side{"": local}
	for _, set := range sets {
		if _, _, err := set.read(); err == nil { // else: its watch says why, and what to write will be looked at again
			to[set.set.Name] = set
		}
	}
	var (
		count  atomic.Uint64
		behind atomic.Bool
		mu     sync.Mutex
		group  sync.WaitGroup
	)
	slots := make(chan struct{}, writers)
	for _, w := range writes {
		side, ok := to[w.Set]
		if !ok {
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			err := do(ctx, side.client, w)
			switch {
			case err == nil:
				count.Add(1)
				s.config.Log.Info("synced", "op", w.String())
				if p, ok := w.Object.(*v1alpha1.CablePolicies); ok && w.news && s.config.Tell != nil {
					s.config.Tell(p, p.Status.Conditions[0])
				}
			case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) && w.Op != Create:
				behind.Store(true)
			default:
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("%s: %w", w, err))
			}
		})
	}
	group.Wait()
	return count.Load(), behind.Load(), errs
}

// do writes one object, if it still is what the plan was made from.
func do(ctx context.Context, c client.Client, w Write) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	obj := w.Object.DeepCopyObject().(client.Object)
	switch w.Op {
	case Create:
		return c.Create(ctx, obj, client.FieldOwner(fieldOwner))
	case Update:
		return c.Update(ctx, obj, client.FieldOwner(fieldOwner))
	case Report:
		for i := range obj.(*v1alpha1.CablePolicies).Status.Conditions {
			if c := &obj.(*v1alpha1.CablePolicies).Status.Conditions[i]; c.LastTransitionTime.IsZero() {
				c.LastTransitionTime = metav1.Now()
			}
		}
		return kube.ApplyStatus(ctx, c, fieldOwner, obj)
	default:
		uid, version := obj.GetUID(), obj.GetResourceVersion()
		return c.Delete(ctx, obj, client.Preconditions{UID: &uid, ResourceVersion: &version})
	}
}
