package exchange

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This file reads a mirror by lists instead of a watch.

// poll reads the namespace once. It reports whether the mirror was changed otherwise meanwhile, so that what
// was read does not count. What it reads is never older than what it has read before: otherwise, another API server
// of the broker could show that an object is missing which is there, which would count as deleted.
func (m *mirror) poll(ctx context.Context) (again bool) {
	m.mu.Lock()
	epoch, version := m.epoch, m.version
	m.mu.Unlock()
	list, err := m.list(ctx, version)
	if apierrors.IsResourceExpired(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		list, err = m.list(ctx, "") // the broker was restored from a backup
	}
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		m.contact(err)
		return false
	}
	var objects []any
	_ = meta.EachListItem(list, func(o runtime.Object) error { objects = append(objects, o); return nil })
	m.mu.Lock()
	if again = m.epoch != epoch; again {
		m.mu.Unlock()
		return true
	}
	changed := m.replace(objects, list.GetResourceVersion())
	m.mu.Unlock()
	m.contact(nil)
	if changed {
		m.changed()
	}
	return false
}

// list lists the namespace, not older than a version.
func (m *mirror) list(ctx context.Context, version string) (client.ObjectList, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
	defer cancel()
	m.ask()
	list := m.kind.newList()
	err := m.client.List(ctx, list, &client.ListOptions{Namespace: m.namespace, Raw: &metav1.ListOptions{ResourceVersion: version}})
	if err != nil && context.Cause(ctx) == errNoAnswer {
		err = errNoAnswer
	}
	return list, err
}

// wrote notes what was written to the namespace, as the API server has answered; nil if the object was deleted. A
// watch would show it.
func (m *mirror) wrote(name string, o client.Object) {
	m.mu.Lock()
	m.epoch++
	if o != nil {
		m.version = o.GetResourceVersion()
	}
	m.mu.Unlock()
	if o == nil {
		gone := m.kind.New()
		gone.SetName(name)
		_ = m.Delete(gone)
		return
	}
	_ = m.Update(o)
}

// restart begins another way of reading: a list that is under way does not count.
func (m *mirror) restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch++
	m.asked, m.version = time.Time{}, "" // what a watch has shown is later than its last list
}
