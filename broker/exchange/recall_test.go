package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const operator = "submariner-operator"

// started returns an Exchange that has done nothing yet, as on a gateway that has just started.
func started() *Exchange { return New(Config{Namespace: operator}) }

// storing returns a client of an API server with the ConfigMap of a Memory.
func storing(text string, funcs interceptor.Funcs) client.Client {
	cm := NewMemory(operator)
	cm.UID = "uid"
	if text != "" {
		cm.Data = map[string]string{memoryKey: text}
	}
	return fake.NewClientBuilder().WithObjects(cm).WithInterceptorFuncs(funcs).Build()
}

// storedIn returns what the ConfigMap holds.
func storedIn(t *testing.T, c client.Client) (m Memory) {
	t.Helper()
	cm := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: operator, Name: MemoryName}, cm))
	require.NoError(t, json.Unmarshal([]byte(cm.Data[memoryKey]), &m))
	return m
}

// noting returns a memory with one more object that is gone.
func noting(m Memory, place string, least int64) Memory {
	m.changed = false
	m.forget("west", place, least)
	return m
}

// What one gateway has stored, the next one remembers, and neither loses what the other has added.
func TestRecall(t *testing.T) {
	c := storing("", interceptor.Funcs{})
	administrator := keyFor(t, 1)
	first := started()
	second := started()
	for _, e := range []*Exchange{first, second} {
		require.NoError(t, e.recall(t.Context(), c))
		e.memory.Administrator = administrator
	}
	require.NoError(t, first.remember(t.Context(), c, noting(first.memory, "a", 10), true))
	require.NoError(t, second.remember(t.Context(), c, noting(second.memory, "b", 20), true))
	want := map[string]Record{"west": {Gone: map[string]int64{"a": 10, "b": 20}}}
	require.Equal(t, want, storedIn(t, c).Clusters)
	require.Equal(t, want, second.memory.Clusters)

	third := started()
	require.NoError(t, third.recall(t.Context(), c))
	require.Equal(t, want, third.memory.Clusters)
	require.NoError(t, first.remember(t.Context(), c, first.memory, true), "nothing has changed")
	require.NoError(t, third.recall(t.Context(), fake.NewClientBuilder().Build()), "it is read once")
	require.Equal(t, want, third.memory.Clusters)

	none := fake.NewClientBuilder().Build()
	require.NoError(t, first.remember(t.Context(), none, noting(first.memory, "a", 11), true),
		"the ConfigMap was deleted")
	require.EqualValues(t, 11, storedIn(t, none).Clusters["west"].Gone["a"])
}

// What could not be stored is kept, and stored as soon as it is possible, even if nothing changes.
func TestRememberIsRepeated(t *testing.T) {
	gr := schema.GroupResource{Resource: "configmaps"}
	broken := error(nil)
	c := storing("", interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if broken != nil {
				return broken
			}
			return c.Update(ctx, o, opts...)
		},
	})
	e := started()
	require.NoError(t, e.recall(t.Context(), c))
	e.memory.Administrator = keyFor(t, 1)
	for _, test := range []struct {
		err  error
		want string
	}{
		{errors.New("no route to host"), "writing ConfigMap submariner-trust-memory: no route to host"},
		{apierrors.NewConflict(gr, MemoryName, errors.New("changed")), "writing ConfigMap submariner-trust-memory: "},
		{apierrors.NewForbidden(gr, MemoryName, errors.New("no")), "run subctl join again, which creates it"},
	} {
		broken = test.err
		require.ErrorContains(t, e.remember(t.Context(), c, noting(e.memory, "a", 10), true), test.want)
		require.EqualValues(t, 10, e.memory.least("west", "a"))
	}
	broken = nil
	again := e.memory
	again.changed = false
	require.NoError(t, e.remember(t.Context(), c, again, true))
	require.EqualValues(t, 10, storedIn(t, c).Clusters["west"].Gone["a"])
}

// A memory that cannot be read is not taken for an empty one: everything that is gone could come
// back.
func TestRecallOfDamagedData(t *testing.T) {
	c := storing(`{"clusters":`, interceptor.Funcs{})
	e := started()
	for range 2 {
		require.ErrorContains(t, e.recall(t.Context(), c),
			"reading ConfigMap submariner-trust-memory: unexpected end of JSON input: delete its data")
	}
	require.False(t, e.recalled)
}

// What is refused only because something may be on its way is reported once it has lasted.
func TestWaiting(t *testing.T) {
	start := time.Now()
	early := Refusal{Name: "a", Reason: "no Cluster", early: true}
	other := Refusal{Name: "b", Reason: "altered"}
	reported := Refusal{Name: "a", Reason: "no Cluster"}
	var w waiting
	require.Equal(t, []Refusal{other}, w.ripe([]Refusal{early, other}, start))
	require.Empty(t, w.ripe([]Refusal{early}, start.Add(resync-1)))
	require.Equal(t, []Refusal{reported}, w.ripe([]Refusal{early}, start.Add(resync)))
	require.Equal(t, []Refusal{reported}, w.ripe([]Refusal{early}, start.Add(2*resync)))
	require.Empty(t, w.ripe(nil, start.Add(3*resync)))
	require.Empty(t, w.ripe([]Refusal{early}, start.Add(3*resync)), "it starts anew")
}

// A cluster that signs a new grant of its invitation all the time makes no other cluster fill its
// etcd with versions of the ConfigMap.
func TestHostileGrantsAllTheTime(t *testing.T) {
	updates := 0
	c := storing("", interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			updates++
			return c.Update(ctx, o, opts...)
		},
	})
	e := started()
	require.NoError(t, e.recall(t.Context(), c))
	e.memory.Administrator = keyFor(t, 1)
	for i := range int64(10) {
		require.NoError(t, e.remember(t.Context(), c, noting(e.memory, "a", i+1), false))
	}
	require.Equal(t, 1, updates)
	require.True(t, e.unstored)
	require.NoError(t, e.remember(t.Context(), c, noting(e.memory, "a", 11), true))
	require.Equal(t, 2, updates, "a copy is deleted")
	require.EqualValues(t, 11, storedIn(t, c).Clusters["west"].Gone["a"])
	require.NoError(t, e.remember(t.Context(), c, noting(e.memory, "a", 12), false))
	e.stores = time.Now().Add(-storePause)
	require.NoError(t, e.remember(t.Context(), c, e.memory, false))
	require.Equal(t, 3, updates, "some time later")
	require.False(t, e.unstored)
	require.EqualValues(t, 12, storedIn(t, c).Clusters["west"].Gone["a"])
}
