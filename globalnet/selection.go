package globalnet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	submarinerv1 "subctl/api/submariner/v1"
)

// Selection is which pods get their source from a GlobalEgressIP.
type Selection struct {
	Pods int // that it selects, and no other GlobalEgressIP that takes precedence
	// Before are the names of GlobalEgressIPs that take precedence for pods that it selects, too,
	// sorted.
	Before []string
}

// maxMatches is the maximum number of comparisons of the labels of a pod with a selector, so that
// whoever may write GlobalEgressIPs in one namespace does not stop the agent for the others.
const maxMatches = 1 << 20

// Select returns the Selections of GlobalEgressIPs. Those with an invalid selector have none, and
// neither have those of a namespace with so many GlobalEgressIPs and pods that comparing them would
// take too long.
func Select[P Pod](egress []*submarinerv1.GlobalEgressIP, pods []P) map[*submarinerv1.GlobalEgressIP]Selection {
	out := map[*submarinerv1.GlobalEgressIP]Selection{}
	if len(egress) == 0 {
		return out
	}
	all := map[string][]selecting{}
	for _, e := range egress {
		if s, err := selectorOf(e); err == nil {
			all[e.Namespace] = append(all[e.Namespace], s)
		}
	}
	of := map[string][]P{}
	for _, p := range pods {
		if namespace := p.GetNamespace(); len(all[namespace]) > 0 && p.IP().IsValid() {
			of[namespace] = append(of[namespace], p)
		}
	}
	for namespace, selectors := range all {
		if len(selectors)*len(of[namespace]) > maxMatches {
			continue
		}
		slices.SortFunc(selectors, selecting.compare)
		for _, s := range selectors {
			out[s.GlobalEgressIP] = Selection{}
		}
		before := map[[2]*submarinerv1.GlobalEgressIP]bool{}
		for _, p := range of[namespace] {
			var first *submarinerv1.GlobalEgressIP
			for _, s := range selectors {
				switch e := s.GlobalEgressIP; {
				case !s.selects(p.LabelSet()):
				case first == nil:
					first = e
					is := out[e]
					is.Pods++
					out[e] = is
				default:
					before[[2]*submarinerv1.GlobalEgressIP{e, first}] = true
				}
			}
		}
		for pair := range before {
			is := out[pair[0]]
			is.Before = append(is.Before, pair[1].Name)
			out[pair[0]] = is
		}
	}
	for _, is := range out {
		slices.Sort(is.Before)
	}
	return out
}

// maxTerms is the maximum number of labels, expressions and values of expressions in a selector: a
// gateway compares each with the labels of all pods of the namespace.
const maxTerms = 32

// maxSelector is the maximum size of the text of a selector, in bytes: maxTerms labels with the
// longest keys and values have 12 KiB.
const maxSelector = 16 << 10

// tooLong takes the place of a selector with more text. It is no valid selector, either.
var tooLong = &metav1.LabelSelector{
	MatchExpressions: []metav1.LabelSelectorRequirement{{Key: strings.Repeat("x", maxSelector+1)}},
}

// Slim returns a GlobalEgressIP with what decides about addresses. Users may write these objects,
// and agents keep all of them in memory.
func Slim(e *submarinerv1.GlobalEgressIP) *submarinerv1.GlobalEgressIP {
	slim := &submarinerv1.GlobalEgressIP{
		ObjectMeta: metav1.ObjectMeta{
			Name:              e.Name,
			Namespace:         e.Namespace,
			UID:               e.UID,
			ResourceVersion:   e.ResourceVersion,
			Generation:        e.Generation,
			CreationTimestamp: e.CreationTimestamp,
			DeletionTimestamp: e.DeletionTimestamp,
		},
		Spec: e.Spec, Status: e.Status,
	}
	if e.Spec.PodSelector != nil && length(e.Spec.PodSelector) > maxSelector {
		slim.Spec.PodSelector = tooLong
	}
	return slim
}

// length returns how many bytes of text a selector has.
func length(of *metav1.LabelSelector) (n int) {
	for k, v := range of.MatchLabels {
		n += len(k) + len(v)
	}
	for _, e := range of.MatchExpressions {
		n += len(e.Key) + len(e.Operator)
		for _, v := range e.Values {
			n += len(v)
		}
	}
	return n
}

// Selector returns the selector of a GlobalEgressIP.
func Selector(of *metav1.LabelSelector) (labels.Selector, error) {
	if length(of) > maxSelector {
		return nil, fmt.Errorf("its labels and values have more than %d bytes: use fewer and shorter ones", maxSelector)
	}
	terms := len(of.MatchLabels) + len(of.MatchExpressions)
	for _, e := range of.MatchExpressions {
		terms += len(e.Values)
	}
	if terms > maxTerms {
		return nil, fmt.Errorf("it has %d labels, expressions and values: use at most %d", terms, maxTerms)
	}
	sorted := &metav1.LabelSelector{} // of several mistakes, the error is always about the same one
	for _, key := range slices.Sorted(maps.Keys(of.MatchLabels)) {
		sorted.MatchExpressions = append(
			sorted.MatchExpressions,
			metav1.LabelSelectorRequirement{
				Key:      key,
				Operator: metav1.LabelSelectorOpIn,
				Values:   []string{of.MatchLabels[key]},
			},
		)
	}
	sorted.MatchExpressions = append(sorted.MatchExpressions, of.MatchExpressions...)
	return metav1.LabelSelectorAsSelector(sorted)
}

// selectorOf returns a GlobalEgressIP with its selector.
func selectorOf(e *submarinerv1.GlobalEgressIP) (s selecting, err error) {
	s.GlobalEgressIP = e
	if e.Spec.PodSelector != nil {
		s.selector, err = Selector(e.Spec.PodSelector)
	}
	return s, err
}

// compare orders GlobalEgressIPs by precedence: a selector of pods before a whole namespace, and
// then the older one (as upstream).
func (s selecting) compare(o selecting) int {
	rank := func(s selecting) int {
		if s.selector != nil {
			return 0
		}
		return 1
	}
	return cmp.Or(rank(s)-rank(o), cmp.Compare(s.CreationTimestamp.Unix(), o.CreationTimestamp.Unix()),
		cmp.Compare(s.Name, o.Name))
}

// same reports whether nothing has changed.
func (s selecting) same(o selecting) bool {
	return s.GlobalEgressIP == o.GlobalEgressIP && slices.Equal(s.sources, o.sources)
}

func (s selecting) selects(pod labels.Labels) bool {
	return s.selector == nil || s.selector.Matches(pod)
}
