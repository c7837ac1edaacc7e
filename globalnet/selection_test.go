package globalnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// Of GlobalEgressIPs that select the same pod, one takes precedence: the same for which gateways
// translate.
func TestSelect(t *testing.T) {
	labelled := func(namespace, name, ip, app string) *corev1.Pod {
		p := pod(namespace, name, ip)
		p.Labels = map[string]string{"app": app, "all": "yes"}
		return p
	}
	by := func(k, v string) map[string]string { return map[string]string{k: v} }
	everything := ofEgressObject(10, "everything", nil, "242.1.1.1")
	web := ofEgressObject(9, "web", by("app", "web"), "242.1.1.2")
	young := ofEgressObject(4, "young", by("all", "yes"), "242.1.1.3")
	nobody := ofEgressObject(2, "nobody", by("app", "none"), "242.1.1.4")
	twin := ofEgressObject(3, "twin", by("app", "web"), "242.1.1.5")
	bad := ofEgressObject(6, "bad", nil, "242.1.1.6")
	bad.Spec.PodSelector = &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}},
	}
	all := []*submarinerv1.GlobalEgressIP{bad, everything, nobody, twin, web, young}
	ended := labelled("ns", "ended", "10.0.0.7", "none")
	ended.Status.Phase = corev1.PodFailed
	pods := []*corev1.Pod{
		labelled("ns", "a", "10.0.0.1", "web"),
		labelled("ns", "b", "10.0.0.2", "db"),
		labelled("other", "c", "10.0.0.3", "none"),
		ended,
		pod("ns", "d", "10.0.0.4"),
	}
	got := Select(all, typed(pods))
	require.Equal(t, map[*submarinerv1.GlobalEgressIP]Selection{
		everything: {
			1,
			[]string{"web", "young"},
		}, web: {1, nil}, young: {1, []string{"web"}}, nobody: {}, twin: {0, []string{"web"}},
	}, got)
	sources := map[string]string{}
	for _, s := range Translate(gatewayOf("gw"), Objects{Egress: all, Pods: pods}).SelectedAddresses {
		sources[strings.Fields(s)[0]] = valueOf(s).String()
	}
	require.Equal(t, map[string]string{"10.0.0.1": "242.1.1.2", "10.0.0.2": "242.1.1.3", "10.0.0.4": "242.1.1.1"},
		sources, "as gateways translate")
	require.Empty(t, Select(nil, typed(pods)))
}

// Thousands of GlobalEgressIPs and pods in one namespace take no time from those of others.
func TestHostileSelectors(t *testing.T) {
	var all []*submarinerv1.GlobalEgressIP
	pods := []*corev1.Pod{pod("victim", "a", "10.1.0.1")}
	for i := range 5000 {
		all = append(all, ofEgressObject(1, fmt.Sprintf("e%04d", i), map[string]string{"a": "b"}, "242.1.1.1"))
		pods = append(pods, pod("ns", fmt.Sprintf("p%04d", i), fmt.Sprintf("10.0.%d.%d", i/250, i%250)))
	}
	victim := ofEgressObject(9, "victim", nil, "242.1.9.9")
	victim.Namespace = "victim"
	require.Equal(t, map[*submarinerv1.GlobalEgressIP]Selection{victim: {Pods: 1}},
		Select(append(all, victim), typed(pods)))
}

// Nor do many conditions in one selector: a gateway compares them with all pods.
func TestHostileSelectorTerms(t *testing.T) {
	e := ofEgressObject(1, "e", map[string]string{"a": "b"}, "242.1.1.1")
	pods := []*corev1.Pod{pod("ns", "p", "10.0.0.1")}
	e.Spec.PodSelector = &metav1.LabelSelector{}
	require.Equal(t, 1, Select([]*submarinerv1.GlobalEgressIP{e}, typed(pods))[e].Pods, "selects all pods")
	values := make([]string, maxTerms)
	for i := range values {
		values[i] = fmt.Sprint("v", i)
	}
	e.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
		{Key: "a", Operator: metav1.LabelSelectorOpNotIn, Values: values},
	}
	require.Empty(t, Select([]*submarinerv1.GlobalEgressIP{e}, typed(pods)))
	_, err := Selector(e.Spec.PodSelector)
	require.EqualError(t, err, "it has 33 labels, expressions and values: use at most 32")
	e.Spec.PodSelector.MatchExpressions[0].Values = values[1:]
	require.Equal(t, 1, Select([]*submarinerv1.GlobalEgressIP{e}, typed(pods))[e].Pods)
}

// What agents keep of a GlobalEgressIP is small, whatever a user writes into it, and what is too
// large is reported.
func TestHostileLargeSelectors(t *testing.T) {
	e := ofEgressObject(1, "e", map[string]string{"a": "b"}, "242.1.1.1")
	e.Annotations = map[string]string{"x": strings.Repeat("x", 200<<10)}
	slim := Slim(e)
	require.Empty(t, slim.Annotations)
	require.Equal(t, e.Spec, slim.Spec)
	require.Equal(t, e.Status, slim.Status)
	for name, s := range map[string]*metav1.LabelSelector{
		"value of a label": {MatchLabels: map[string]string{"a": strings.Repeat("v", maxSelector)}},
		"key": {
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: strings.Repeat("k", maxSelector), Operator: metav1.LabelSelectorOpExists},
			},
		},
		"values": {
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: []string{strings.Repeat("v", maxSelector)}},
			},
		},
		"operator of no meaning": {
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "a", Operator: metav1.LabelSelectorOperator(strings.Repeat("o", maxSelector))},
			},
		},
	} {
		e.Spec.PodSelector = s
		slim := Slim(e)
		require.Less(t, length(slim.Spec.PodSelector), maxSelector+100, name)
		for _, s := range []*metav1.LabelSelector{s, slim.Spec.PodSelector} {
			_, err := Selector(s)
			require.EqualError(t, err, "its labels and values have more than 16384 bytes: use fewer and shorter ones",
				name)
		}
	}
}

// The error of a selector with several mistakes is always the same: a condition that changes each
// time would be written again and again.
func TestHostileSelectorErrors(t *testing.T) {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := range maxTerms {
		s.MatchLabels[fmt.Sprintf("k%02d", i)] = "not a label"
	}
	_, want := Selector(s)
	require.ErrorContains(t, want, "not a label")
	for range 100 {
		_, err := Selector(s)
		require.EqualError(t, err, want.Error())
	}
}

// Of the GlobalEgressIPs of a namespace, a limited number counts, and whoever changes one has the
// pods of his own namespace compared again, and no others.
func TestHostileEgressOfANamespace(t *testing.T) {
	var all []*submarinerv1.GlobalEgressIP
	for i := range MaxOfNamespace + 50 {
		all = append(all,
			ofEgressObject(1+i/25, fmt.Sprintf("e%04d", i), map[string]string{"a": "b"}, fmt.Sprintf("242.1.1.%d", i)))
	}
	victim := ofEgressObject(9, "victim", nil, "242.1.9.9")
	victim.Namespace = "victim"
	all = append(all, victim)
	require.Len(t, Surplus(all), 50)
	require.NotContains(t, Surplus(all), victim)
	tr := newTranslated(gatewayOf("gw"), Objects{})
	pods := []*corev1.Pod{pod("ns", "p", "10.0.0.1"), pod("victim", "a", "10.1.0.1")}
	tr.follow(Objects{Egress: all, Pods: pods})
	require.Len(t, tr.selectors["ns"], MaxOfNamespace)
	require.Equal(t, []netip.Addr{ip("242.1.9.9")}, tr.selected[ref{"victim", "a"}].sources)
	touched := *tr.selectors["ns"][0].GlobalEgressIP
	all = slices.Clone(all)
	all[slices.IndexFunc(all, func(e *submarinerv1.GlobalEgressIP) bool { return e.Name == touched.Name })] = &touched
	tr.Egress = all
	require.Equal(t, map[string]bool{"ns": true}, tr.choose())
	require.Empty(t, tr.choose(), "nothing has changed")
}
