package allocator

import (
	"slices"
	"sort"

	"k8s.io/apimachinery/pkg/types"

	"subctl/agent/role"
)

func sortedKeys[V any](m map[types.NamespacedName]V) []types.NamespacedName {
	out := make([]types.NamespacedName, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return role.CompareKeys(a.Namespace, a.Name, b) })
	return out
}

// keyed is an object of a sorted list.
type keyed interface {
	GetNamespace() string
	GetName() string
}

// search returns the number of the object with a namespace and a name in a sorted list; false if
// there is none.
func search[P keyed](in []P, namespace, name string) (int, bool) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	return sort.Find(len(in), func(i int) int { return -role.CompareKeys(in[i].GetNamespace(), in[i].GetName(), key) })
}

// find returns the object with a namespace and a name in a sorted list; nil if there is none.
func find[T any, P interface {
	*T
	keyed
}](in []P, namespace, name string) P {
	if i, found := search(in, namespace, name); found {
		return in[i]
	}
	return nil
}
