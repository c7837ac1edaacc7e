package services

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/api/submariner/v1alpha1"
)

// A member exports more Services than this cluster has addresses for, and claims that they are old.
func TestHostileManyExports(t *testing.T) {
	many := func(cluster string, first, n int, at int64) (out []v1alpha1.ExportedService) {
		for s := range n {
			out = append(out, webOf(cluster, named("shop", fmt.Sprintf("%s-%04d", cluster, first+s)), exportedAt(at)))
		}
		return out
	}
	w := newWorld(t)
	w.view.MaxImports = 20
	w.view.Own = []v1alpha1.ExportedService{webOf("east", named("shop", "own"))}
	w.export("north", many("north", 0, 3, 1000)...)
	w.settle()
	require.Len(t, w.imports, 4)

	w.export("west", many("west", 0, 200, -1<<62)...)
	w.settle()
	require.Len(t, w.imports, 14, "half of all")
	require.Len(t, w.services, 14)
	require.Len(t, w.refusals(), 190)
	require.Contains(t, w.refusals()[0], "no more than 10 Services of one cluster")

	// With another name for each of its Services it gets no more, and those that are here stay.
	before := w.services
	w.export("west", append(many("west", 0, 10, 5000), many("west", 1000, 200, -1<<62)...)...)
	w.settle()
	require.Equal(t, before, w.services)

	// Two members leave the others what they have, and what this cluster exports is always
	// imported.
	w.export("south", many("south", 0, 200, -1<<62)...)
	w.settle()
	require.Len(t, w.imports, 20)
	for n := range 10 {
		w.view.Own = append(w.view.Own, webOf("east", named("shop", fmt.Sprintf("own-%d", n))))
	}
	w.settle()
	require.Len(t, w.imports, 20)
	require.Contains(t, w.imports, nameOf(&w.view.Own[10]))
	require.Contains(t, w.imports, nameOf(&many("north", 0, 1, 0)[0]))
}

// Of clusters that come at once, none keeps the others out.
func TestImportsOfEachInTurn(t *testing.T) {
	w := newWorld(t)
	w.view.MaxImports = 6
	for _, cluster := range []string{"west", "north", "south"} {
		var records []v1alpha1.ExportedService
		for n := range 4 {
			records = append(records,
				webOf(cluster, named("shop", fmt.Sprintf("%s-%d", cluster, n)), exportedAt(int64(-n))))
		}
		w.export(cluster, records...)
	}
	w.settle()
	var names []string
	for key := range w.imports {
		names = append(names, key.Name)
	}
	require.ElementsMatch(t, []string{"west-2", "west-3", "north-2", "north-3", "south-2", "south-3"}, names)
}
