package mesh

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// KeyOf returns the namespace and the name of an object.
func KeyOf(o Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Compare compares objects of a kind in the order that they have in a Snapshot: by namespace, then
// by name.
func Compare(x, y Object) int { return CompareKey(x, KeyOf(y)) }

// CompareKey compares an object with a key in that order.
func CompareKey(o Object, key types.NamespacedName) int {
	return compareKeys(o.GetNamespace(), o.GetName(), key)
}

func compareKeys(namespace, name string, key types.NamespacedName) int {
	return cmp.Or(strings.Compare(namespace, key.Namespace), strings.Compare(name, key.Name))
}

func sortedKeys[V any](m map[types.NamespacedName]V) []types.NamespacedName {
	out := make([]types.NamespacedName, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return compareKeys(a.Namespace, a.Name, b) })
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
	return sort.Find(len(in), func(i int) int { return -compareKeys(in[i].GetNamespace(), in[i].GetName(), key) })
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
