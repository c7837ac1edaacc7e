package broker

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// This file bounds what members can have the broker store, and with it every other
// member, whose gateways hold all of it in memory. The broker's API server refuses what
// is too large (an admission policy) or too much (a quota). Readers go by the same
// bounds, should a broker have neither: see mirror.

// quotas is how many objects of a kind a clusterset holds. They are for 1,000 clusters,
// each with a Cluster, up to four gateways and two policies, of up to 64 rules each; and
// for twice the Clusters, since one that is gone for good stays until somebody frees
// its ID. At maxObjectSize each, all of it is 125 MiB; as real clusters write it, 10 MiB.
//
// A quota is of all members together: Kubernetes has none for each. Who uses it up
// keeps others from adding objects, until they are deleted by its label; what there is
// stays, and can be changed.
var quotas = map[string]int{"Cluster": 2000, "Endpoint": 4000, "CablePolicies": 2000}

// quotaName is that of the ResourceQuota in the namespace of every clusterset.
const quotaName = "submariner-k8s-broker"

func quota(ns string) *corev1.ResourceQuota {
	hard := corev1.ResourceList{}
	for kind, plural := range map[string]string{"Cluster": "clusters", "Endpoint": "endpoints", "CablePolicies": "cablepolicies"} {
		hard[corev1.ResourceName("count/"+plural+"."+submarinerv1.GroupVersion.Group)] = *resource.NewQuantity(int64(quotas[kind]), resource.DecimalSI)
	}
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: quotaName, Namespace: ns},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard},
	}
}

// maxManagers is how many may manage fields of an object that a member writes: each
// adds a list of all its fields. Members write as one; the rest is for people.
const maxManagers = 8

// boundVariables and boundValidations are the part of the policy of members that is
// about size. The strings of labels, annotations and spec are counted, with what JSON
// puts around them at least: there is no length of the whole in CEL. So what size
// accepts is accepted.
func boundVariables() []admissionv1.Variable {
	sum := func(object string, of func(string) string, fields ...string) string {
		for i, f := range fields {
			fields[i] = optional(object, f, of)
		}
		return strings.Join(fields, " + ")
	}
	return []admissionv1.Variable{
		{Name: "metadataSize", Expression: sum("object.metadata", sumOfMap, "labels", "annotations")},
		{Name: "clusterSize", Expression: sum("object.spec", sumOfList, "cluster_cidr", "service_cidr", "global_cidr", "cluster_sets", "color_codes")},
		{Name: "endpointSize", Expression: sum("object.spec", sumOfList, "subnets", "allocated_ips") + " + " + sum("object.spec", sumOfMap, "backend_config")},
		{Name: "policySize", Expression: sum("object", sumOfRules, "spec")},
	}
}

func boundValidations() []admissionv1.Validation {
	kept := func(field string) string {
		const list = "(%[1]s != null && has(%[1]s.metadata.%[2]s) ? %[1]s.metadata.%[2]s : [])"
		return fmt.Sprintf(list+" == "+fmt.Sprintf(list, "oldObject", field), "object", field)
	}
	return []admissionv1.Validation{
		{
			Expression: fmt.Sprintf("object == null || variables.metadataSize + (variables.resource == 'clusters' ? variables.clusterSize : "+
				"variables.resource == 'endpoints' ? variables.endpointSize : variables.resource == 'cablepolicies' ? variables.policySize : 0) <= %d", maxObjectSize),
			MessageExpression: fmt.Sprintf("variables.name + ' has more than %d characters in its labels, annotations and spec'", maxObjectSize),
		},
		{
			Expression:        fmt.Sprintf("object == null || !has(object.metadata.managedFields) || size(object.metadata.managedFields) <= %d", maxManagers),
			MessageExpression: fmt.Sprintf("'the fields of ' + variables.name + ' have more than %d managers'", maxManagers),
		},
		{
			// Finalizers would keep what others have the right to delete.
			Expression:        fmt.Sprintf("object == null || (%s && %s)", kept("finalizers"), kept("ownerReferences")),
			MessageExpression: "'cluster ' + variables.id + ' may not change the finalizers and owners of ' + variables.name",
		},
	}
}

// optional is the CEL expression for the sum over a field, which may be missing.
func optional(object, field string, sum func(string) string) string {
	return fmt.Sprintf("(has(%[1]s.%[2]s) ? %[3]s : 0)", object, field, sum(object+"."+field))
}

func sumOfMap(m string) string {
	return fmt.Sprintf("%[1]s.map(k, size(k) + size(%[1]s[k]) + 6).sum()", m)
}

func sumOfList(l string) string { return l + ".map(s, size(s) + 3).sum()" }

// sumOfRules is that of a policy's rules.
func sumOfRules(rules string) string {
	requirements := func(l string) string {
		return l + ".map(q, size(q.key) + " + optional("q", "values", sumOfList) + ").sum()"
	}
	selector := func(s string) string {
		return optional(s, "matchLabels", sumOfMap) + " + " + optional(s, "matchExpressions", requirements)
	}
	options := func(o string) string { return optional(o, "data", sumOfMap) }
	return rules + ".map(r, " + optional("r", "leftClusterSelector", selector) + " + " + optional("r", "rightClusterSelector", selector) + " + " +
		optional("r", "options", options) + ").sum()"
}
