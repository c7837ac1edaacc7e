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

	"subctl/agent/role"
	"subctl/internal/kube"
)

// reportTimeout bounds writing to the API server, and reading reports from it. It may not answer:
// the loop has a node to look after. An agent without a node has nothing else to do, and writes
// hundreds of objects: within manyTimeout, an API server that is busy still writes them.
const (
	reportTimeout = 5 * time.Second
	manyTimeout   = 15 * time.Second
)

// report writes to the API server, and Events about what has become False. It returns the time
// after which the loop has to run again, even if nothing changes; 0 for never.
func (a *agent) report(
	ctx context.Context,
	s role.Snapshot,
	r role.Report,
	out role.Outcome,
) (again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.scope.timeout())
	defer cancel()
	owner := kube.FieldOwner + "-" + a.Role.Name
	paced, again := a.pacer.due(r.Paced)
	r.Apply = append(r.Apply, paced...)
	try := func(write func(role.Object) error) func(role.Object) error { return write }
	if r.Tolerant {
		try = func(write func(role.Object) error) func(role.Object) error { return a.refused.tolerate(a.Log, write) }
	}
	err = a.writeAll(r.Apply, try(func(o role.Object) error { return kube.Apply(ctx, a.Client, owner, o) }))
	a.meters.setReported(r, out)
	err = errors.Join(err,
		a.writeAll(r.Status, func(o role.Object) error { return kube.ApplyStatus(ctx, a.Client, owner, o) }))
	if r.Again > 0 && (again == 0 || r.Again < again) {
		again = r.Again
	}
	once := func(doing string, objs []role.Object, write func(role.Object) error) []role.Object {
		due, left := a.recent.due(doing, objs)
		if left > 0 && (again == 0 || left < again) {
			again = left
		}
		err = errors.Join(err,
			a.writeAll(due, try(func(o role.Object) error { return a.recent.write(doing, o, write) })))
		return due
	}
	once("labelling", r.Label, func(o role.Object) error { return a.label(ctx, o) })
	r.UpdateStatus = once("updating the status of", r.UpdateStatus,
		func(o role.Object) error { return a.Client.Status().Update(ctx, o) })
	err = errors.Join(err, a.writeAll(r.Update, func(o role.Object) error {
		if err := a.Client.Update(ctx, o); err != nil {
			return fmt.Errorf("updating %s: %w", client.ObjectKeyFromObject(o), err)
		}
		return nil
	}))
	once("deleting", r.Delete, func(o role.Object) error { return a.Client.Delete(ctx, o, onlyIfSeen(o)) })
	once("annotating", r.Annotate, func(o role.Object) error { return a.annotate(ctx, o) })
	a.told = a.writeWarnings(r.Warn)
	a.reportConditions(s, slices.Concat(r.Apply, r.Status, r.UpdateStatus))
	if r.More {
		again = loopPause
	}
	return again, err
}

// onlyIfSeen restricts a deletion to the object that was seen: another one may have its name now.
func onlyIfSeen(o role.Object) client.Preconditions {
	var p client.Preconditions
	if uid := o.GetUID(); uid != "" {
		p.UID = &uid
	}
	return p
}

// behind is the maximum age of the cache. An object that was written and has had its old state for
// longer was changed back by somebody, or restored together with the whole cluster.
const behind = 10 * time.Second

// recent are the writes that are younger than behind. The cache may not have them yet: to repeat
// them would be in vain, or a conflict. The zero value is ready to use.
type recent struct {
	mu     sync.Mutex
	writes map[string]written // by what was done to which object
}

// written is a write to an object.
type written struct {
	state string // see stateOf
	at    time.Time
}

// due returns the objects without those that were written a moment ago, and the time after which
// the first of those is written again; 0 if there are none.
func (r *recent) due(doing string, objs []role.Object) (due []role.Object, left time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(r.writes, func(_ string, w written) bool { return now.Sub(w.at) >= behind })
	for _, o := range objs {
		last, is := r.writes[writeOf(doing, o)]
		if !is || last.state != stateOf(o) {
			due = append(due, o)
		} else if rest := behind - now.Sub(last.at); left == 0 || rest < left {
			left = rest
		}
	}
	return due, left
}

// write writes an object. An object that somebody else has changed or deleted meanwhile is left as
// it is: that leads to another report.
func (r *recent) write(doing string, o role.Object, write func(role.Object) error) error {
	name := writeOf(doing, o)
	state := stateOf(o) // before the answer is in the object
	err := write(o)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s %s %s: %w", doing, kube.KindOf(o), client.ObjectKeyFromObject(o), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writes == nil {
		r.writes = map[string]written{}
	}
	r.writes[name] = written{state, time.Now()}
	return nil
}

// writeOf returns what is done to which object.
func writeOf(doing string, o role.Object) string {
	return fmt.Sprint(doing, " ", kube.KindOf(o), " ", client.ObjectKeyFromObject(o), " ", o.GetUID())
}

// stateOf returns what tells whether a write repeats the last one: the version that it replaces, or
// the labels and annotations of an object that has nothing else.
func stateOf(o role.Object) string {
	if version := o.GetResourceVersion(); version != "" {
		return version
	}
	return fmt.Sprint(o.GetLabels(), o.GetAnnotations())
}

// annotate sets the annotations of an object, and removes those that are empty. It patches the
// status subresource: the API server accepts annotations there, and keeps the spec. So the agent
// needs no right to change the object itself.
func (a *agent) annotate(ctx context.Context, o role.Object) error {
	patch, err := metadataPatch(o)
	if err != nil {
		return err
	}
	return a.Client.Status().Patch(ctx, o, patch, client.FieldOwner(a.fieldOwner()))
}

// label sets the labels and annotations of an object, and removes those that are empty.
func (a *agent) label(ctx context.Context, o role.Object) error {
	patch, err := metadataPatch(o)
	if err != nil {
		return err
	}
	return a.Client.Patch(ctx, o, patch, client.FieldOwner(a.fieldOwner()))
}

// metadataPatch returns the patch that sets the labels and annotations of o, and removes those that
// are empty. For another object with the name it is a conflict if o has a UID.
func metadataPatch(o role.Object) (client.Patch, error) {
	metadata := map[string]any{}
	for field, of := range map[string]map[string]string{"labels": o.GetLabels(), "annotations": o.GetAnnotations()} {
		values := map[string]any{}
		for key, value := range of {
			if values[key] = value; value == "" {
				values[key] = nil
			}
		}
		if len(values) > 0 {
			metadata[field] = values
		}
	}
	if o.GetUID() != "" {
		metadata["uid"] = o.GetUID()
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	return client.RawPatch(types.MergePatchType, patch), err
}

// writeAll writes objects, as many at a time as the agent may.
func (a *agent) writeAll(objs []role.Object, write func(role.Object) error) error {
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
