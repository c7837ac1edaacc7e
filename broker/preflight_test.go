package broker_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/internal/kubetest"
)

// An API server of Kubernetes 1.29 does not serve the policies.
func TestPreflightNeedsPolicies(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	c := fake.NewClientBuilder().WithRESTMapper(mapper).Build()
	require.EqualError(t, broker.Preflight(t.Context(), c, nil), "the API server has no admission policies (admissionregistration.k8s.io/v1), "+
		"which keep clusters apart on a broker: use Kubernetes 1.30 or later")
}

// Whom Preflight lets pass can deploy, and whom it stops lacks what it says.
func TestPreflightSaysWhatIsMissing(t *testing.T) {
	server := kubetest.Shared(t)
	admin, ns := server.Client(t), server.Namespace(t, "broker")
	config := server.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "deployer-" + ns}
	user := kubetest.Client(t, config)
	objects, err := broker.Render(broker.Options{Namespace: ns, Components: []string{broker.Connectivity}, CableDriver: "vxlan", DefaultPolicy: "vxlan"})
	require.NoError(t, err)
	t.Cleanup(func() { (&brokertest.Broker{Admin: admin, NS: ns}).RemoveClusterScoped(t) })

	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "deployer-" + ns}, Rules: []rbacv1.PolicyRule{
		rule("apiextensions.k8s.io", "*", "get", "create", "patch"),
		rule("admissionregistration.k8s.io", "*", "get", "create", "patch"),
		rule("", "*", "get", "create", "patch"),
		rule("", "serviceaccounts", "list"), // also to check that nobody else uses the namespace
		rule("", "pods", "list"), rule("", "secrets", "list"), rule("", "services", "list"), rule("", "persistentvolumeclaims", "list"),
		rule("apps", "*", "list"), rule("batch", "*", "list"),
		rule("", "resourcequotas/status", "update"),
		rule("rbac.authorization.k8s.io", "*", "get", "create", "patch"),
		rule("submariner.io", "brokers", "get", "create", "patch"),
		rule("submariner.io", "cablepolicies", "get", "list", "create", "patch"),
	}}
	require.NoError(t, admin.Create(t.Context(), role))
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "deployer-" + ns}},
	}
	require.NoError(t, admin.Create(t.Context(), binding))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, _ = admin.Delete(ctx, binding), admin.Delete(ctx, role)
	})
	const suffix = ": use a context with an administrator's rights"
	list := "list clusters.submariner.io in namespace " + ns
	grants := "bind/escalate roles.rbac.authorization.k8s.io submariner-k8s-broker-admin in namespace " + ns +
		", bind/escalate roles.rbac.authorization.k8s.io submariner-k8s-broker-identities in namespace " + ns +
		", escalate clusterroles.rbac.authorization.k8s.io submariner-admin" +
		", escalate clusterroles.rbac.authorization.k8s.io submariner-edit" +
		", escalate clusterroles.rbac.authorization.k8s.io submariner-view" +
		", escalate roles.rbac.authorization.k8s.io submariner-k8s-broker-cluster in namespace " + ns
	says := func(want string) {
		t.Helper()
		said := func() bool {
			err = broker.Preflight(t.Context(), user, objects)
			return err == nil && want == "" || err != nil && err.Error() == "the user of this context may not "+want+suffix
		}
		if !assert.Eventually(t, said, patience, tick) {
			t.Fatal(err)
		}
	}
	says(grants + ", " + list)
	require.True(t, apierrors.IsForbidden(broker.Apply(t.Context(), user, objects)), "it could have done without")

	t.Log("with the right to give rights away")
	rules := role.Rules
	role.Rules = append(slices.Clone(rules), rule("rbac.authorization.k8s.io", "roles", "bind", "escalate"),
		rule("rbac.authorization.k8s.io", "clusterroles", "escalate"))
	require.NoError(t, admin.Update(t.Context(), role))
	says(list)
	role.Rules = append(role.Rules, rule("submariner.io", "clusters", "list"))
	require.NoError(t, admin.Update(t.Context(), role))
	says("")

	t.Log("with the rights it gives away instead")
	role.Rules = slices.Clone(rules)
	for _, o := range objects {
		switch r := o.(type) {
		case *rbacv1.Role:
			role.Rules = append(role.Rules, r.Rules...)
		case *rbacv1.ClusterRole:
			role.Rules = append(role.Rules, r.Rules...)
		}
	}
	require.NoError(t, admin.Update(t.Context(), role))
	says("")
	require.NoError(t, broker.Apply(t.Context(), user, objects))
	_, err = broker.Look(t.Context(), user, ns)
	require.NoError(t, err)
}

// A broker's namespace holds the broker's objects only. A broker that is deployed again is no
// other user.
func TestPreflightRefusesANamespaceInUse(t *testing.T) {
	d := deploy(t, kubetest.Shared(t))
	joiner, _ := d.Joiner(t)
	_, err := broker.AddMember(t.Context(), joiner, d.NS, "east", "uid-east", broker.Reservation{})
	require.NoError(t, err)
	d.invitee(t, "west", "default")
	objects, err := broker.Render(broker.Options{Namespace: d.NS, Components: []string{broker.Connectivity}, CableDriver: "vxlan", DefaultPolicy: "vxlan"})
	require.NoError(t, err)
	require.NoError(t, broker.Preflight(t.Context(), d.Admin, objects))

	in := metav1.ObjectMeta{Name: "database", Namespace: d.NS}
	for want, obj := range map[string]client.Object{
		"Secret database":         &corev1.Secret{ObjectMeta: in},
		"Service database":        &corev1.Service{ObjectMeta: in, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 5432}}}},
		"ServiceAccount database": &corev1.ServiceAccount{ObjectMeta: in},
	} {
		require.NoError(t, d.Admin.Create(t.Context(), obj))
		require.EqualError(t, broker.Preflight(t.Context(), d.Admin, objects), "namespace "+d.NS+" is in use: it has "+want+
			"; a broker needs a namespace of its own: choose another one with --namespace")
		require.NoError(t, d.Admin.Delete(t.Context(), obj))
	}
}
