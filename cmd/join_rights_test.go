package cmd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/cluster"
	"subctl/cluster/join"
)

// operator lets whoever was powerless do verbs to everything on the member, for as
// long as it is not called off: to write roles, but not to hand on what is not theirs.
func (w *joinWorld) operator(t *testing.T, verbs ...string) func() {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "operator"}
	objs := []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: meta,
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: verbs}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "operator"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "default"}},
		},
	}
	for _, obj := range objs {
		require.NoError(t, w.memberC.Create(t.Context(), obj))
	}
	c := w.as(t)
	require.Eventually(t, func() bool { // the API server's authorizer has seen it
		f, err := join.ReadFacts(t.Context(), c, join.Options{})
		return err == nil && len(f.Denied) < 10
	}, time.Minute, 50*time.Millisecond)
	return func() {
		for _, obj := range objs {
			require.NoError(t, w.memberC.Delete(t.Context(), obj))
		}
	}
}

// as is the member as the powerless see it.
func (w *joinWorld) as(t *testing.T) cluster.Side {
	t.Helper()
	c, err := client.New(w.member.As(w.powerless(t)), client.Options{Scheme: w.memberC.Scheme()})
	require.NoError(t, err)
	return cluster.Side{Client: c}
}

// Who holds what the agents hold, or may exceed it, may join without being an
// administrator.
func (w *joinWorld) enough(t *testing.T) {
	for _, verbs := range [][]string{
		{"get", "list", "create", "patch", "watch", "update", "delete"},
		{"get", "list", "create", "patch", "escalate", "bind"},
	} {
		off := w.operator(t, verbs...)
		require.Eventually(t, func() bool {
			f, err := join.ReadFacts(t.Context(), w.as(t), join.Options{})
			return err == nil && len(f.Denied) == 0
		}, time.Minute, 100*time.Millisecond, verbs)
		off()
	}
}
