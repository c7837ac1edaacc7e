package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
)

// Annotations that the cache does not have yet are not written again, unless that lasts, or they change.
func TestAnnotationsAreNotRepeated(t *testing.T) {
	service := func(name, value string) mesh.Object {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{"address": value}}}
	}
	var n notes
	one, two := service("web", "242.0.0.1"), service("web", "242.0.0.2")
	require.Equal(t, []mesh.Object{one}, n.without([]mesh.Object{one}))
	require.Empty(t, n.without([]mesh.Object{one}))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: one.GetAnnotations()}}
	require.Equal(t, []mesh.Object{pod}, n.without([]mesh.Object{one, pod}), "another object")
	require.Equal(t, []mesh.Object{two}, n.without([]mesh.Object{two, pod}), "another value")
	for key, is := range n {
		is.at = is.at.Add(-repeatAfter)
		n[key] = is
	}
	require.Equal(t, []mesh.Object{two}, n.without([]mesh.Object{two}), "somebody has changed it meanwhile")
	require.Empty(t, n.without(nil))
	require.Equal(t, []mesh.Object{two}, n.without([]mesh.Object{two}), "it was as it should be, and is not any more")
	require.Len(t, n, 1, "it forgets")
	require.Less(t, time.Since(n["Service shop/web "].at), time.Minute)
}
