package exchange

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// endless is a client of an API server whose lists do not end.
type endless struct {
	client.WithWatch
	perPage      int
	pages, names atomic.Int64
}

func (e *endless) name() string {
	return fmt.Sprintf("west-submariner-cable-west-%x", e.names.Add(1))
}

func (e *endless) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	e.pages.Add(1)
	list.SetContinue("more")
	for range e.perPage {
		meta := metav1.ObjectMeta{Name: e.name()}
		switch l := list.(type) {
		case *submarinerv1.EndpointList:
			l.Items = append(l.Items, submarinerv1.Endpoint{ObjectMeta: meta})
		case *corev1.ServiceAccountList:
			l.Items = append(l.Items, corev1.ServiceAccount{ObjectMeta: meta})
		}
	}
	return ctx.Err()
}

func (e *endless) Watch(
	ctx context.Context,
	list client.ObjectList,
	options ...client.ListOption,
) (watch.Interface, error) {
	var o client.ListOptions
	o.ApplyOptions(options)
	events := make(chan watch.Event)
	if o.Raw.SendInitialEvents == nil {
		return watch.NewProxyWatcher(events), nil
	}
	go func() {
		defer close(events)
		for {
			var o client.Object = &submarinerv1.Endpoint{ObjectMeta: metav1.ObjectMeta{Name: e.name()}}
			if _, ok := list.(*corev1.ServiceAccountList); ok {
				o = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}}
			}
			select {
			case events <- watch.Event{Type: watch.Added, Object: o}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return watch.NewProxyWatcher(events), nil
}

// A broker whose lists do not end does not fill the memory of a gateway, and is reported.
func TestHostileListsWithoutEnd(t *testing.T) {
	for _, perPage := range []int{50, 0} {
		c := &endless{perPage: perPage}
		m := testMirror(t, &submarinerv1.Endpoint{}, 100)
		m.client = c
		c.endsFor(t, m.run, func() bool {
			_, known, err := m.read()
			return !known && err != nil
		})
		c = &endless{perPage: perPage}
		r := &renewal{client: c, changed: func() {}, announced: func(string) {}}
		c.endsFor(t, r.run, func() bool {
			_, known := r.read()
			return known || r.fault() != nil
		})
	}
}

// endsFor runs a reader until it has seen that a list does not end.
func (e *endless) endsFor(t *testing.T, run func(context.Context), seen func() bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var ends sync.WaitGroup
	ends.Go(func() { run(ctx) })
	require.Eventually(t, seen, 10*time.Second, time.Millisecond)
	stop()
	ends.Wait()
	require.Less(t, int(e.names.Load()), 1000)
	require.Less(t, int(e.pages.Load()), 400)
}
