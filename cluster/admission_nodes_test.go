package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kubetest"
)

// Whoever has taken over a node has the rights of its kubelet, and the tokens of the pods on it. He
// makes no gateway node of it, which would get the keys of the cables, changes no gateway, and
// cannot register the node again. The kubelet works as before.
func TestHostileKubelet(t *testing.T) {
	server := kubetest.Shared(t)
	admin := joined(t, server)
	as := func(user string, groups ...string) client.Client {
		config := server.Config()
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
		return kubetest.Client(t, config)
	}
	kubelet := as("system:node:taken-over", "system:nodes", "system:authenticated")
	plugin := as("network-plugin", "system:authenticated")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "network-plugin"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name: "network-plugin",
		}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "network-plugin"}},
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   "taken-over",
			Labels: map[string]string{"gateway.submariner.io/public-ip": "192.0.2.1"},
		},
	}
	for _, o := range []client.Object{role, binding} {
		require.NoError(t, admin.Create(t.Context(), o))
		t.Cleanup(func() { _ = admin.Delete(t.Context(), o) })
	}
	require.NoError(t, kubelet.Create(t.Context(), node), "it registers with any labels")
	t.Cleanup(func() { _ = admin.Delete(t.Context(), node) })

	const gateway, unlabelled = `{"metadata":{"labels":{"submariner.io/gateway":"true"}}}`, `{"metadata":{"labels":{"submariner.io/gateway":null}}}`
	object := func(c client.Client, patch string) error {
		return c.Patch(t.Context(), node.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
	}
	status := func(c client.Client, patch string, options ...client.SubResourcePatchOption) error {
		return c.Status().Patch(
			t.Context(),
			node.DeepCopy(),
			client.RawPatch(types.StrategicMergePatchType, []byte(patch)),
			options...)
	}
	require.Eventually(t, func() bool {
		return status(plugin, gateway, client.DryRunAll) != nil
	}, 30*time.Second, 50*time.Millisecond, "the policy is in force")
	hostile := map[string]string{
		"label":                    gateway,
		"label of no gateway":      `{"metadata":{"labels":{"submariner.io/gateway":"false"}}}`,
		"mark of subctl":           `{"metadata":{"annotations":{"submariner.io/labelled-by":"subctl"}}}`,
		"weight":                   `{"metadata":{"annotations":{"gateway.submariner.io/weight":"7"}}}`,
		"drain":                    `{"metadata":{"annotations":{"gateway.submariner.io/drain":"5m"}}}`,
		"address":                  `{"metadata":{"annotations":{"gateway.submariner.io/public-ip":"ipv4:192.0.2.7"}}}`,
		"address in a label":       `{"metadata":{"labels":{"gateway.submariner.io/public-ip":"192.0.2.7"}}}`,
		"no address":               `{"metadata":{"labels":{"gateway.submariner.io/public-ip":null}}}`,
		"no labels at all":         `{"metadata":{"labels":null}}`,
		"together with its status": `{"metadata":{"labels":{"submariner.io/gateway":"true"}},"status":{"phase":"Running"}}`,
	}
	refused := func(t *testing.T, err error) {
		t.Helper()
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "a kubelet, or a change of a Node's status, may not change the ")
	}
	require.ErrorContains(t, object(kubelet, gateway),
		"the label submariner.io/gateway: set it with kubectl label node, and not in the configuration of the node")
	require.ErrorContains(t, object(kubelet, `{"metadata":{"annotations":{"gateway.submariner.io/drain":"5m"}}}`),
		"the annotation gateway.submariner.io/drain: set it with kubectl annotate node, and")
	for name, patch := range hostile {
		t.Run(name, func(t *testing.T) {
			refused(t, object(kubelet, patch))
			refused(t, status(kubelet, patch))
			refused(t, status(plugin, patch))
			refused(t, status(admin, patch))
		})
	}
	require.NoError(t, object(admin, gateway))
	for _, err := range []error{object(kubelet, unlabelled), status(kubelet, unlabelled), status(plugin, unlabelled)} {
		refused(t, err)
	}
	require.True(t, apierrors.IsForbidden(kubelet.Delete(t.Context(), node.DeepCopy())), "it would register again")

	for _, c := range []client.Client{kubelet, plugin} {
		require.NoError(
			t,
			status(c,
				`{"metadata":{"annotations":{"volumes.kubernetes.io/attach":"true"}},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`),
		)
	}
	require.NoError(t,
		object(kubelet, `{"metadata":{"labels":{"example.com/zone":"a"},"annotations":{"example.com/a":"b"}}}`))
	require.NoError(
		t,
		object(admin,
			`{"metadata":{"annotations":{"gateway.submariner.io/weight":"7","gateway.submariner.io/drain":"5m"}}}`),
	)
	require.NoError(t, object(admin, unlabelled))
	require.NoError(t, object(admin, `{"metadata":{"labels":null,"annotations":null}}`))
	require.NoError(t, status(kubelet, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`),
		"a Node without any")
}
