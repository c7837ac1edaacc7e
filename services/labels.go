package services

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Bounds of the labels and annotations of a record. They are copied to each importing cluster.
const (
	maxKeys     = 32
	maxKeysSize = 4 << 10 // bytes of JSON
)

// importable returns those of the exported labels and annotations of a Service that a ServiceImport
// may have, and the keys of all others, sorted. Labels come first where not all of them fit.
func importable(labels, annotations map[string]string) (l, a map[string]string, dropped []string) {
	if len(labels)+len(annotations) == 0 {
		return nil, nil, nil
	}
	keys, size := maxKeys, maxKeysSize
	filter := func(from map[string]string, valid func(string) bool) map[string]string {
		var to map[string]string
		for _, key := range slices.Sorted(maps.Keys(from)) {
			n := jsonSize(key) + jsonSize(from[key]) + len(":,")
			if keys == 0 || n > size || !validKey(key) || !valid(from[key]) {
				dropped = append(dropped, key)
				continue
			}
			if to == nil {
				to = map[string]string{}
			}
			to[key] = from[key]
			keys--
			size -= n
		}
		return to
	}
	l = filter(labels, func(value string) bool { return len(validation.IsValidLabelValue(value)) == 0 })
	a = filter(annotations, func(string) bool { return true })
	slices.Sort(dropped)
	return l, a, slices.Compact(dropped)
}

// validKey reports whether a key is valid, and controls nothing: Kubernetes and other software, such as Argo CD or
// external-dns, have a prefix in their keys, and keys without a prefix are the user's.
func validKey(key string) bool {
	return !strings.Contains(key, "/") && len(validation.IsQualifiedName(key)) == 0
}

// jsonSize returns how many bytes of JSON a value takes.
func jsonSize(value any) int {
	b, _ := json.Marshal(value) // strings, numbers, and lists and maps of them cannot fail
	return len(b)
}
