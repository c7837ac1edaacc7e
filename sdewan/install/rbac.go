package install

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/cluster"
	"subctl/sdewan/controller"
	"subctl/sdewan/webhook"
)

// component is a Deployment of ours. The controller and the webhooks are two, so that rules can be
// written while the controller is down, and each has only the rights that it needs.
type component struct {
	name   string
	args   []string
	port   int32
	local  []rbacv1.PolicyRule // rights in Namespace
	global []rbacv1.PolicyRule // rights in all namespaces
}

// components returns the controller and the webhooks.
func components() []component {
	return []component{
		{
			name: ControllerName, args: []string{"agent", "sdewan"},
			local: []rbacv1.PolicyRule{ // a Lease cannot be created by name only
				{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
				{
					APIGroups:     []string{"coordination.k8s.io"},
					Resources:     []string{"leases"},
					ResourceNames: []string{ControllerName},
					Verbs:         []string{"get", "update"},
				},
			},
			global: controller.Rules(),
		},
		{
			name: WebhookName, args: []string{"agent", "sdewan-webhook"}, port: webhookPort,
			local: webhook.NamespaceRules(), global: webhook.ClusterRules(),
		},
	}
}

// account returns the ServiceAccount of a component and its rights. Only pods that ask for the
// token mount it.
func (c component) account(p cluster.Platform) []client.Object {
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: c.name, Namespace: Namespace}}
	local := metav1.ObjectMeta{Name: c.name, Namespace: Namespace}
	global := metav1.ObjectMeta{Name: c.name}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: local, AutomountServiceAccountToken: new(false)},
		&rbacv1.Role{ObjectMeta: local, Rules: slices.Concat(c.local, p.Use(cluster.SCCNonRoot))},
		&rbacv1.RoleBinding{
			ObjectMeta: local, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: c.name},
		},
		&rbacv1.ClusterRole{ObjectMeta: global, Rules: c.global},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: global, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: c.name},
		},
	}
}
