package broker

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/internal/kube"
)

// This file bounds what members can make the broker store, and every other member with
// it, whose gateways hold all of it in memory. The broker's API server refuses objects
// that are too large, and names of which a member has no share, by an admission policy, and too
// many objects, by a quota. Readers go by the same bounds, in case a broker has neither.

// quotaName is the name of the ResourceQuota in the namespace of every clusterset.
const quotaName = "submariner-k8s-broker"

// The most members of a broker, and what join credentials can make: an identity for each member
// consists of a service account, a Role and two RoleBindings, and a place in another clusterset of
// a Role and two RoleBindings. Every join adds a token, and a Role and a RoleBinding to read it;
// all joins with a file for one cluster together add one. An invitation is a service account, a
// Role and a RoleBinding, and a RoleBinding in each of its clustersets; every member may have one.
// The rest is what the broker itself has.
const (
	maxMembers      = 2000
	maxInvitations  = maxMembers
	maxTokens       = 2 * maxMembers
	ownIdentities   = 200
	bindingsOfOne   = 2
	maxIdentitySize = 16 << 10 // bytes of one of these objects
)

// quota returns the quota of a clusterset, where base is the namespace of the identities. It is
// for all members together: Kubernetes has no quota for each. It counts only what join credentials
// can make: members create no objects, so that none of them can use it up.
func quota(ns, base string, kinds exchange.Table) *corev1.ResourceQuota {
	hard := corev1.ResourceList{}
	most := func(resourceName string, n int) {
		hard[corev1.ResourceName("count/"+resourceName)] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	for _, k := range kinds {
		most(k.Resource+"."+k.GroupVersion.Group, k.Quota)
	}
	if ns == base {
		most("serviceaccounts", maxMembers+maxInvitations+ownIdentities)
		most("secrets", maxTokens+ownIdentities)
		most("roles.rbac.authorization.k8s.io", maxMembers+maxTokens+maxInvitations+ownIdentities)
		most("rolebindings.rbac.authorization.k8s.io",
			bindingsOfOne*maxMembers+maxTokens+2*maxInvitations+ownIdentities)
	} else {
		most("roles.rbac.authorization.k8s.io", maxMembers+ownIdentities)
		most("rolebindings.rbac.authorization.k8s.io", bindingsOfOne*maxMembers+maxInvitations+ownIdentities)
	}
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: quotaName, Namespace: ns},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard},
	}
}

// maxManaged is the maximum size, in bytes, of the managed fields of an object that a member
// writes: which fields each manager has set. The API server stores managed fields as the
// writer claims them.
const maxManaged = 8 << 10

// maxEntries is the maximum number of labels, and of annotations, of an object that a member
// writes. Other clusters copy at most submarinerv1.MaxLabels.
const maxEntries = 100

// entries returns a CEL expression for the number of labels or annotations of an object.
func entries(field string) string {
	return fmt.Sprintf("(has(object.metadata.%[1]s) ? size(object.metadata.%[1]s) : 0)", field)
}

// sizeVariables returns the variables of the members' admission policy for the size of labels,
// annotations and the fields of each kind: see exchange.SizeOfMaps. Signatures, and the names of
// objects in slots, have bounds of their own.
func sizeVariables(kinds exchange.Table) []admissionv1.Variable {
	variables := []admissionv1.Variable{
		{Name: "proofs", Expression: "variables.annotations.filter(k, k in " + quoted(exchange.Proofs()) + ")"},
		{Name: "metadataSize", Expression: exchange.SizeOfMaps("object.metadata", "labels", "annotations") +
			fmt.Sprintf(
				" - variables.annotations.filter(k, k in variables.proofs || k == '%s' && variables.resource in %s).map(k, size(k) + size(variables.annotations[k]) + 6).sum()",
				submarinerv1.NameAnnotation, quoted(slotted(kinds)))},
	}
	for _, k := range kinds {
		variables = append(variables, k.SizeVariable)
	}
	return variables
}

// annotationsVariable returns the variable for the annotations of an object.
func annotationsVariable() admissionv1.Variable {
	return admissionv1.Variable{
		Name:       "annotations",
		Expression: "object != null && has(object.metadata.annotations) ? object.metadata.annotations : {}",
	}
}

// boundValidations returns the part of the members' admission policy that bounds objects.
func boundValidations(kinds exchange.Table) []admissionv1.Validation {
	kept := func(field string) string {
		const list = "(%[1]s != null && has(%[1]s.metadata.%[2]s) ? %[1]s.metadata.%[2]s : [])"
		return fmt.Sprintf(list+" == "+fmt.Sprintf(list, "oldObject", field), "object", field)
	}
	return append(sizeValidations(kinds),
		admissionv1.Validation{
			Expression: fmt.Sprintf("object == null || !has(object.metadata.managedFields) || %s <= %d",
				kube.AdmissionBytes("object.metadata.managedFields"), maxManaged),
			MessageExpression: fmt.Sprintf("variables.name + ' has more than %d bytes of managed fields'", maxManaged),
		},
		admissionv1.Validation{
			// The API server checks its length in new objects only, and nothing reads it.
			Expression:        "object == null || !has(object.metadata.generateName) || object.metadata.generateName == ''",
			MessageExpression: "'cluster ' + variables.id + ' may not set generateName of ' + variables.name",
		},
		admissionv1.Validation{
			// In memory, an entry takes far more than its bytes.
			Expression: fmt.Sprintf("object == null || [%s, %s].all(n, n <= %d)", entries("labels"),
				entries("annotations"), maxEntries),
			MessageExpression: fmt.Sprintf("variables.name + ' has more than %d labels or annotations'", maxEntries),
		},
		admissionv1.Validation{
			Expression: fmt.Sprintf(
				"object == null || variables.proofs.map(k, size(variables.annotations[k])).sum() <= %d",
				exchange.MaxProof),
			MessageExpression: fmt.Sprintf(
				"variables.name + ' has more than %d characters in its signature and its grant'", exchange.MaxProof),
		},
		admissionv1.Validation{
			// Finalizers would keep objects that others have the right to delete. The statement of
			// a cluster that it has left remains when its account, which owns its objects, is
			// deleted.
			Expression: fmt.Sprintf(
				"object == null || (%s && (%s || variables.leaving && (!has(object.metadata.ownerReferences) || size(object.metadata.ownerReferences) == 0)))",
				kept("finalizers"), kept("ownerReferences")),
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
		unless := "object == null || "
		fields := ""
		for _, k := range kinds {
			if k.MaxSize == most {
				fields += fmt.Sprintf("variables.resource == '%s' ? variables.%s : ", k.Resource, k.SizeVariable.Name)
			} else {
				unless += fmt.Sprintf("variables.resource == '%s' || ", k.Resource)
			}
		}
		out = append(out, admissionv1.Validation{
			Expression: fmt.Sprintf("%svariables.metadataSize + (%s0) <= %d", unless, fields, most),
			MessageExpression: fmt.Sprintf(
				"variables.name + ' has more than %d characters in its labels, annotations and spec'", most),
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

// identityBound returns the part of the joiner's admission policy that bounds the objects of an
// identity, whatever is in them.
func identityBound() admissionv1.Validation {
	return admissionv1.Validation{
		Expression: fmt.Sprintf("object == null || %s <= %d", kube.AdmissionBytes("object"), maxIdentitySize),
		Message:    fmt.Sprintf("who joins may make objects of at most %d bytes", maxIdentitySize),
	}
}
