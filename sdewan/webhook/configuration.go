package webhook

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/internal/kube"
	"subctl/sdewan"
)

// masters is the group of users to whom RBAC does not apply.
const masters = "system:masters"

// exempt returns the users that no webhook about rules restricts: the controller, which changes
// finalizers and statuses, and the parts of Kubernetes that delete the objects of a namespace or of
// an owner that is gone.
func exempt(o Options) []string {
	return []string{
		kube.ServiceAccountUser(o.Namespace, o.Account),
		kube.ServiceAccountUser("kube-system", "namespace-controller"),
		kube.ServiceAccountUser("kube-system", "generic-garbage-collector"),
		"system:kube-controller-manager", // both, where controllers have no accounts of their own
	}
}

// Configuration returns the object that makes the API server ask the webhooks. The replicas add
// their certificate to it (caBundle), so who applies it again must not own that field.
func Configuration(o Options) *admissionv1.ValidatingWebhookConfiguration {
	fail := admissionv1.Fail
	exact := admissionv1.Equivalent
	none := admissionv1.SideEffectClassNone
	timeout := int32(5)
	hook := func(
		name, path string,
		rules []admissionv1.RuleWithOperations,
		conditions ...admissionv1.MatchCondition,
	) admissionv1.ValidatingWebhook {
		port := int32(443)
		return admissionv1.ValidatingWebhook{
			Name: name, Rules: rules, MatchConditions: conditions,
			ClientConfig: admissionv1.WebhookClientConfig{
				Service: &admissionv1.ServiceReference{
					Namespace: o.Namespace,
					Name:      o.service(),
					Path:      &path,
					Port:      &port,
				},
			},
			FailurePolicy: &fail, MatchPolicy: &exact, SideEffects: &none, TimeoutSeconds: &timeout,
			AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector:       &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
		}
	}
	write := []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
	cnf := hook("cnf.sdewan.akraino.org", cnfPath, rules(write, "apps", "deployments"), admissionv1.MatchCondition{
		Name: "label-changes",
		Expression: fmt.Sprintf(
			`request.operation == "CREATE" || object.metadata.?labels.?%[1]s != oldObject.metadata.?labels.?%[1]s`,
			sdewan.PurposeLabel),
	})
	cnf.ObjectSelector = &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: sdewan.PurposeLabel, Operator: metav1.LabelSelectorOpExists},
		},
	}

	var names []string
	for _, user := range exempt(o) {
		names = append(names, fmt.Sprintf("%q", user))
	}
	others := admissionv1.MatchCondition{
		Name:       "user",
		Expression: fmt.Sprintf("!(request.userInfo.username in [%s])", strings.Join(names, ", ")),
	}
	people := admissionv1.MatchCondition{
		Name:       "no-administrator",
		Expression: fmt.Sprintf("!has(request.userInfo.groups) || !(%q in request.userInfo.groups)", masters),
	}
	changes := admissionv1.MatchCondition{
		Name: "changes",
		Expression: fmt.Sprintf(
			`request.operation != "UPDATE" || object.spec != oldObject.spec || object.metadata.?labels.?%[1]s != oldObject.metadata.?labels.?%[1]s`,
			sdewan.PurposeLabel),
	}
	var own, all []admissionv1.RuleWithOperations
	for _, group := range groups() {
		own = append(own, rules(kube.AdmissionWrites(), group.name, group.resources...)...)
		with := slices.Clone(group.resources)
		for _, r := range group.resources {
			with = append(with, r+"/*") // status
		}
		all = append(all, rules(kube.AdmissionWrites(), group.name, with...)...)
	}
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: Name},
		Webhooks: []admissionv1.ValidatingWebhook{
			cnf,
			hook("dependencies.sdewan.akraino.org", dependenciesPath, own, others, changes),
			hook("permission.sdewan.akraino.org", permissionPath, all, others, people),
		},
	}
}

func rules(operations []admissionv1.OperationType, group string, resources ...string) []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{kube.AdmissionRule(group, operations, resources...).RuleWithOperations}
}

type apiGroup struct {
	name      string
	resources []string
}

// groups returns the API groups of rules with their resources.
func groups() (out []apiGroup) {
	for _, k := range sdewan.Kinds() {
		i := slices.IndexFunc(out, func(g apiGroup) bool { return g.name == k.GVK.Group })
		if i < 0 {
			i = len(out)
			out = append(out, apiGroup{name: k.GVK.Group})
		}
		out[i].resources = append(out[i].resources, k.Resource)
	}
	return out
}

// ClusterRules returns the rights of the webhooks in the cluster.
func ClusterRules() []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	out := []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: read},
		{
			APIGroups: []string{rbacv1.GroupName},
			Resources: []string{"clusterrolebindings", "clusterroles", "rolebindings", "roles"},
			Verbs:     read,
		},
		{APIGroups: []string{"events.k8s.io", ""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{
			APIGroups:     []string{"admissionregistration.k8s.io"},
			Resources:     []string{"validatingwebhookconfigurations"},
			ResourceNames: []string{Name},
			Verbs:         []string{"get", "update"},
		},
	}
	for _, g := range groups() {
		out = append(out, rbacv1.PolicyRule{APIGroups: []string{g.name}, Resources: g.resources, Verbs: read})
	}
	return out
}

// NamespaceRules returns the rights of the webhooks in the namespace of the controller.
func NamespaceRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
		{
			APIGroups:     []string{""},
			Resources:     []string{"secrets"},
			ResourceNames: []string{SecretName},
			Verbs:         []string{"get", "update"},
		},
	}
}
