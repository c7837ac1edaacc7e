package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// requirement is a requirement of a selector on a cluster's labels: the label key must
// have one of the values, or exist if the value is anyValue. With not, the requirement is
// negated. As in Kubernetes, a cluster without the label meets every negated requirement.
type requirement struct {
	key    string
	values []string // without duplicates
	not    bool
}

// requirements returns the number of requirements of a selector.
func requirements(s v1alpha1.ClusterSelector) int {
	return len(s.MatchLabels) + len(s.MatchExpressions)
}

// readSelector returns the valid requirements of a selector, and the errors in the others.
// field is the path of the selector in the policy.
func readSelector(s v1alpha1.ClusterSelector, field string) (out []requirement, mistakes []error) {
	for _, k := range sortedKeys(s.MatchLabels) {
		q := equals(k, s.MatchLabels[k])
		if flaw := q.flaw(); flaw != "" {
			mistakes = append(mistakes, fmt.Errorf("%s.matchLabels: %s", field, flaw))
			continue
		}
		out = append(out, q)
	}
	for i, e := range s.MatchExpressions {
		q, flaw := readExpression(e)
		if flaw != "" {
			mistakes = append(mistakes, fmt.Errorf("%s.matchExpressions[%d]: %s", field, i, flaw))
			continue
		}
		out = append(out, q)
	}
	return out, mistakes
}

func readExpression(e v1alpha1.ClusterRequirement) (q requirement, flaw string) {
	q.key = e.Key
	q.values = slices.Compact(slices.Sorted(slices.Values(e.Values)))
	switch e.Operator {
	case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
		q.not = e.Operator == metav1.LabelSelectorOpNotIn
		if len(q.values) == 0 {
			return q, fmt.Sprintf("operator %s needs values", e.Operator)
		}
		return q, q.flaw()
	case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
		if len(q.values) > 0 {
			return q, fmt.Sprintf("operator %s takes no values", e.Operator)
		}
		flaw = q.flaw()
		q.not = e.Operator == metav1.LabelSelectorOpDoesNotExist
		q.values = []string{anyValue}
		return q, flaw
	}
	return q, fmt.Sprintf("unknown operator %s: use In, NotIn, Exists or DoesNotExist", quote(string(e.Operator)))
}

// equals returns the requirement for "key: value". "!value" stands for any other value,
// since label values cannot begin with "!".
func equals(key, value string) requirement {
	value, not := strings.CutPrefix(value, "!")
	return requirement{key, []string{value}, not}
}

// flaw returns the error in the key or values as text, or "".
func (q requirement) flaw() string {
	if len(validation.IsQualifiedName(q.key)) > 0 {
		return fmt.Sprintf(
			"%s is not a label key: use letters, digits, '-', '_' and '.', optionally after a DNS name and '/'",
			quote(q.key))
	}
	for _, v := range q.values {
		if len(validation.IsValidLabelValue(v)) > 0 {
			return fmt.Sprintf(
				"%s is not a label value: use at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
				quote(v))
		}
	}
	return ""
}

// Select returns the IDs of the clusters that a selector selects. An invalid selector
// selects none.
func Select(s v1alpha1.ClusterSelector, clusters []Cluster) []string {
	var out []string
	requirements, mistakes := readSelector(s, "selector")
	for _, c := range clusters {
		unmet := func(q requirement) bool { return !q.met(c) }
		if len(mistakes) == 0 && !slices.ContainsFunc(requirements, unmet) {
			out = append(out, c.ID)
		}
	}
	return out
}

// NamedClusters returns the cluster IDs that the selectors of rules mention, also those that they
// exclude, sorted.
func NamedClusters(rules []v1alpha1.CablePolicySpec) []string {
	var out []string
	for _, r := range rules {
		for _, s := range []v1alpha1.ClusterSelector{r.LeftClusterSelector, r.RightClusterSelector} {
			requirements, _ := readSelector(s, "selector")
			for _, q := range requirements {
				if q.key == submarinerv1.ClusterIDLabel && !slices.Contains(q.values, anyValue) {
					out = append(out, q.values...)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// met reports whether a cluster meets the requirement.
func (q requirement) met(c Cluster) bool {
	value, has := c.Labels[q.key]
	if q.key == submarinerv1.ClusterIDLabel {
		value = c.ID
		has = true
	}
	return q.not != (has && (slices.Contains(q.values, value) || slices.Contains(q.values, anyValue)))
}

// SelectorText formats a selector in the notation of ParseSelector, or as "any" if it is empty.
func SelectorText(s v1alpha1.ClusterSelector) string {
	if requirements(s) == 0 {
		return "any"
	}
	var out []string
	for _, k := range sortedKeys(s.MatchLabels) {
		v, not := strings.CutPrefix(s.MatchLabels[k], "!")
		if not {
			out = append(out, k+"!="+v)
		} else {
			out = append(out, k+"="+v)
		}
	}
	for _, e := range s.MatchExpressions {
		out = append(out, expressionText(e))
	}
	return strings.Join(out, ",")
}

func expressionText(e v1alpha1.ClusterRequirement) string {
	switch {
	case e.Operator == metav1.LabelSelectorOpExists:
		return e.Key
	case e.Operator == metav1.LabelSelectorOpDoesNotExist:
		return "!" + e.Key
	case e.Operator == metav1.LabelSelectorOpIn && len(e.Values) == 1:
		return e.Key + "=" + e.Values[0]
	case e.Operator == metav1.LabelSelectorOpNotIn && len(e.Values) == 1:
		return e.Key + "!=" + e.Values[0]
	}
	return fmt.Sprintf("%s %s (%s)", e.Key, strings.ToLower(string(e.Operator)), strings.Join(e.Values, ","))
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
