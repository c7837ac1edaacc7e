package trust

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// This file is about the namespaces whose Services a cluster may export. A pattern is the name of a
// namespace, or the beginning of names, followed by "*".

// maxPatterns is the maximum number of patterns in a grant, which all members of its clustersets
// read.
const maxPatterns = 64

// reserved are the namespaces from which nothing is exported without a pattern: those of
// Kubernetes, of OpenShift, and our own.
var reserved = []string{"kube-*", "openshift-*", "submariner-*"}

var pattern = regexp.MustCompile(`^(\*|[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|[a-z0-9][-a-z0-9]{0,61}\*)$`)

// CheckNamespaces returns all mistakes in patterns. source specifies them, such as a flag.
func CheckNamespaces(source string, patterns []string) error {
	var errs []error
	for _, p := range patterns {
		if !pattern.MatchString(p) {
			errs = append(
				errs,
				fmt.Errorf(
					"%s: %q is neither the name of a namespace nor the beginning of one with * at its end, such as team-*",
					source, p),
			)
		}
	}
	if n := len(patterns); n > maxPatterns {
		errs = append(
			errs,
			fmt.Errorf(
				"%s: %d namespaces are more than %d: combine some of them by the beginning of their names, such as team-*",
				source, n, maxPatterns),
		)
	}
	return errors.Join(errs...)
}

// SortNamespaces returns patterns as a Grant has them: sorted, each once.
func SortNamespaces(patterns []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(patterns)))
}

// MayExport reports whether Services of a namespace may be exported: if a pattern matches it or,
// without patterns, if it is none of the namespaces of Kubernetes (kube-*), of OpenShift
// (openshift-*) and of subctl (submariner-*).
func MayExport(patterns []string, namespace string) bool {
	matches := func(p string) bool { return matches(p, namespace) }
	if len(patterns) == 0 {
		return !slices.ContainsFunc(reserved, matches)
	}
	return slices.ContainsFunc(patterns, matches)
}

// IsReserved reports whether a pattern matches none but namespaces of Kubernetes, of OpenShift or
// of subctl: who writes it means these, and does not if the pattern is * or k*.
func IsReserved(pattern string) bool {
	return slices.ContainsFunc(reserved, func(r string) bool { return matches(r, pattern) })
}

// matches reports whether a pattern matches a namespace, or all namespaces that another pattern
// matches.
func matches(pattern, namespace string) bool {
	if start, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(namespace, start)
	}
	return namespace == pattern
}

// beyond returns a pattern that matches namespaces from which bounds, the patterns of an
// invitation, allow no exports; "" if there is none. "all" stands for no patterns.
func beyond(patterns, bounds []string) string {
	if len(patterns) == 0 && len(bounds) > 0 && !slices.Contains(bounds, "*") {
		return "all"
	}
	for _, p := range patterns {
		allowed := slices.ContainsFunc(bounds, func(b string) bool { return matches(b, p) })
		if len(bounds) == 0 {
			allowed = !slices.ContainsFunc(reserved, func(r string) bool { return overlap(p, r) })
		}
		if !allowed {
			return p
		}
	}
	return ""
}

// overlap reports whether there is a namespace that both patterns match.
func overlap(a, b string) bool {
	return matches(a, strings.TrimSuffix(b, "*")) || matches(b, strings.TrimSuffix(a, "*"))
}
