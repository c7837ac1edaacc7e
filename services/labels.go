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
	keys := maxKeys
	size := maxKeysSize
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

// controlling are the domains of keys by which software controls objects: of Kubernetes,
// Submariner, Argo CD, Flux and Helm, which delete or adopt what has their keys, and of Istio and
// Cilium, whose keys change where traffic goes.
var controlling = []string{
	"kubernetes.io", "k8s.io", "submariner.io", "submariner-io",
	"argoproj.io", "fluxcd.io", "helm.sh", "istio.io", "cilium.io",
}

// validKey reports whether a key is valid, and of none of the domains by which software controls
// objects.
func validKey(key string) bool {
	if len(key) > 2*validation.DNS1123SubdomainMaxLength || len(validation.IsQualifiedName(key)) > 0 {
		return false
	}
	prefix, _, found := strings.Cut(key, "/")
	return !found || !slices.ContainsFunc(controlling, func(domain string) bool {
		return prefix == domain || strings.HasSuffix(prefix, "."+domain)
	})
}

// jsonSize returns how many bytes of JSON a value takes.
func jsonSize(value any) int {
	b, _ := json.Marshal(value) // strings, numbers, and lists and maps of them cannot fail
	return len(b)
}
