package broker

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/broker/exchange"
)

// This file bounds what members can make the broker store, and every other member with
// it, whose gateways hold all of it in memory. The broker's API server refuses objects
// that are too large, by an admission policy, and too many objects, by a quota. Readers
// go by the same bounds, in case a broker has neither.

// quotaName is the name of the ResourceQuota in the namespace of every clusterset.
const quotaName = "submariner-k8s-broker"

// quota returns the quota of a clusterset. It is for all members together: Kubernetes has
// no quota for each.
func quota(ns string, kinds exchange.Table) *corev1.ResourceQuota {
	hard := corev1.ResourceList{}
	for _, k := range kinds {
		hard[corev1.ResourceName("count/"+k.Resource+"."+k.GroupVersion.Group)] = *resource.NewQuantity(int64(k.Quota), resource.DecimalSI)
	}
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: quotaName, Namespace: ns},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard},
	}
}

// maxManagers is how many managers the fields of an object that a member writes may have:
// each adds a list of all its fields. Members write as one; the others are for people.
const maxManagers = 8

// sizeVariables returns the variables of the members' admission policy for the size of
// labels, annotations and the fields of each kind. See exchange.SizeOfMaps.
func sizeVariables(kinds exchange.Table) []admissionv1.Variable {
	variables := []admissionv1.Variable{{Name: "metadataSize", Expression: exchange.SizeOfMaps("object.metadata", "labels", "annotations")}}
	for _, k := range kinds {
		variables = append(variables, k.SizeVariable)
	}
	return variables
}

// boundValidations returns the part of the members' admission policy that bounds objects.
func boundValidations(kinds exchange.Table) []admissionv1.Validation {
	kept := func(field string) string {
		const list = "(%[1]s != null && has(%[1]s.metadata.%[2]s) ? %[1]s.metadata.%[2]s : [])"
		return fmt.Sprintf(list+" == "+fmt.Sprintf(list, "oldObject", field), "object", field)
	}
	return append(sizeValidations(kinds),
		admissionv1.Validation{
			Expression:        fmt.Sprintf("object == null || !has(object.metadata.managedFields) || size(object.metadata.managedFields) <= %d", maxManagers),
			MessageExpression: fmt.Sprintf("'the fields of ' + variables.name + ' have more than %d managers'", maxManagers),
		},
		admissionv1.Validation{
			// Finalizers would keep objects that others have the right to delete.
			Expression:        fmt.Sprintf("object == null || (%s && %s)", kept("finalizers"), kept("ownerReferences")),
			MessageExpression: "'cluster ' + variables.id + ' may not change the finalizers and owners of ' + variables.name",
		},
	)
}

// sizeValidations returns one validation for each size that kinds are bounded to.
func sizeValidations(kinds exchange.Table) []admissionv1.Validation {
	var sizes []int
	for _, k := range kinds {
		if !slices.Contains(sizes, k.MaxSize) {
			sizes = append(sizes, k.MaxSize)
		}
	}
	var out []admissionv1.Validation
	for _, most := range sizes {
		unless, fields := "object == null || ", ""
		for _, k := range kinds {
			if k.MaxSize == most {
				fields += fmt.Sprintf("variables.resource == '%s' ? variables.%s : ", k.Resource, k.SizeVariable.Name)
			} else {
				unless += fmt.Sprintf("variables.resource == '%s' || ", k.Resource)
			}
		}
		out = append(out, admissionv1.Validation{
			Expression:        fmt.Sprintf("%svariables.metadataSize + (%s0) <= %d", unless, fields, most),
			MessageExpression: fmt.Sprintf("variables.name + ' has more than %d characters in its labels, annotations and spec'", most),
		})
	}
	return out
}

// quoted returns names as a CEL list of strings.
func quoted(names []string) string {
	list := make([]string, len(names))
	for i, n := range names {
		list[i] = exchange.Quote(n)
	}
	return "[" + strings.Join(list, ", ") + "]"
}
