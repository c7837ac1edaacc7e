package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
	"subctl/internal/kube"
)

// reportTimeout bounds writing to the API server, which may not answer: the loop has a
// node to look after.
const reportTimeout = 5 * time.Second

// report writes to the API server, and Events about what has become False. It returns the time after which the loop has to run again, even if nothing
// changes; 0 for never.
func (a *agent) report(ctx context.Context, s mesh.Snapshot, r mesh.Report, out mesh.Outcome) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	owner := kube.FieldOwner + "-" + a.Role.Name
	err := a.each(r.Apply, func(o mesh.Object) error { return kube.Apply(ctx, a.Client, owner, o) })
	a.meters.reported(r, out)
	err = errors.Join(err, a.each(r.Status, func(o mesh.Object) error { return kube.ApplyStatus(ctx, a.Client, owner, o) }))
	r.UpdateStatus = a.updated.without(r.UpdateStatus)
	err = errors.Join(err, a.each(r.UpdateStatus, func(o mesh.Object) error {
		version := o.GetResourceVersion()
		err := a.Client.Status().Update(ctx, o)
		switch {
		case err == nil:
			a.updated.note(o.GetUID(), version)
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			return fmt.Errorf("updating the status of %s: %w", client.ObjectKeyFromObject(o), err)
		}
		return nil
	}))
	err = errors.Join(err, a.each(r.Update, func(o mesh.Object) error {
		if err := a.Client.Update(ctx, o); err != nil {
			return fmt.Errorf("updating %s: %w", client.ObjectKeyFromObject(o), err)
		}
		return nil
	}))
	err = errors.Join(err, a.each(a.deleted.without(r.Delete), func(o mesh.Object) error {
		if err := a.Client.Delete(ctx, o); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting %s: %w", client.ObjectKeyFromObject(o), err)
		}
		a.deleted.note(o.GetUID(), o.GetResourceVersion())
		return nil
	}))
	annotate := a.noted.without(r.Annotate)
	err = errors.Join(err, a.each(annotate, func(o mesh.Object) error { return a.annotate(ctx, o) }))
	a.told = a.warnOf(r.Warn)
	a.tell(s, slices.Concat(r.Apply, r.Status, r.UpdateStatus))
	switch {
	case r.More:
		return loopPause, err
	case len(annotate) < len(r.Annotate) && r.Again == 0:
		return repeatAfter, err
	}
	return r.Again, err
}

// notes are the annotations that were written a moment ago, by kind and name of the object. The cache may not have them yet; if it still does not after
// repeatAfter, somebody has changed them.
type notes map[string]noted

// noted are the annotations of an object, and when they were written.
type noted struct {
	annotations map[string]string
	at          time.Time
}

const repeatAfter = time.Second

// without returns the objects whose annotations were not written a moment ago, and notes that these are written now.
func (n *notes) without(objs []mesh.Object) (out []mesh.Object) {
	still := notes{}
	for _, o := range objs {
		key := kube.KindOf(o) + " " + client.ObjectKeyFromObject(o).String() + " " + string(o.GetUID())
		last := (*n)[key]
		if time.Since(last.at) >= repeatAfter || !maps.Equal(last.annotations, o.GetAnnotations()) {
			out, last = append(out, o), noted{o.GetAnnotations(), time.Now()}
		}
		still[key] = last
	}
	*n = still
	return out
}

// annotate sets the annotations of an object, and removes those that are empty. It patches the status subresource: the API server accepts annotations
// there, and keeps the spec. So the agent needs no right to change the object itself.
func (a *agent) annotate(ctx context.Context, o mesh.Object) error {
	values := map[string]any{}
	for key, value := range o.GetAnnotations() {
		if values[key] = value; value == "" {
			values[key] = nil
		}
	}
	meta := map[string]any{"annotations": values}
	if o.GetUID() != "" {
		meta["uid"] = o.GetUID() // another object with the name is a conflict
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	err = a.Client.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(a.fieldOwner()))
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("annotating %s %s: %w", kube.KindOf(o), client.ObjectKeyFromObject(o), err)
	}
	return nil
}

// updates are the objects whose statuses were updated, or that were deleted, and the versions that they had before. The cache may not yet have what was written
// a moment ago: to write it again would be a conflict.
type updates struct {
	mu       sync.Mutex
	versions map[types.UID]updated
}

// updated is the version of an object before it was written, and when that was.
type updated struct {
	version string
	at      time.Time
}

// behind is the maximum age of the cache. An object that has its old version for longer was restored, together with the whole cluster.
const behind = 10 * time.Second

// mostUpdates bounds what is remembered. What is forgotten may lead to a conflict.
const mostUpdates = 100_000

func (u *updates) note(uid types.UID, version string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.versions == nil || len(u.versions) >= mostUpdates {
		u.versions = map[types.UID]updated{}
	}
	u.versions[uid] = updated{version, time.Now()}
}

// without returns the objects without those that were written at the version that they still have.
func (u *updates) without(objs []mesh.Object) []mesh.Object {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(objs) == 0 {
		u.versions = nil
	}
	return slices.DeleteFunc(objs, func(o mesh.Object) bool {
		last, is := u.versions[o.GetUID()]
		return is && last.version == o.GetResourceVersion() && time.Since(last.at) < behind
	})
}

// each writes objects, as many at a time as the agent may.
func (a *agent) each(objs []mesh.Object, write func(mesh.Object) error) error {
	errs := make([]error, len(objs))
	slots := make(chan struct{}, a.scope.writes)
	var all sync.WaitGroup
	for i, o := range objs {
		slots <- struct{}{}
		all.Go(func() {
			errs[i] = write(o)
			<-slots
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
