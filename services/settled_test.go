package services

import (
	"testing"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
)

// An import for which there is nothing to do is not planned again until something changes that it
// depends on. All tests with a world compare that with planning all anew.
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
		w.slices[name] = &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
		}
	}
	w.settle()
	w.settle()
	require.Equal(t, "NameTaken", w.imported().Status.Conditions[0].Reason)
	delete(w.slices, name)
	w.settle()
	require.Equal(t, "Ready", w.imported().Status.Conditions[0].Reason)
	require.NotEmpty(t, w.endpoints("west"))
}

// An EndpointSlice of ours that has lost its labels, and is about to go, is made anew when it is
// gone. No import lists it.
func TestSliceThatIsAboutToGo(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.settle()
	var name types.NamespacedName
	for name = range w.slices {
		gone := w.slices[name].DeepCopy()
		delete(gone.Labels, mcsv1alpha1.LabelServiceName)
		gone.DeletionTimestamp = new(metav1.Now())
		w.slices[name] = gone
	}
	w.settle()
	w.settle()
	delete(w.slices, name)
	w.settle()
	require.NotEmpty(t, w.endpoints("west"))
}

// While an import is young, the oldest export decides, and then those that are there. For an import
// with nothing to do, that is the same: see world.plan.
func TestSettledWhenTheImportIsNotYoungAnyMore(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.ExportedService){
		"ports": ports("http 80/TCP 8081", "metrics 90/TCP 9090"),
		"type":  asHeadless,
		"none":  func(*v1alpha1.ExportedService) {},
	} {
		w := newWorld(t)
		w.export("west", webOf("west", exportedAt(2000)))
		w.settle()
		w.imported().CreationTimestamp = metav1.NewTime(w.view.Now)
		w.export("north", webOf("north", exportedAt(1000), change))
		w.settle()
		require.Equal(t, "north", w.clusters()[0], name)
		for range 2 {
			w.settle()
			w.view.Now = w.view.Now.Add(settling)
		}
		w.leave("north")
		w.settle()
		require.Equal(t, []string{"west"}, w.clusters(), name)
	}
}
