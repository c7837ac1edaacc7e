package agent

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/globalnet/allocator"
	"subctl/internal/wake"
	"subctl/services/discoverer"
)

// writer is a world that counts what report writes. The API server answers each write with err.
type writer struct {
	*world
	writes int
	err    error
}

func newWriter(t *testing.T) *writer {
	w := &writer{world: newWorld(t, allocator.Role(), "two-clusters")}
	w.scope.writes = 1
	answer := func(o client.Object) error {
		w.writes++
		if w.err == nil { // the answer is the whole object
			o.SetAnnotations(map[string]string{"of": "somebody else"})
			o.SetResourceVersion("9")
		}
		return w.err
	}
	w.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		SubResourceUpdate: func(
			_ context.Context,
			_ client.Client,
			_ string,
			o client.Object,
			_ ...client.SubResourceUpdateOption,
		) error {
			return answer(o)
		},
		SubResourcePatch: func(
			_ context.Context,
			_ client.Client,
			_ string,
			o client.Object,
			_ client.Patch,
			_ ...client.SubResourcePatchOption,
		) error {
			return answer(o)
		},
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
			return answer(o)
		},
	})
	return w
}

// wrote writes a report, and returns the number of its objects that were written.
func (w *writer) wrote(t *testing.T, r role.Report) (writes int, again time.Duration, err error) {
	t.Helper()
	before := w.writes
	again, err = w.report(t.Context(), role.Snapshot{}, r, role.Outcome{})
	return w.writes - before, again, err
}

// age makes the writes so much older.
func (w *writer) age(by time.Duration) {
	for name, is := range w.recent.writes {
		is.at = is.at.Add(-by)
		w.recent.writes[name] = is
	}
}

// reports returns reports that each write one object in another way: a status, a deletion and an
// annotation. The numbers are their states.
func reports() map[string]func(states ...string) role.Report {
	egress := func(versions []string) (all []role.Object) {
		for _, v := range versions {
			all = append(
				all,
				&submarinerv1.GlobalEgressIP{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e", UID: "e", ResourceVersion: v},
				},
			)
		}
		return all
	}
	return map[string]func(states ...string) role.Report{
		"status":   func(states ...string) role.Report { return role.Report{UpdateStatus: egress(states)} },
		"deletion": func(states ...string) role.Report { return role.Report{Delete: egress(states)} },
		"annotation": func(states ...string) (r role.Report) {
			for _, s := range states {
				r.Annotate = append(
					r.Annotate,
					&corev1.Service{
						ObjectMeta: metav1.ObjectMeta{
							Namespace:   "shop",
							Name:        "web",
							Annotations: map[string]string{"address": s},
						},
					},
				)
			}
			return r
		},
	}
}

// An agent without a node writes as many objects as it may in a loop, even if the API server is so
// busy that each write takes it half a second.
func TestManyWritesToABusyServer(t *testing.T) {
	w := newWriter(t)
	w.scope = scopeOf(discoverer.Role())
	slow := w.Client.(client.WithWatch)
	w.Client = interceptor.NewClient(slow, interceptor.Funcs{
		Delete: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.DeleteOption) error {
			return wake.After(ctx, 500*time.Millisecond)
		},
	})
	var all role.Report
	for n := range 400 {
		all.Delete = append(all.Delete,
			&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: strconv.Itoa(n)}})
	}
	synctest.Test(t, func(t *testing.T) {
		_, err := w.report(t.Context(), role.Snapshot{}, all, role.Outcome{})
		require.NoError(t, err)
	})
}

// What the cache does not have yet is not written again, even if other loops have nothing to write,
// unless that lasts or something else is to be written.
func TestWritesAreNotRepeated(t *testing.T) {
	for name, of := range reports() {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t)
			wrote := func(r role.Report) (int, time.Duration) {
				t.Helper()
				writes, again, err := w.wrote(t, r)
				require.NoError(t, err)
				return writes, again
			}
			writes, again := wrote(of("1"))
			require.Equal(t, 1, writes)
			require.Zero(t, again)
			w.age(behind / 2)
			writes, _ = wrote(of())
			require.Zero(t, writes)
			writes, again = wrote(of("1"))
			require.Zero(t, writes, "the cache is behind")
			require.InDelta(t, behind/2, again, float64(time.Second), "it may have been changed back")
			r := of("1")
			for _, r.Again = range []time.Duration{time.Millisecond, time.Hour} {
				_, again = wrote(r)
				require.InDelta(t, min(r.Again, behind/2), again, float64(time.Second))
			}
			w.age(behind / 2)
			writes, _ = wrote(of("1"))
			require.Equal(t, 1, writes, "it was changed back")
			writes, _ = wrote(of("2"))
			require.Equal(t, 1, writes)
			w.age(behind)
			wrote(of())
			require.Empty(t, w.recent.writes, "it forgets")
		})
	}
}

// An object whose write fails is written again by the next loop, and the error is returned each
// time. An object that somebody has changed meanwhile is left as it is.
func TestFailedWritesAreRepeated(t *testing.T) {
	for name, of := range reports() {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t)
			w.err = errors.New("no quorum")
			for range 2 {
				writes, _, err := w.wrote(t, of("1"))
				require.Equal(t, 1, writes)
				require.ErrorIs(t, err, w.err)
			}
			for _, w.err = range []error{
				apierrors.NewConflict(schema.GroupResource{}, "web", nil),
				apierrors.NewNotFound(schema.GroupResource{}, "web"),
				nil,
			} {
				writes, _, err := w.wrote(t, of("1"))
				require.Equal(t, 1, writes)
				require.NoError(t, err)
			}
		})
	}
}

// Writes to objects with the same name, or of different kinds to one object, are different ones.
func TestWritesToOthers(t *testing.T) {
	w := newWriter(t)
	in := metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{"address": "242.0.0.1"}}
	service := &corev1.Service{ObjectMeta: in}
	for _, r := range []role.Report{
		{Annotate: []role.Object{service}},
		{Annotate: []role.Object{&corev1.Pod{ObjectMeta: in}}},
		{Delete: []role.Object{&corev1.Pod{ObjectMeta: in}}},
	} {
		writes, _, err := w.wrote(t, r)
		require.NoError(t, err)
		require.Equal(t, 1, writes)
	}
	recreated := &corev1.Pod{ObjectMeta: in}
	recreated.UID = "new"
	writes, _, err := w.wrote(t, role.Report{Annotate: []role.Object{recreated}})
	require.NoError(t, err)
	require.Equal(t, 1, writes)
}
