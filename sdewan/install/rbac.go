package install

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// account returns the ServiceAccount of the controller and its rights, which are those of its two parts: in Namespace, and in the cluster.
// Only pods that ask for the token mount it.
func account() []client.Object {
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: Name, Namespace: Namespace}}
	local := metav1.ObjectMeta{Name: Name, Namespace: Namespace}
	global := metav1.ObjectMeta{Name: Name}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: local, AutomountServiceAccountToken: new(false)},
		&rbacv1.Role{ObjectMeta: local, Rules: localRules()},
		&rbacv1.RoleBinding{
			ObjectMeta: local, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: Name},
		},
		&rbacv1.ClusterRole{ObjectMeta: global, Rules: globalRules()},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: global, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: Name},
		},
	}
}

func localRules() []rbacv1.PolicyRule  { return slices.Concat[[]rbacv1.PolicyRule]() }
func globalRules() []rbacv1.PolicyRule { return nil }
