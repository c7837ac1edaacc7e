package services

import (
	"testing"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An import for which there is nothing to do is not planned again until something changes that it depends on. All
// tests with a world compare that with planning all anew.
func TestSettled(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"), webOf("west", named("shop", "other")))
	w.settle()
	w.settle()
	require.Len(t, w.settled.imports, 2)
	w.export("west", webOf("west", notReady), webOf("west", named("shop", "other")))
	require.Len(t, w.plan().Slices, 1)
}

// An EndpointSlice of somebody else keeps a name taken until it is gone. No import lists it.
func TestNameBecomesFree(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.settle()
	var name types.NamespacedName
	for name = range w.slices {
		w.slices[name] = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	}
	w.settle()
	w.settle()
	require.Equal(t, "NameTaken", w.imported().Status.Conditions[0].Reason)
	delete(w.slices, name)
	w.settle()
	require.Equal(t, "Ready", w.imported().Status.Conditions[0].Reason)
	require.NotEmpty(t, w.endpoints("west"))
}
