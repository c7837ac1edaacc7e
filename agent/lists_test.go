package agent

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"subctl/agent/mesh"
	"subctl/agent/role"
)

// After any events, a list has the objects that there are, the same in memory, in the order of a
// Snapshot. Lists of before stay as they were.
func TestLists(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	l := newLists(mesh.TranslatedKinds())
	kind := &corev1.Pod{}
	follow := l.recording(kind, changes)
	there := map[string]*corev1.Pod{}
	var before, copied []role.Object
	for step := range 2000 {
		for range r.IntN(4) {
			p := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: []string{"a", "a-b", "b"}[r.IntN(3)],
					Name:      fmt.Sprintf("p%d", r.IntN(30)),
				},
			}
			key := p.Namespace + "/" + p.Name
			switch old := there[key]; {
			case old == nil:
				there[key] = p
				require.True(t, follow.Create(event.CreateEvent{Object: p}))
			case r.IntN(2) == 0:
				there[key] = p
				require.False(t, follow.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: p}),
					"nothing else has changed")
			default:
				delete(there, key)
				require.True(t, follow.Delete(event.DeleteEvent{Object: p}))
			}
		}
		got := l.list(kind)
		want := slices.Collect(maps.Values(there))
		slices.SortFunc(want, func(x, y *corev1.Pod) int {
			return strings.Compare(x.Namespace+"\x00"+x.Name, y.Namespace+"\x00"+y.Name)
		})
		require.Len(t, got, len(want), "step %d", step)
		for i, p := range want {
			require.Same(t, p, got[i], "step %d: item %d", step, i)
		}
		require.Equal(t, copied, before)
		before = got
		copied = slices.Clone(got)
	}
	require.False(t, l.has(&corev1.Node{}), "of which there are few")
	require.False(t, (*lists)(nil).has(kind))
}
