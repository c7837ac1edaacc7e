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

// requirement is what a selector requires of a cluster's labels: that the label key
// has one of the values (anyValue: is there at all); if not, that it does not. As in
// Kubernetes, a cluster without the label meets every requirement with not.
type requirement struct {
	key    string
	values []string // without repetitions
	not    bool
}

// requirements is how specific a selector is.
func requirements(s v1alpha1.ClusterSelector) int {
	return len(s.MatchLabels) + len(s.MatchExpressions)
}

// readSelector understands a selector, as far as it goes, and says what is wrong with
// the rest. field is where it stands.
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
	return q, fmt.Sprintf("there is no operator %s: use In, NotIn, Exists or DoesNotExist", quote(string(e.Operator)))
}

// equals is the requirement of "key: value", where "!value" means not that value: no
// label's value can begin so.
func equals(key, value string) requirement {
	value, not := strings.CutPrefix(value, "!")
	return requirement{key, []string{value}, not}
}

// flaw says what no label can be like; empty if nothing.
func (q requirement) flaw() string {
	if len(validation.IsQualifiedName(q.key)) > 0 {
		return fmt.Sprintf("%s cannot be the key of a label: use letters, digits, '-', '_' and '.', with a DNS name and '/' before it if need be", quote(q.key))
	}
	for _, v := range q.values {
		if len(validation.IsValidLabelValue(v)) > 0 {
			return fmt.Sprintf("%s cannot be the value of a label: use at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends", quote(v))
		}
	}
	return ""
}

// Select returns the IDs of the clusters that a selector selects, of a list of them.
// One with a mistake selects none.
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

// met says whether a cluster meets the requirement.
func (q requirement) met(c Cluster) bool {
	value, has := c.Labels[q.key]
	if q.key == submarinerv1.ClusterIDLabel {
		value, has = c.ID, true
	}
	return q.not != (has && (slices.Contains(q.values, value) || slices.Contains(q.values, anyValue)))
}

// SelectorText writes a selector as ParseSelector reads it; "any" if it is empty.
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
