package kube

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AdmissionPolicy returns a policy that denies what it does not allow, and denies everything
// when it cannot be evaluated, and the binding that puts it in force.
func AdmissionPolicy(name string, spec *admissionv1.ValidatingAdmissionPolicySpec) []client.Object {
	fail := admissionv1.Fail
	spec.FailurePolicy = &fail
	for i := range spec.Validations {
		forbidden := metav1.StatusReasonForbidden
		spec.Validations[i].Reason = &forbidden
	}
	return []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *spec},
		&admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        name,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		},
	}
}

// AdmissionWrites returns the operations that change objects.
func AdmissionWrites() []admissionv1.OperationType {
	return []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete}
}

// AdmissionRule selects operations on resources of an API group, in all its versions.
func AdmissionRule(
	group string,
	ops []admissionv1.OperationType,
	resources ...string,
) admissionv1.NamedRuleWithOperations {
	scope := admissionv1.AllScopes
	return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: ops,
		Rule: admissionv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources, Scope: &scope,
		},
	}}
}

// AdmissionBytes returns a CEL expression for the size of a value of any type, in bytes of a form
// like JSON.
func AdmissionBytes(value string) string {
	return fmt.Sprintf("size(bytes('%%s'.format([%s])))", value)
}

// ServiceAccountUser returns the user name of a service account.
func ServiceAccountUser(namespace, name string) string {
	return fmt.Sprintf("system:serviceaccount:%s:%s", namespace, name)
}
