package broker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/trust"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

// The holder of a join file for one cluster and one clusterset joins it there, and reads, binds and joins nowhere else.
func TestHostileInviteeOfAClusterSet(t *testing.T) {
	d, ctx := &deployed{brokertest.Deploy(t, kubetest.Shared(t), "a", "b")}, t.Context()
	d.Join(t, "west", "uid-west")
	invitee := d.invitee(t, "east", "a")
	a, b := broker.NamespaceIn(d.NS, "a"), broker.NamespaceIn(d.NS, "b")

	for _, ns := range []string{d.NS, b, ""} {
		for _, list := range []client.ObjectList{
			&submarinerv1.ClusterList{}, &submarinerv1.EndpointList{}, &corev1.ServiceAccountList{}, &corev1.SecretList{}, &corev1.ConfigMapList{}, &rbacv1.RoleBindingList{},
		} {
			require.True(t, apierrors.IsForbidden(invitee.List(ctx, list, client.InNamespace(ns))), "%T in %q", list, ns)
		}
	}
	for _, o := range []client.Object{&corev1.ServiceAccount{}, &rbacv1.Role{}} {
		key := client.ObjectKey{Namespace: d.NS, Name: broker.MemberName("west")}
		require.True(t, apierrors.IsForbidden(invitee.Get(ctx, key, o)), "the identity of another cluster: %T", o)
	}
	for _, sets := range [][]string{{"b"}, {"default"}, {"a", "b"}} {
		_, err := broker.AddMember(ctx, invitee, d.NS, "east", "uid-east", broker.Reservation{Sets: sets})
		require.True(t, apierrors.IsForbidden(err), "%v: %v", sets, err)
	}
	_, err := broker.AddMember(ctx, invitee, d.NS, "east", "uid-east", broker.Reservation{Sets: []string{"a"}})
	require.NoError(t, err)

	// In its own clusterset, it gives rights to that cluster only, and to itself none.
	role := &rbacv1.Role{}
	require.NoError(t, d.Admin.Get(ctx, client.ObjectKey{Namespace: a, Name: broker.MemberName("east")}, role))
	owner := []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role", Name: role.Name, UID: role.UID}}
	for name, o := range map[string]client.Object{
		"another cluster's place": &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "cluster-west"}, Rules: role.Rules},
		"more rights in its own":  &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "cluster-east-2"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}},
		"a token": &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "cluster-east-token-invited", OwnerReferences: owner},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"cluster-east-token-invited"}, Verbs: []string{"get"}}}},
		"another cluster's rights": &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "cluster-west-" + broker.MemberRoleName, OwnerReferences: owner},
			RoleRef: rbacv1.RoleRef{Kind: "Role", Name: broker.MemberRoleName, APIGroup: rbacv1.GroupName}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "cluster-west", Namespace: d.NS}}},
		"its own rights": &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "cluster-east-" + broker.MemberRoleName + "-2", OwnerReferences: owner},
			RoleRef: rbacv1.RoleRef{Kind: "Role", Name: broker.MemberRoleName, APIGroup: rbacv1.GroupName}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: broker.InviteeName("east"), Namespace: d.NS}}},
	} {
		t.Run(name, func(t *testing.T) {
			err := invitee.Create(ctx, o)
			require.True(t, apierrors.IsForbidden(err), "%v", err)
		})
	}
}

// Who is invited signs its grant with any serial until the invitation expires. When the administrator changes the
// clustersets of the cluster, the new grant is of today, so that a later revocation covers it, and the grant of the
// cluster that joins next with the ID is newer.
func TestHostileInviteeDatesTheNextGrant(t *testing.T) {
	now := time.UnixMilli(brokertest.Grant("east").Serial + 1000)
	invitee := brokertest.Key("invitee")
	invitation, err := brokertest.Administrator().SignInvitation(trust.Invitation{
		Key: invitee.Public(), Cluster: "east", Gateways: trust.MaxGateways, Sets: []string{"a", "default"}, Serial: now.UnixMilli() - 500, Expires: now.Add(broker.MaxTokenTTL).UnixMilli(),
	})
	require.NoError(t, err)
	g := brokertest.Grant("east")
	g.Sets, g.Serial = []string{"a", "default"}, now.Add(broker.MaxTokenTTL).UnixMilli()
	token, err := invitee.SignInvitedGrant(g, invitation)
	require.NoError(t, err)
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "base", Name: broker.MemberName("east"),
		Annotations: map[string]string{broker.ClusterUIDAnnotation: g.UID, submarinerv1.GrantAnnotation: token}}}
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(sa).Build()

	renewed, err := broker.ChangeSets(t.Context(), c, "base", []string{"default", "a"}, broker.SetChange{Cluster: "east", Remove: []string{"a"}}, broker.Reservation{}, brokertest.Administrator(), now)
	require.NoError(t, err)
	require.Equal(t, []string{"default"}, renewed.Sets)
	old, err := brokertest.Administrator().Public().Grant(token)
	require.NoError(t, err)
	require.Positive(t, renewed.Compare(old), "members follow the new grant")
	require.True(t, trust.Revocation{Cluster: "east", Serial: now.Add(time.Second).UnixMilli()}.Revokes(renewed), "a revocation of a second later")
	again, err := broker.ChangeSets(t.Context(), c, "base", []string{"default", "a"}, broker.SetChange{Cluster: "east", Remove: []string{"a"}}, broker.Reservation{}, brokertest.Administrator(), now.Add(-time.Hour))
	require.NoError(t, err)
	require.Positive(t, again.Compare(renewed), "with a clock that is behind")
}

// A member that publishes no grant, or a grant of its own making, does not keep its rights in a clusterset by that.
func TestHostileMemberPublishesNoGrant(t *testing.T) {
	for name, token := range map[string]string{"none": "", "forged": "a.b.c"} {
		t.Run(name, func(t *testing.T) {
			scheme, err := kube.NewScheme()
			require.NoError(t, err)
			sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "base", Name: broker.MemberName("east")}}
			published := brokertest.Cluster("base-a", "east")
			brokertest.Annotate(published, submarinerv1.GrantAnnotation, token)
			rights := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "base-a", Name: sa.Name + "-" + broker.MemberRoleName}}
			place := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "base-a", Name: sa.Name}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(sa, published, rights, place).Build()

			_, err = broker.ChangeSets(t.Context(), c, "base", []string{"default", "a"}, broker.SetChange{Cluster: "east", Remove: []string{"a"}}, broker.Reservation{}, brokertest.Administrator(), time.Now())
			require.ErrorContains(t, err, "cluster east has no rights and no objects in clusterset a any more, but its grant is not renewed: ")
			require.ErrorContains(t, err, "subctl revoke east")
			for _, o := range []client.Object{published, rights, place} {
				require.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(o), o)), "%T", o)
			}
		})
	}
}
