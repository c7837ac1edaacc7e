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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/internal/kubetest"
)

// An API server of Kubernetes 1.29 does not serve the policies.
func TestPreflightNeedsPolicies(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	c := fake.NewClientBuilder().WithRESTMapper(mapper).Build()
	require.EqualError(
		t,
		broker.Preflight(t.Context(), c, nil),
		"the API server has no admission policies (admissionregistration.k8s.io/v1), "+
			"which keep clusters apart on a broker: use Kubernetes 1.30 or later",
	)
}

// Whom Preflight lets pass can deploy, and whom it stops lacks what it says.
func TestPreflightSaysWhatIsMissing(t *testing.T) {
	server := kubetest.Shared(t)
	admin := server.Client(t)
	ns := server.Namespace(t, "broker")
	config := server.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "deployer-" + ns}
	user := kubetest.Client(t, config)
	objects, err := broker.Render(
		broker.Options{
			Namespace:     ns,
			Components:    []string{broker.Connectivity},
			CableDriver:   "vxlan",
			DefaultPolicy: "vxlan",
		},
	)
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
		rule("", "pods", "list"),
		rule("", "secrets", "list"),
		rule("", "services", "list"),
		rule("", "persistentvolumeclaims", "list"),
		rule("apps", "*", "list"),
		rule("batch", "*", "list"),
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
		_ = admin.Delete(ctx, binding)
		_ = admin.Delete(ctx, role)
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
			return err == nil && want == "" ||
				err != nil && err.Error() == "the user of this context may not "+want+suffix
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

// A broker gets a namespace of its own: one that others use is refused. What Kubernetes, its
// distributions and tools put into every namespace does not count.
func TestPreflightRefusesANamespaceInUse(t *testing.T) {
	server := kubetest.Shared(t)
	c := server.Client(t)
	ns := server.Namespace(t, "broker")
	objects := rendered(t, ns)
	for _, obj := range everywhere(ns) {
		require.NoError(t, c.Create(t.Context(), obj))
	}
	require.NoError(t, broker.Preflight(t.Context(), c, objects))
	for want, obj := range foreign(ns) {
		require.NoError(t, c.Create(t.Context(), obj))
		require.EqualError(t, broker.Preflight(t.Context(), c, objects), "namespace "+ns+" is in use: it has "+
			want+"; a broker needs a namespace of its own: choose another one with --namespace, or delete the "+
			"namespace: it is created with the broker")
		require.NoError(t, c.Delete(t.Context(), obj))
	}
}

// In the namespaces of a broker that exists, no object of others stops deploy-broker: choosing
// another namespace would make a second broker, which no cluster has joined. The same for the
// namespaces of its clustersets. What is in every namespace is not even worth a warning.
func TestPreflightOfABrokerWithObjectsOfOthers(t *testing.T) {
	d := deploy(t, kubetest.Shared(t), "a")
	joiner, _ := d.Joiner(t)
	_, err := broker.AddMember(t.Context(), joiner, d.NS, "east", "uid-east", broker.Reservation{})
	require.NoError(t, err)
	d.invitee(t, "west", "default")
	for _, ns := range []string{d.NS, broker.NamespaceIn(d.NS, "a")} {
		objects := rendered(t, d.NS, "a")
		for _, obj := range everywhere(ns) {
			require.NoError(t, d.Admin.Create(t.Context(), obj))
		}
		require.NoError(t, broker.Preflight(t.Context(), d.Admin, objects))
		others, err := broker.Others(t.Context(), d.Admin, objects)
		require.NoError(t, err)
		require.Empty(t, others)
		for want, obj := range foreign(ns) {
			require.NoError(t, d.Admin.Create(t.Context(), obj))
			require.NoError(t, broker.Preflight(t.Context(), d.Admin, objects))
			others, err := broker.Others(t.Context(), d.Admin, objects)
			require.NoError(t, err)
			require.Equal(t, []string{"namespace " + ns + " also contains objects of others, which stay as they are: " +
				want + "; clusters have rights in this namespace: keep nothing else in it"}, others)
			require.NoError(t, d.Admin.Delete(t.Context(), obj))
		}
	}
	t.Log("a clusterset can be created again, too")
	hub := &v1alpha1.Broker{ObjectMeta: metav1.ObjectMeta{Namespace: d.NS, Name: v1alpha1.BrokerName}}
	in := metav1.ObjectMeta{Name: "database", Namespace: broker.NamespaceIn(d.NS, "a")}
	require.NoError(t, d.Admin.Create(t.Context(), &corev1.Secret{ObjectMeta: in}))
	_, err = broker.NewSets(t.Context(), d.Admin, hub, []string{"a"})
	require.NoError(t, err)
}

// rendered returns the objects of a broker with clustersets.
func rendered(t *testing.T, ns string, sets ...string) []client.Object {
	t.Helper()
	objects, err := broker.Render(broker.Options{
		Namespace: ns, Sets: sets, Components: []string{broker.Connectivity}, CableDriver: "vxlan",
		DefaultPolicy: "vxlan",
	})
	require.NoError(t, err)
	return objects
}

// foreign returns objects by which somebody uses a namespace, by their names in messages.
func foreign(ns string) map[string]client.Object {
	in := metav1.ObjectMeta{Name: "database", Namespace: ns}
	return map[string]client.Object{
		"Secret database": &corev1.Secret{ObjectMeta: in},
		"Service database": &corev1.Service{
			ObjectMeta: in,
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 5432}}},
		},
		"ServiceAccount database": &corev1.ServiceAccount{ObjectMeta: in},
	}
}

// everywhere returns objects that tools put into every namespace.
func everywhere(ns string) []client.Object {
	in := func(name string, labels, annotations map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: ns, Labels: labels, Annotations: annotations}
	}
	kyverno := map[string]string{
		"app.kubernetes.io/managed-by": "kyverno", "generate.kyverno.io/policy-name": "sync-secrets",
	}
	reflected := map[string]string{"reflector.v1.k8s.emberstack.com/reflects": "ops/ca"}
	pull := map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)}
	one := corev1.ResourceList{"limits.cpu": resource.MustParse("100")}
	return []client.Object{
		&corev1.Secret{ObjectMeta: in("regcred", nil, nil), Type: corev1.SecretTypeDockerConfigJson, Data: pull},
		&corev1.Secret{
			ObjectMeta: in("default-dockercfg-x7k2p", nil, nil), Type: corev1.SecretTypeDockercfg,
			Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{}`)},
		},
		&corev1.Secret{ObjectMeta: in("company-token", kyverno, nil)},
		&corev1.Secret{ObjectMeta: in("company-ca", nil, reflected)},
		&corev1.ServiceAccount{ObjectMeta: in("image-puller", kyverno, nil)},
		&corev1.ServiceAccount{ObjectMeta: in("builder", nil, nil)},
		&corev1.ConfigMap{ObjectMeta: in("istio-ca-root-cert", nil, nil)},
		&corev1.LimitRange{ObjectMeta: in("limits", nil, nil)},
		&corev1.ResourceQuota{ObjectMeta: in("compute", nil, nil), Spec: corev1.ResourceQuotaSpec{Hard: one}},
	}
}
