package exchange

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kube"
)

// This file derives from a table what other packages need: the kind of an object, the scheme,
// and the rights of members and agents.

const notExchanged = "clusters do not exchange objects of this kind"

// Of returns the kind of o, or an error if the kind is not in the table.
func (t Table) Of(o client.Object) (*Kind, error) {
	if i := t.index(o); i >= 0 {
		return &t[i], nil
	}
	return nil, fmt.Errorf("%T %s: %s", o, o.GetName(), notExchanged)
}

// index returns the place of o's kind in the table, or -1.
func (t Table) index(o client.Object) int {
	return slices.IndexFunc(t, func(k Kind) bool { return k.is(o) })
}

// is reports whether o is of the kind.
func (k *Kind) is(o client.Object) bool { return reflect.TypeOf(o) == reflect.TypeOf(k.Object) }

// AddToScheme adds the kinds to a scheme.
func (t Table) AddToScheme(s *runtime.Scheme) {
	for _, k := range t {
		s.AddKnownTypeWithName(k.GroupVersion.WithKind(k.Name), k.Object)
		s.AddKnownTypeWithName(k.GroupVersion.WithKind(k.Name+"List"), k.List)
		metav1.AddToGroupVersion(s, k.GroupVersion)
	}
}

// MemberRules returns the rights of members in a clusterset's namespace of the broker.
func (t Table) MemberRules() []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, k := range t {
		rules = allow(rules, schema.GroupResource{Group: k.GroupVersion.Group, Resource: k.Resource}, k.Verbs)
	}
	return rules
}

// Rules returns the rights to do verbs with the objects of all kinds, and with more.
func (t Table) Rules(verbs []string, more ...schema.GroupResource) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, k := range t {
		rules = allow(rules, schema.GroupResource{Group: k.GroupVersion.Group, Resource: k.Resource}, verbs)
	}
	for _, r := range more {
		rules = allow(rules, r, verbs)
	}
	return rules
}

// ReportRules returns the rights to write the status of the objects that were made in a
// cluster.
func (t Table) ReportRules() []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, k := range t {
		if k.Status != nil {
			rules = allow(rules, schema.GroupResource{Group: k.GroupVersion.Group, Resource: k.Resource + "/status"},
				[]string{"patch"})
		}
	}
	return rules
}

// OwnedRules selects operations on the objects whose spec names the cluster that owns them.
func (t Table) OwnedRules(operations ...admissionv1.OperationType) []admissionv1.NamedRuleWithOperations {
	return t.rulesOf(func(k Kind) bool { return k.Named != nil && k.Named.ClusterID != nil }, operations)
}

// NetworkRules selects operations on the objects that announce networks.
func (t Table) NetworkRules(operations ...admissionv1.OperationType) []admissionv1.NamedRuleWithOperations {
	return t.rulesOf(func(k Kind) bool { return k.Named != nil && k.Named.Networks != nil }, operations)
}

func (t Table) rulesOf(
	selected func(Kind) bool,
	operations []admissionv1.OperationType,
) []admissionv1.NamedRuleWithOperations {
	resources := map[string][]string{}
	for _, k := range t {
		if selected(k) {
			resources[k.GroupVersion.Group] = append(resources[k.GroupVersion.Group], k.Resource)
		}
	}
	var rules []admissionv1.NamedRuleWithOperations
	for _, group := range slices.Sorted(maps.Keys(resources)) {
		rules = append(rules, kube.AdmissionRule(group, operations, resources[group]...))
	}
	return rules
}

// allow adds a right to rules, to an existing rule if one has the same group and verbs.
func allow(rules []rbacv1.PolicyRule, r schema.GroupResource, verbs []string) []rbacv1.PolicyRule {
	i := slices.IndexFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return rule.APIGroups[0] == r.Group && slices.Equal(rule.Verbs, verbs)
	})
	if i < 0 {
		return append(rules,
			rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: verbs})
	}
	rules[i].Resources = append(rules[i].Resources, r.Resource)
	return rules
}
