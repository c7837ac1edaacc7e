package mesh

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// KeyOf returns the namespace and the name of an object.
func KeyOf(o Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Compare compares objects of a kind in the order that they have in a Snapshot: by namespace, then by name.
func Compare(x, y Object) int { return CompareKey(x, KeyOf(y)) }

// CompareKey compares an object with a key in that order.
func CompareKey(o Object, key types.NamespacedName) int {
	return compareKeys(o.GetNamespace(), o.GetName(), key)
}

func compareKeys(namespace, name string, key types.NamespacedName) int {
	return cmp.Or(strings.Compare(namespace, key.Namespace), strings.Compare(name, key.Name))
}
