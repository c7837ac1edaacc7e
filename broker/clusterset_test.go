package broker_test

import (
	"fmt"
	"slices"
	"strings"
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
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

// The holder of a join file for one cluster and one clusterset joins it there, and reads, binds and
// joins nowhere else.
func TestHostileInviteeOfAClusterSet(t *testing.T) {
	d := &deployed{brokertest.Deploy(t, kubetest.Shared(t), "a", "b")}
	ctx := t.Context()
	d.Join(t, "west", "uid-west")
	invitee := d.invitee(t, "east", "a")
	a := broker.NamespaceIn(d.NS, "a")
	b := broker.NamespaceIn(d.NS, "b")

	for _, ns := range []string{d.NS, b, ""} {
		for _, list := range []client.ObjectList{
			&submarinerv1.ClusterList{},
			&submarinerv1.EndpointList{},
			&corev1.ServiceAccountList{},
			&corev1.SecretList{},
			&corev1.ConfigMapList{},
			&rbacv1.RoleBindingList{},
		} {
			require.True(t, apierrors.IsForbidden(invitee.List(ctx, list, client.InNamespace(ns))), "%T in %q", list,
				ns)
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
	owner := []metav1.OwnerReference{
		{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role", Name: role.Name, UID: role.UID},
	}
	for name, o := range map[string]client.Object{
		"another cluster's place": &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "cluster-west"},
			Rules:      role.Rules,
		},
		"more rights in its own": &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "cluster-east-2"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
		},
		"a token": &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "cluster-east-token-invited", OwnerReferences: owner},
			Rules: []rbacv1.PolicyRule{
				{
					APIGroups:     []string{""},
					Resources:     []string{"secrets"},
					ResourceNames: []string{"cluster-east-token-invited"},
					Verbs:         []string{"get"},
				},
			},
		},
		"another cluster's rights": &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       a,
				Name:            "cluster-west-" + broker.MemberRoleName,
				OwnerReferences: owner,
			},
			RoleRef:  rbacv1.RoleRef{Kind: "Role", Name: broker.MemberRoleName, APIGroup: rbacv1.GroupName},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "cluster-west", Namespace: d.NS}},
		},
		"its own rights": &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       a,
				Name:            "cluster-east-" + broker.MemberRoleName + "-2",
				OwnerReferences: owner,
			},
			RoleRef:  rbacv1.RoleRef{Kind: "Role", Name: broker.MemberRoleName, APIGroup: rbacv1.GroupName},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: broker.InviteeName("east"), Namespace: d.NS}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := invitee.Create(ctx, o)
			require.True(t, apierrors.IsForbidden(err), "%v", err)
		})
	}
}

// A join file gives no cluster the rights of a member where it is not invited, nor where the
// administrator has removed the cluster since: neither of its clusterset, nor of the base
// namespace, which has its identity.
func TestHostileInviteeEntersAgain(t *testing.T) {
	d := &deployed{brokertest.Deploy(t, kubetest.Shared(t), "a")}
	ctx := t.Context()
	a := broker.NamespaceIn(d.NS, "a")
	bind := func(invitee client.Client, id string) error {
		sa := &corev1.ServiceAccount{}
		require.NoError(t, d.Admin.Get(ctx, client.ObjectKey{Namespace: d.NS, Name: broker.MemberName(id)}, sa))
		return invitee.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: d.NS, Name: sa.Name + "-" + broker.MemberRoleName,
				OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "ServiceAccount", Name: sa.Name, UID: sa.UID},
				},
			},
			RoleRef:  rbacv1.RoleRef{Kind: "Role", Name: broker.MemberRoleName, APIGroup: rbacv1.GroupName},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: sa.Name, Namespace: d.NS}},
		})
	}
	invitee := d.invitee(t, "east", "a")
	_, err := broker.AddMember(ctx, invitee, d.NS, "east", "uid-east", broker.Reservation{Sets: []string{"a"}})
	require.NoError(t, err)
	require.True(t, apierrors.IsForbidden(bind(invitee, "east")), "it is not invited to clusterset default")

	remove := func(id, set string) {
		sa := &corev1.ServiceAccount{}
		require.NoError(t, d.Admin.Get(ctx, client.ObjectKey{Namespace: d.NS, Name: broker.MemberName(id)}, sa))
		brokertest.Annotate(sa, submarinerv1.GrantAnnotation, brokertest.IdentityIn(id, set).Grant)
		require.NoError(t, d.Admin.Update(ctx, sa))
		_, err := broker.ChangeSets(ctx, d.Admin, d.NS, []string{"default", "a"},
			broker.SetChange{Cluster: id, Remove: []string{set}}, broker.Reservation{}, brokertest.Administrator(),
			time.Now())
		require.NoError(t, err)
	}
	remove("east", "a")
	brokertest.Eventually(t, func() bool {
		return apierrors.IsForbidden(invitee.List(ctx, &submarinerv1.ClusterList{}, client.InNamespace(a)))
	})
	_, err = broker.AddMember(ctx, invitee, d.NS, "east", "uid-east", broker.Reservation{Sets: []string{"a"}})
	require.True(t, apierrors.IsForbidden(err), "%v", err)

	invitee = d.invitee(t, "north", "default")
	_, err = broker.AddMember(ctx, invitee, d.NS, "north", "uid-north", broker.Reservation{})
	require.NoError(t, err)
	remove("north", "default")
	brokertest.Eventually(t, func() bool {
		return apierrors.IsForbidden(invitee.List(ctx, &submarinerv1.ClusterList{}, client.InNamespace(d.NS)))
	})
	require.True(t, apierrors.IsForbidden(bind(invitee, "north")), "it was removed from clusterset default")
}

// Who is invited signs its grant with any serial until the invitation expires. When the
// administrator changes the clustersets of the cluster, the new grant is of today, so that a later
// revocation covers it, and the grant of the cluster that joins next with the ID is newer.
func TestHostileInviteeDatesTheNextGrant(t *testing.T) {
	now := time.UnixMilli(brokertest.Grant("east").Serial + 1000)
	invitee := brokertest.Key("invitee")
	invitation, err := brokertest.Administrator().SignInvitation(trust.Invitation{
		Key:      invitee.Public(),
		Cluster:  "east",
		Gateways: trust.MaxGateways,
		Sets:     []string{"a", "default"},
		Serial:   now.UnixMilli() - 500,
		Expires:  now.Add(broker.MaxTokenTTL).UnixMilli(),
	})
	require.NoError(t, err)
	g := brokertest.Grant("east")
	g.Sets = []string{"a", "default"}
	g.Serial = now.Add(broker.MaxTokenTTL).UnixMilli()
	token, err := invitee.SignInvitedGrant(g, invitation)
	require.NoError(t, err)
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: "base", Name: broker.MemberName("east"),
		Annotations: map[string]string{broker.ClusterUIDAnnotation: g.UID, submarinerv1.GrantAnnotation: token},
	}}
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(sa).Build()

	renewed, err := broker.ChangeSets(t.Context(), c, "base", []string{"default", "a"},
		broker.SetChange{Cluster: "east", Remove: []string{"a"}}, broker.Reservation{}, brokertest.Administrator(), now)
	require.NoError(t, err)
	require.Equal(t, []string{"default"}, renewed.Sets)
	old, err := brokertest.Administrator().Public().Grant(token)
	require.NoError(t, err)
	require.Positive(t, renewed.Compare(old), "members follow the new grant")
	require.True(t, trust.Revocation{Cluster: "east", Serial: now.Add(time.Second).UnixMilli()}.Revokes(renewed),
		"a revocation of a second later")
	again, err := broker.ChangeSets(t.Context(), c, "base", []string{"default", "a"},
		broker.SetChange{Cluster: "east", Remove: []string{"a"}}, broker.Reservation{}, brokertest.Administrator(),
		now.Add(-time.Hour))
	require.NoError(t, err)
	require.Positive(t, again.Compare(renewed), "with a clock that is behind")
}

// A member that publishes no grant, or a grant of its own making, does not keep its rights in a
// clusterset by that.
func TestHostileMemberPublishesNoGrant(t *testing.T) {
	for name, token := range map[string]string{"none": "", "forged": "a.b.c"} {
		t.Run(name, func(t *testing.T) {
			scheme, err := kube.NewScheme()
			require.NoError(t, err)
			sa := &corev1.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{Namespace: "base", Name: broker.MemberName("east")},
			}
			published := brokertest.Cluster("base-a", "east")
			brokertest.Annotate(published, submarinerv1.GrantAnnotation, token)
			rights := &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: "base-a", Name: sa.Name + "-" + broker.MemberRoleName},
				RoleRef:    rbacv1.RoleRef{Name: broker.MemberRoleName},
			}
			place := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "base-a", Name: sa.Name}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(sa, published, rights, place).Build()

			now := time.Now()
			_, err = broker.ChangeSets(t.Context(), c, "base", []string{"default", "a"},
				broker.SetChange{Cluster: "east", Remove: []string{"a"}}, broker.Reservation{},
				brokertest.Administrator(), now)
			require.ErrorContains(t, err,
				"cluster east has no rights and no objects in clusterset a any more, but its grant is not renewed: ")
			require.ErrorContains(t, err, "subctl revoke east")
			for _, o := range []client.Object{rights, place} {
				require.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(o), o)), "%T", o)
			}
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(published), published))
			require.True(t, exchange.IsRemoved(published),
				"the members remember its removal: it may have hidden a grant")
			removal, err := brokertest.Administrator().Public().Revocation(
				published.Annotations[submarinerv1.RevocationAnnotation])
			require.NoError(t, err)
			require.Equal(t, trust.Revocation{Cluster: "east", Set: "a", Serial: now.UnixMilli()}, removal)

			t.Log("and its removal stands when it shows a grant that it has hidden")
			hidden := brokertest.Cluster("base", "east")
			brokertest.Annotate(hidden, submarinerv1.GrantAnnotation,
				brokertest.IdentityIn("east", "default", "a", "c").Grant)
			require.NoError(t, c.Create(t.Context(), hidden))
			renewed, err := broker.ChangeSets(t.Context(), c, "base", []string{"default", "a", "c"},
				broker.SetChange{Cluster: "east", Remove: []string{"c"}}, broker.Reservation{},
				brokertest.Administrator(), now)
			require.NoError(t, err)
			require.Equal(t, []string{"default"}, renewed.Sets)
		})
	}
}

// The rights of the holder of a join file, by its Roles: it may bind the Role of all members, with
// which a cluster enters a clusterset, only in the clustersets of the file, and until the cluster
// is removed from them.
func TestHostileInviteeBindsMembers(t *testing.T) {
	const base, a = submarinerv1.BrokerNamespace, submarinerv1.BrokerNamespace + "-a"
	for _, sets := range [][]string{{"a"}, {"default"}, {"a", "default"}} {
		t.Run(strings.Join(sets, ","), func(t *testing.T) {
			scheme, err := kube.NewScheme()
			require.NoError(t, err)
			c := fake.NewClientBuilder().WithScheme(scheme).Build()
			b := &v1alpha1.Broker{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BrokerName, Namespace: base}}
			objects, _ := broker.NewSets(t.Context(), c, b, []string{"default", "a"}) // the client has no discovery
			for _, o := range objects {
				require.NoError(t, c.Create(t.Context(), o))
			}
			for _, o := range []client.Object{
				&corev1.Namespace{
					ObjectMeta: metav1.ObjectMeta{
						Name:   base,
						Labels: map[string]string{submarinerv1.ClusterSetLabel: "default"},
					},
				},
				&corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: base, Name: "kube-root-ca.crt"},
					Data:       map[string]string{corev1.ServiceAccountRootCAKey: "a certificate"},
				},
				&corev1.ServiceAccount{
					ObjectMeta: metav1.ObjectMeta{
						Namespace: base,
						Name:      broker.MemberName("east"),
						Annotations: map[string]string{
							submarinerv1.GrantAnnotation: brokertest.IdentityIn("east", "a", "default").Grant,
						},
					},
				},
			} {
				require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), o)))
			}
			_, _ = broker.InviteCluster(
				t.Context(),
				c,
				b,
				broker.Invitation{
					URL:           "https://hub",
					PSK:           make(broker.Secret, 48),
					Administrator: brokertest.Administrator(),
					TTL:           time.Hour,
				},
				trust.Invitation{Cluster: "east", Gateways: 1, Sets: sets},
				time.Now(),
			) // the client makes no tokens
			for ns, set := range map[string]string{base: "default", a: "a"} {
				require.Equal(t, slices.Contains(sets, set), mayBind(t, c, ns, broker.MemberRoleName), "members in %s",
					ns)
			}
			require.True(
				t,
				mayBind(t, c, base, broker.MemberName("east")) &&
					mayBind(t, c, base, broker.MemberName("east")+"-token-invited"),
				"its identity and its token",
			)
			require.False(t, mayBind(t, c, base, broker.MemberName("west")) || mayBind(t, c, base, broker.JoinerName))

			_, err = broker.ChangeSets(t.Context(), c, base, []string{"default", "a"},
				broker.SetChange{Cluster: "east", Remove: sets}, broker.Reservation{}, brokertest.Administrator(),
				time.Now())
			require.NoError(t, err)
			require.False(t, mayBind(t, c, base, broker.MemberRoleName) || mayBind(t, c, a, broker.MemberRoleName),
				"after its removal")
		})
	}
}

// mayBind reports whether the holder of the join file for east may bind a Role in a namespace.
func mayBind(t *testing.T, c client.Client, ns, role string) bool {
	t.Helper()
	bindings := &rbacv1.RoleBindingList{}
	require.NoError(t, c.List(t.Context(), bindings, client.InNamespace(ns)))
	return slices.ContainsFunc(bindings.Items, func(b rbacv1.RoleBinding) bool {
		bound := &rbacv1.Role{}
		if b.Subjects[0].Name != broker.InviteeName("east") {
			return false
		}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: b.RoleRef.Name}, bound))
		return slices.ContainsFunc(bound.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Verbs, "bind") &&
				(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, role))
		})
	})
}

// A cluster may be in as many clustersets as a grant may list: its own Cluster lists all of them,
// and so does the status of a cable policy that it shares with all.
func TestSchemaTakesAllSetsOfAGrant(t *testing.T) {
	server := kubetest.Shared(t)
	server.InstallCRDs(t)
	c := server.Client(t)
	ns := server.Namespace(t, "hub")
	sets := make([]string, trust.MaxSets)
	for i := range sets {
		sets[i] = fmt.Sprintf("%041d", i) // as long as the name of a clusterset may be
	}
	hub := brokertest.Cluster(ns, "hub")
	hub.Spec.ClusterSets = sets
	hub.Annotations = map[string]string{
		submarinerv1.ClusterSetsAnnotation: strings.Join(sets, ","),
		submarinerv1.PoliciesAnnotation:    strings.Join(sets, ","),
	}
	require.NoError(t, c.Create(t.Context(), hub))
	p := brokertest.Policy(ns, "hub", "shared")
	require.NoError(t, c.Create(t.Context(), p))
	p.Status.ClusterSets = sets
	require.NoError(t, c.Status().Update(t.Context(), p))
}

// Rights are bound to the name of a service account. A cluster that deletes no more than its
// account leaves its rights to the next cluster with its ID, which must not get them with an
// invitation to other clustersets.
func TestHostileMemberLeavesItsRights(t *testing.T) {
	const base, a = submarinerv1.BrokerNamespace, submarinerv1.BrokerNamespace + "-a"
	for name, account := range map[string]bool{"it has deleted its account": false, "it is a member": true} {
		t.Run(name, func(t *testing.T) {
			scheme, err := kube.NewScheme()
			require.NoError(t, err)
			member := broker.MemberName("east")
			rights := &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: member + "-" + broker.MemberRoleName},
			}
			own := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: member}}
			place := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: member}}
			ca := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: base, Name: "kube-root-ca.crt"},
				Data:       map[string]string{corev1.ServiceAccountRootCAKey: "a certificate"},
			}
			objects := []client.Object{rights, own, place, ca}
			for ns, set := range map[string]string{base: "default", a: "a"} {
				objects = append(
					objects,
					&corev1.Namespace{
						ObjectMeta: metav1.ObjectMeta{
							Name:   ns,
							Labels: map[string]string{submarinerv1.ClusterSetLabel: set},
						},
					},
				)
			}
			if account {
				objects = append(objects,
					&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: base, Name: member}})
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
			b := &v1alpha1.Broker{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BrokerName, Namespace: base}}
			_, _ = broker.InviteCluster(
				t.Context(),
				c,
				b,
				broker.Invitation{Administrator: brokertest.Administrator(), TTL: time.Hour},
				// the client makes no tokens
				trust.Invitation{Cluster: "east", Gateways: 1, Sets: []string{"default"}},
				time.Now(),
			)
			for _, o := range []client.Object{rights, own, place} {
				require.Equal(t, account, c.Get(t.Context(), client.ObjectKeyFromObject(o), o) == nil, "%T %s", o,
					o.GetName())
			}
		})
	}
}

// What the administrator signs is later than what was signed before, on whichever machine: with a
// clock that is ahead or behind.
func TestClocks(t *testing.T) {
	d := deployReal(t, kubetest.Shared(t), "a")
	ctx := t.Context()
	administrator := brokertest.Administrator().Public()
	sets := []string{"default", "a"}
	now := time.Now()
	ahead := now.Add(time.Hour)
	d.Join(t, "east", "uid-east")
	sa := &corev1.ServiceAccount{}
	require.NoError(t, d.Admin.Get(ctx, client.ObjectKey{Namespace: d.NS, Name: broker.MemberName("east")}, sa))
	g := brokertest.Grant("east")
	g.UID = "uid-east"
	g.Serial = ahead.UnixMilli()
	brokertest.Annotate(sa, submarinerv1.GrantAnnotation, brokertest.Granted(g))
	require.NoError(t, d.Admin.Update(ctx, sa))

	require.NoError(t, broker.Revoke(ctx, d.Admin, d.NS, sets, "east", brokertest.Administrator(), now))
	revoked := &submarinerv1.Cluster{}
	require.NoError(t, d.Admin.Get(ctx, client.ObjectKey{Namespace: d.NS, Name: "east"}, revoked))
	r, err := administrator.Revocation(revoked.Annotations[submarinerv1.RevocationAnnotation])
	require.NoError(t, err)
	require.True(t, r.Revokes(g), "a grant that was signed with a clock that is ahead")

	f, err := d.tryInvite(ctx, t, d.Admin, "east", "default")
	require.NoError(t, err)
	i, err := f.Invited()
	require.NoError(t, err)
	require.Greater(t, i.Serial, r.Serial, "an invitation after the revocation")
	require.Equal(t, broker.MinTokenTTL.Milliseconds(), i.Expires-i.Serial)
	invited := brokertest.Grant("east")
	invited.UID = "uid-east"
	invited.Serial = i.Serial
	invited.Gateways = 1
	invited.Sets = []string{"default"}
	_, err = f.SignGrant(invited)
	require.NoError(t, err)

	t.Log("a removal of a cluster without a grant, and a grant after it")
	d.Join(t, "west", "uid-west")
	_, err = broker.ChangeSets(ctx, d.Admin, d.NS, sets, broker.SetChange{Cluster: "west", Remove: []string{"default"}},
		broker.Reservation{}, brokertest.Administrator(), ahead)
	require.ErrorContains(t, err, "its grant is not renewed")
	require.NoError(t, d.Admin.Get(ctx, client.ObjectKey{Namespace: d.NS, Name: broker.MemberName("west")}, sa))
	brokertest.Annotate(sa, submarinerv1.GrantAnnotation, brokertest.IdentityIn("west", "default").Grant)
	require.NoError(t, d.Admin.Update(ctx, sa))
	renewed, err := broker.ChangeSets(ctx, d.Admin, d.NS, sets, broker.SetChange{Cluster: "west", Add: []string{"a"}},
		broker.Reservation{}, brokertest.Administrator(), now)
	require.NoError(t, err)
	require.Greater(t, renewed.Serial, ahead.UnixMilli())
}
