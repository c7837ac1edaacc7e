package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/kubetest"
)

func TestJoinAndLeave(t *testing.T) {
	d := deploy(t, kubetest.Shared(t))
	joiner, file := d.Joiner(t)
	at, ok := file.Expires()
	require.True(t, ok)
	require.WithinDuration(t, time.Now().Add(broker.MinTokenTTL), at, time.Minute)

	cred, err := broker.AddMember(t.Context(), joiner, d.NS, "east", "uid-1", broker.Reservation{})
	require.NoError(t, err)
	again, err := broker.AddMember(t.Context(), joiner, d.NS, "east", "uid-1", broker.Reservation{})
	require.NoError(t, err)
	require.NotEqual(t, cred.Token, again.Token, "it read what the first join left")
	for _, c := range []*broker.Credentials{cred, again} {
		member := kubetest.Client(t, d.Server.As(string([]byte(c.Token))))
		require.NoError(t, member.List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(d.NS)))
	}

	_, err = broker.AddMember(t.Context(), joiner, d.NS, "east", "uid-2", broker.Reservation{})
	var taken *broker.TakenError
	require.ErrorAs(t, err, &taken)
	require.ErrorContains(t, err, `cluster ID "east" is taken: another cluster joined with it at`)
	require.ErrorContains(t, err, "free it with: subctl revoke east --namespace "+d.NS)

	member := brokertest.Filling(kubetest.Client(t, d.Server.As(string([]byte(cred.Token)))))
	require.NoError(t, member.Create(t.Context(), cluster(d.NS, "east")))
	require.NoError(t, member.Create(t.Context(), brokertest.InSlot(endpoint(d.NS, "east", "192-0-2-1"), "east", 0)))
	require.NoError(t, member.Create(t.Context(), brokertest.InSlot(shared(d.NS, "east", "p"), "east", 0)))
	require.NoError(
		t,
		broker.RemoveMember(t.Context(), member, d.NS, []string{submarinerv1.DefaultClusterSet}, "east",
			brokertest.Administrator().Public()),
	)
	d.nothingLeft(t, "east")
	require.Eventually(t, func() bool {
		return errors.Is(
			broker.RemoveMember(t.Context(), member, d.NS, []string{submarinerv1.DefaultClusterSet}, "east",
				brokertest.Administrator().Public()),
			broker.ErrNotMember,
		)
	}, patience, 100*time.Millisecond)

	// At once, while the broker may still be collecting what the old member had.
	cred, err = broker.AddMember(t.Context(), joiner, d.NS, "east", "uid-2", broker.Reservation{})
	require.NoError(t, err)
	time.Sleep(time.Second) // long enough for a collection that must not happen
	member = brokertest.Filling(kubetest.Client(t, d.Server.As(string([]byte(cred.Token)))))
	require.NoError(t, member.Create(t.Context(), cluster(d.NS, "east")))
	require.NoError(
		t,
		broker.RemoveMember(t.Context(), member, d.NS, []string{submarinerv1.DefaultClusterSet}, "east",
			brokertest.Administrator().Public()),
	)
}

// nothingLeft waits until the broker holds nothing of a cluster.
func (d *deployed) nothingLeft(t *testing.T, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var found int
		for _, list := range []client.ObjectList{
			&corev1.ServiceAccountList{},
			&corev1.SecretList{},
			&rbacv1.RoleList{},
			&rbacv1.RoleBindingList{},
			&submarinerv1.ClusterList{},
			&submarinerv1.EndpointList{},
			&v1alpha1.CablePoliciesList{},
			&v1alpha1.ExportedServicesList{},
		} {
			require.NoError(t, d.Admin.List(t.Context(), list, client.InNamespace(d.NS)))
			found += countNamed(t, list, id)
		}
		return found == 0
	}, patience, 50*time.Millisecond)
}

func TestTwoClustersClaimOneID(t *testing.T) {
	d := deploy(t, kubetest.Shared(t), "a")
	joiner, _ := d.Joiner(t)
	const claims = 8
	errs := make([]error, claims)
	var wg sync.WaitGroup
	for i := range claims {
		wg.Go(func() {
			sets := []string{"default", "a"}[i%2:][:1] // clusters of different clustersets have different IDs, too
			_, errs[i] = broker.AddMember(t.Context(), joiner, d.NS, "west", fmt.Sprintf("uid-%d", i),
				broker.Reservation{Sets: sets})
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		var taken *broker.TakenError
		if err == nil {
			won++
		} else {
			require.ErrorAs(t, err, &taken)
		}
	}
	require.Equal(t, 1, won)
}

func TestBadClusterIDs(t *testing.T) {
	for _, id := range []string{"", "Prod_1", "-a", "a-", "a.b", "a:b", string(make([]byte, 64))} {
		_, err := broker.AddMember(t.Context(), nil, "ns", id, "uid", broker.Reservation{})
		require.ErrorContains(t, err, fmt.Sprintf("cluster ID %q is not a DNS-1123 label", id))
		require.Error(
			t,
			broker.RemoveMember(t.Context(), nil, "ns", []string{submarinerv1.DefaultClusterSet}, id,
				brokertest.Administrator().Public()),
		)
	}
	for _, id := range lookalikes {
		_, err := broker.AddMember(t.Context(), nil, "ns", id, "uid", broker.Reservation{})
		require.ErrorContains(t, err,
			fmt.Sprintf("cluster ID %q ends like the names of objects on a broker: choose another ID", id))
	}
}

// lookalikes are IDs with which the name of an account would be the name of an object of cluster x.
var lookalikes = []string{"x-" + broker.MemberRoleName, "x-token-invited", "x-token-0123456789abcdef0123456789abcdef"}

// A holder of a file for one cluster makes one object of each name that a member needs, however
// often it asks. So it stores few of them, and others can join.
func TestHostileInviteeFillsTheQuota(t *testing.T) {
	d := deploy(t, kubetest.Shared(t))
	invitee := d.invitee(t, "east", "default")
	general, _ := d.Joiner(t)
	first, err := broker.AddMember(t.Context(), invitee, d.NS, "east", "uid-east", broker.Reservation{})
	require.NoError(t, err)
	again, err := broker.AddMember(t.Context(), invitee, d.NS, "east", "uid-east", broker.Reservation{})
	require.NoError(t, err)
	require.True(t, bytes.Equal(first.Token, again.Token), "a second token")

	secret := d.token(t, "east")
	role := &rbacv1.Role{}
	binding := &rbacv1.RoleBinding{}
	require.NoError(t, d.Admin.Get(t.Context(), client.ObjectKeyFromObject(secret), role))
	require.NoError(t, d.Admin.Get(t.Context(), client.ObjectKeyFromObject(secret), binding))
	for i := range 20 {
		for _, ends := range []string{
			fmt.Sprintf("-token-%032x", i),
			fmt.Sprintf("-token-invited-%d", i),
			fmt.Sprintf("-%d", i),
		} {
			for _, o := range []client.Object{secret, role, binding} {
				o = o.DeepCopyObject().(client.Object)
				o.SetName("cluster-east" + ends)
				o.SetResourceVersion("")
				switch o := o.(type) {
				case *corev1.Secret:
					o.Data = nil
				case *rbacv1.Role:
					o.Rules[0].ResourceNames[0] = o.Name
				case *rbacv1.RoleBinding:
					o.RoleRef.Name = o.Name
				}
				requireRefused(t, invitee.Create(t.Context(), o))
			}
		}
	}
	counts := map[string]int{}
	for _, list := range []client.ObjectList{
		&corev1.ServiceAccountList{},
		&corev1.SecretList{},
		&rbacv1.RoleList{},
		&rbacv1.RoleBindingList{},
	} {
		require.NoError(t, d.Admin.List(t.Context(), list, client.InNamespace(d.NS)))
		counts[fmt.Sprintf("%T", list)] = countNamed(t, list, "east")
	}
	require.Equal(t,
		map[string]int{"*v1.ServiceAccountList": 1, "*v1.SecretList": 1, "*v1.RoleList": 2, "*v1.RoleBindingList": 3},
		counts)

	limit(t, d, "2", "count/secrets")
	_, err = broker.AddMember(t.Context(), general, d.NS, "west", "uid-west", broker.Reservation{})
	require.NoError(t, err, "another cluster can join")
}

// The token of a join file can make members, and nothing else.
func TestHostileJoiner(t *testing.T) {
	d := deploy(t, kubetest.Shared(t))
	joiner, _ := d.Joiner(t)
	_, err := broker.AddMember(t.Context(), joiner, d.NS, "east", "uid-1", broker.Reservation{})
	require.NoError(t, err)
	meta := func(name string) metav1.ObjectMeta { return owned(d.NS, name, "cluster-east") }
	token := func(name, sa string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: meta(name), Type: corev1.SecretTypeServiceAccountToken}
		s.Annotations = map[string]string{corev1.ServiceAccountNameKey: sa}
		return s
	}
	bind := func(role, sa string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{
			ObjectMeta: meta(
				bindingName(role, sa)),
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: sa, Namespace: d.NS}},
		}
	}
	const hex32 = "0123456789abcdef0123456789abcdef"
	role := func(name, of string, verbs ...string) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: meta(name), Rules: []rbacv1.PolicyRule{
			{
				APIGroups:     []string{""},
				Resources:     []string{"serviceaccounts"},
				ResourceNames: []string{of},
				Verbs:         verbs,
			},
		}}
	}
	for name, obj := range map[string]client.Object{
		"a token of its own":             token(broker.JoinerName+"-token", broker.JoinerName),
		"a token by another name":        token("more", "cluster-east"),
		"a token by a name to guess":     token("cluster-east-token", "cluster-east"),
		"a token by a short name":        token("cluster-east-token-"+hex32[1:], "cluster-east"),
		"a token by a long name":         token("cluster-east-token-"+hex32+"0", "cluster-east"),
		"a token named after another":    token("cluster-west-token-"+hex32, "cluster-east"),
		"a token of the default account": token("default-token", "default"),
		"a secret":                       &corev1.Secret{ObjectMeta: meta("s")},
		"another account":                &corev1.ServiceAccount{ObjectMeta: meta("x")},
		"an account of no cluster":       &corev1.ServiceAccount{ObjectMeta: meta("cluster-x.y")},
		"rights of its own":              bind(broker.JoinerName, "cluster-east"),
		"rights for another account":     bind(broker.MemberRoleName, "default"),
		"a role over another":            role("cluster-west", "cluster-east", "delete"),
		"a role to make accounts":        role("cluster-west", "cluster-west", "create"),
		"a cluster":                      cluster(d.NS, "east"),
	} {
		t.Run("create "+name, func(t *testing.T) {
			require.True(t, apierrors.IsForbidden(joiner.Create(t.Context(), obj)))
		})
	}
	sa := &corev1.ServiceAccount{ObjectMeta: meta("cluster-east")}
	require.True(t, apierrors.IsForbidden(joiner.Delete(t.Context(), sa)))
	require.True(t, apierrors.IsForbidden(joiner.Update(t.Context(), sa)))
	d.joinerFindsNoToken(t, joiner, "east")
	require.NoError(t, joiner.Create(t.Context(), role("cluster-west", "cluster-west", "delete")))
}

// What a join file can read and make, and what it cannot: the general file, and the file for
// cluster east.
func TestHostileJoinFiles(t *testing.T) {
	d := deploy(t, kubetest.Shared(t), "prod")
	general, _ := d.Joiner(t)
	invitee := d.invitee(t, "east", "default")
	_, err := broker.AddMember(t.Context(), general, d.NS, "west", "uid-west", broker.Reservation{})
	require.NoError(t, err)
	cred, err := broker.AddMember(t.Context(), invitee, d.NS, "east", "uid-east", broker.Reservation{})
	require.NoError(t, err, "what it is for")
	require.NotEmpty(t, cred.Token)
	others := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "database", Namespace: d.NS},
		StringData: map[string]string{"password": "x"},
	}
	require.NoError(t, d.Admin.Create(t.Context(), others))

	const hex32 = "0123456789abcdef0123456789abcdef"
	meta := func(name string) metav1.ObjectMeta { return owned(d.NS, name, "cluster-east") }
	const invited = "invited"
	token := hex32 // how the names of tokens end that a file may make
	read := func(name string, verbs ...string) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: meta("cluster-east-token-" + token), Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{name}, Verbs: verbs},
		}}
	}
	bind := func(role, account string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{
			ObjectMeta: meta(
				bindingName(role, account)),
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: d.NS}},
		}
	}
	foreign := func(id string) *corev1.Secret {
		s := &corev1.Secret{
			ObjectMeta: meta("cluster-" + id + "-token-" + token),
			Type:       corev1.SecretTypeServiceAccountToken,
		}
		s.Annotations = map[string]string{corev1.ServiceAccountNameKey: "cluster-" + id}
		return s
	}
	creates := func() map[string]client.Object {
		all := read("", "get")
		all.Rules[0].ResourceNames = nil
		two := read("cluster-east-token-"+token, "get")
		two.Rules = append(two.Rules,
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}})
		aggregated := read("cluster-east-token-"+token, "get")
		aggregated.Rules[0].Resources = []string{"secrets", "configmaps"}
		return map[string]client.Object{
			"a Role that reads another Secret":   read("database", "get"),
			"a Role that reads every Secret":     all,
			"a Role that lists Secrets":          read("cluster-east-token-"+token, "get", "list"),
			"a Role with a second rule":          two,
			"a Role for more than Secrets":       aggregated,
			"itself the rights of a member":      bind(broker.MemberRoleName, broker.InviteeName("east")),
			"the joiner the rights of a member":  bind(broker.MemberRoleName, broker.JoinerName),
			"a member a Role of the joiner":      bind(broker.JoinerName, "cluster-east"),
			"another account the Role of tokens": bind("cluster-east-token-"+token, "default"),
			"an invitation of its own":           &corev1.ServiceAccount{ObjectMeta: meta(broker.InviteeName("x"))},
			"an account for itself":              foreignToken(d.NS, broker.InviteeName("east")),
			"the RoleBinding of another member": named(bind(broker.MemberRoleName, "cluster-east"),
				bindingName(broker.MemberRoleName, "cluster-north")),
			"a second RoleBinding of a member": named(bind(broker.MemberRoleName, "cluster-east"), "b"),
			"another member's own RoleBinding": named(bind("cluster-east", "cluster-east"), "cluster-north"),
			"a RoleBinding of another's token": named(bind("cluster-east-token-"+token, broker.InviteeName("east")),
				"cluster-north"),
			"what remains after a revocation": ownedBy(bind("cluster-east", "cluster-east"), nil),
			"what another account owns": ownedBy(bind("cluster-east", "cluster-east"),
				owned("", "", "default").OwnerReferences),
			"a token that remains": ownedBy(foreign("east"), nil),
			"a Role that remains":  ownedBy(read("cluster-east-token-"+token, "get"), nil),
			"an account that remains": withFinalizer(
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "cluster-east", Namespace: d.NS}}),
			"a RoleBinding that remains": withFinalizer(bind("cluster-east", "cluster-east")),
			"a token with data": with(foreign("east"),
				func(o client.Object) { o.(*corev1.Secret).Data = map[string][]byte{"token": []byte("x")} }),
			"a token that is never filled in": with(foreign("east"),
				func(o client.Object) { o.(*corev1.Secret).Immutable = ptr.To(true) }),
			"a token by a name to guess": named(foreign("east"), "cluster-east-token-0"),
		}
	}
	onlyInvitee := map[string]client.Object{
		"what another member owns": ownedBy(bind("cluster-east", "cluster-east"),
			owned("", "", "cluster-west").OwnerReferences),
		"another member":            &corev1.ServiceAccount{ObjectMeta: meta("cluster-north")},
		"a token of another member": named(foreign("west"), "cluster-west-token-"+invited),
		"rights for another member": bind(broker.MemberRoleName, "cluster-west"),
		"another member's Role": &rbacv1.Role{
			ObjectMeta: meta("cluster-west"),
			Rules: []rbacv1.PolicyRule{
				{
					APIGroups:     []string{""},
					Resources:     []string{"serviceaccounts"},
					ResourceNames: []string{"cluster-west"},
					Verbs:         []string{"delete"},
				},
			},
		},
		"itself another member's token": bind("cluster-west-token-"+invited, broker.InviteeName("east")),
		"rights in another clusterset": &rbacv1.RoleBinding{
			ObjectMeta: owned(d.NS+"-prod", bindingName(broker.MemberRoleName, "cluster-east"), "cluster-east"),
			RoleRef:    bind(broker.MemberRoleName, "").RoleRef,
			Subjects:   bind("", "cluster-east").Subjects,
		},
		"a member whose ID starts alike": &corev1.ServiceAccount{ObjectMeta: meta("cluster-east-b")},
		"a second token":                 named(foreign("east"), "cluster-east-token-"+hex32),
		"a Role for a second token":      named(read("cluster-east-token-"+hex32, "get"), "cluster-east-token-"+hex32),
		"a binding for a second token":   bind("cluster-east-token-"+hex32, broker.InviteeName("east")),
	}
	onlyGeneral := map[string]client.Object{
		"the token of an invited member": named(foreign("east"), "cluster-east-token-"+invited),
		"a Role that reads the invited token": named(read("cluster-east-token-"+invited, "get"),
			"cluster-east-token-"+invited),
		"itself a Role that reads that token":  bind("cluster-east-token-"+invited, broker.JoinerName),
		"a member named like a token":          &corev1.ServiceAccount{ObjectMeta: meta("cluster-a-token-" + hex32)},
		"a member named like an invited token": &corev1.ServiceAccount{ObjectMeta: meta("cluster-a-token-" + invited)},
		"a member named like a RoleBinding": &corev1.ServiceAccount{
			ObjectMeta: meta("cluster-east-" + broker.MemberRoleName),
		},
	}
	for who, c := range map[string]client.Client{"general file": general, "file for one cluster": invitee} {
		token = hex32
		if who != "general file" {
			token = invited
		}
		for name, obj := range creates() {
			t.Run(who+" makes "+name, func(t *testing.T) {
				require.True(t, apierrors.IsForbidden(c.Create(t.Context(), obj.DeepCopyObject().(client.Object))))
			})
		}
		for _, name := range []string{"database", d.token(t, "west").Name, "cluster-west-token"} {
			if name == d.token(t, "west").Name && who == "general file" {
				continue // the same credentials have made it
			}
			t.Run(who+" reads Secret "+strings.TrimRight(name, "0123456789abcdef"), func(t *testing.T) {
				err := c.Get(t.Context(), client.ObjectKey{Namespace: d.NS, Name: name}, &corev1.Secret{})
				require.True(t, apierrors.IsForbidden(err), "%v", err)
			})
		}
		t.Run(who+" lists Secrets", func(t *testing.T) {
			require.True(t, apierrors.IsForbidden(c.List(t.Context(), &corev1.SecretList{}, client.InNamespace(d.NS))))
			require.True(t,
				apierrors.IsForbidden(c.List(t.Context(), &corev1.SecretList{}, client.InNamespace(d.NS+"-prod"))))
			require.True(t, apierrors.IsForbidden(c.List(t.Context(), &rbacv1.RoleList{}, client.InNamespace(d.NS))))
		})
	}
	for name, obj := range onlyInvitee {
		t.Run("file for one cluster makes "+name, func(t *testing.T) {
			requireRefused(t, invitee.Create(t.Context(), obj))
		})
	}
	for name, obj := range onlyGeneral {
		t.Run("general file makes "+name, func(t *testing.T) {
			require.True(t, apierrors.IsForbidden(general.Create(t.Context(), obj)))
		})
	}
	t.Run("file for one cluster reads another clusterset", func(t *testing.T) {
		require.NoError(t, invitee.List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(d.NS)))
		require.True(
			t,
			apierrors.IsForbidden(
				invitee.List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(d.NS+"-prod"))),
		)
	})
	t.Run("a later file for fewer clustersets", func(t *testing.T) {
		d.invitee(t, "south", "default", "prod")
		later := d.invitee(t, "south", "default")
		require.Eventually(t, func() bool {
			return apierrors.IsForbidden(
				later.List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(d.NS+"-prod")))
		}, patience, tick)
	})
	d.voidFiles(t, general, invitee)
}

// voidFiles makes both files void.
func (d *deployed) voidFiles(t *testing.T, general, invitee client.Client) {
	t.Helper()
	refused := func(c client.Client) func() bool {
		return func() bool {
			return apierrors.IsUnauthorized(c.List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(d.NS)))
		}
	}
	require.NoError(t, broker.VoidJoinFiles(t.Context(), d.Admin, d.NS))
	require.Eventually(t, refused(general), patience, tick)
	require.NoError(t, invitee.List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(d.NS)))
	again, _ := d.Joiner(t)
	require.NoError(t, again.List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(d.NS)))
	_, err := d.tryInvite(t.Context(), t, d.Admin, "east", "no-such-set")
	require.EqualError(t, err, `the broker has no clusterset "no-such-set": the clustersets are default, prod`)
	require.NoError(t, invitee.List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(d.NS)),
		"nothing was changed")
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	_, err = d.tryInvite(ctx, t, d.Admin, "east", "default")
	require.ErrorIs(t, err, context.Canceled, "nothing was changed")
	ctx, interrupt = context.WithCancel(t.Context())
	_, err = d.tryInvite(ctx, t, interrupted{d.Admin, interrupt}, "east", "default")
	require.EqualError(t, err,
		"interrupted: earlier join files for cluster east may be void: run the same command again")
	d.invitee(t, "east", "default")
	require.Eventually(t, refused(invitee), patience, tick, "a later file replaces it")
}

// foreignToken returns a Secret with a token of an account.
func foreignToken(ns, account string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: account + "-token-0123456789abcdef0123456789abcdef", Namespace: ns},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	s.Annotations = map[string]string{corev1.ServiceAccountNameKey: account}
	return s
}

// invitee returns a client with the rights of a join file for one cluster.
func (d *deployed) invitee(t *testing.T, id string, sets ...string) client.Client {
	t.Helper()
	f, err := d.tryInvite(t.Context(), t, d.Admin, id, sets...)
	require.NoError(t, err)
	i, err := f.Invited()
	require.NoError(t, err)
	require.Equal(t, id, i.Cluster)
	require.True(t, f.AdministratorKey().IsZero())
	c := kubetest.Client(t, f.RESTConfig(false))
	require.Eventually(t, func() bool {
		return c.List(t.Context(), &submarinerv1.ClusterList{},
			client.InNamespace(broker.NamespaceIn(d.NS, sets[0]))) == nil
	}, patience, tick)
	return c
}

func (d *deployed) tryInvite(
	ctx context.Context,
	t *testing.T,
	c client.Client,
	id string,
	sets ...string,
) (*broker.JoinFile, error) {
	t.Helper()
	object := &v1alpha1.Broker{}
	require.NoError(t, d.Admin.Get(t.Context(), client.ObjectKey{Namespace: d.NS, Name: v1alpha1.BrokerName}, object))
	return broker.InviteCluster(ctx, c, object, broker.Invitation{
		URL:           d.Server.Config().Host,
		PSK:           make(broker.Secret, 48),
		Administrator: brokertest.Key("administrator"),
		TTL:           broker.MinTokenTTL,
	}, trust.Invitation{Cluster: id, Gateways: 1, Sets: sets}, time.Now())
}

// interrupted is a client whose user presses Ctrl-C when it has deleted an object.
type interrupted struct {
	client.Client
	press func()
}

func (i interrupted) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	defer i.press()
	return i.Client.Delete(ctx, obj, opts...)
}

func TestRevoke(t *testing.T) {
	d := deploy(t, kubetest.Shared(t), "prod")
	administrator := brokertest.Key("administrator")
	east := d.Join(t, "east", "uid-east")
	require.NoError(t, east.Create(t.Context(), cluster(d.NS, "east")))
	require.NoError(t, east.Create(t.Context(), brokertest.InSlot(endpoint(d.NS, "east", "192-0-2-1"), "east", 0)))
	invitee := d.invitee(t, "east", "default")
	now := time.Now()
	revoke := func() {
		t.Helper()
		require.NoError(t,
			broker.Revoke(t.Context(), d.Admin, d.NS, []string{"default", "prod"}, "east", administrator, now))
	}
	for range 2 { // it can be repeated
		revoke()
		err := d.Admin.Get(t.Context(), client.ObjectKey{Namespace: d.NS + "-prod", Name: "east"},
			&submarinerv1.Cluster{})
		require.True(t, apierrors.IsNotFound(err), "members of other clustersets do not learn that it existed: %v", err)
		c := &submarinerv1.Cluster{}
		require.NoError(t, d.Admin.Get(t.Context(), client.ObjectKey{Namespace: d.NS, Name: "east"}, c))
		require.True(t, exchange.IsRemoved(c))
		r, err := administrator.Public().Revocation(c.Annotations[submarinerv1.RevocationAnnotation])
		require.NoError(t, err)
		require.Equal(t, trust.Revocation{Cluster: "east", Serial: now.UnixMilli()}, r)
	}
	endpoints := &submarinerv1.EndpointList{}
	require.NoError(t, d.Admin.List(t.Context(), endpoints, client.InNamespace(d.NS)))
	require.Empty(t, endpoints.Items)
	for _, c := range []client.Client{east, invitee} {
		require.Eventually(t, func() bool {
			err := c.List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(d.NS))
			return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)
		}, patience, tick)
	}
	state, err := broker.Look(t.Context(), d.Admin, d.NS)
	require.NoError(t, err)
	require.NotContains(t, state.Members, "east")
	require.Eventually(t, func() bool { // it joins again, once what it had is collected
		joiner, _ := d.Joiner(t)
		_, err := broker.AddMember(t.Context(), joiner, d.NS, "east", "uid-east", broker.Reservation{})
		return err == nil
	}, patience, 100*time.Millisecond)
}

// joinerFindsNoToken has the joiner look for the token of a member.
func (d *deployed) joinerFindsNoToken(t *testing.T, joiner client.Client, id string) {
	t.Helper()
	name := d.token(t, id).Name
	require.Regexp(t, "^cluster-"+id+"-token-[0-9a-f]{32}$", name)
	for _, guess := range []string{"cluster-" + id + "-token", "cluster-" + id, "cluster-" + id + "-token-"} {
		err := joiner.Get(t.Context(), client.ObjectKey{Namespace: d.NS, Name: guess}, &corev1.Secret{})
		require.True(t, apierrors.IsForbidden(err), "%s: %v", guess, err)
	}
	require.True(t, apierrors.IsForbidden(joiner.List(t.Context(), &corev1.SecretList{}, client.InNamespace(d.NS))))
	watcher, err := client.NewWithWatch(d.joinerConfig(t), client.Options{})
	require.NoError(t, err)
	_, err = watcher.Watch(t.Context(), &corev1.SecretList{}, client.InNamespace(d.NS))
	require.True(t, apierrors.IsForbidden(err), "%v", err)

	// Whatever else it may read does not say the name.
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "cluster-" + id}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "cluster-" + id}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "cluster-" + id}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "cluster-" + id + "-" + broker.MemberRoleName}},
	} {
		require.NoError(t, joiner.Get(t.Context(), client.ObjectKey{Namespace: d.NS, Name: o.GetName()}, o))
		require.NotContains(t, fmt.Sprintf("%+v", o), name)
	}
	for _, o := range []client.ObjectList{&corev1.ConfigMapList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}} {
		require.True(t, apierrors.IsForbidden(joiner.List(t.Context(), o, client.InNamespace(d.NS))), "%T", o)
	}
	accounts := &corev1.ServiceAccountList{}
	require.NoError(t, joiner.List(t.Context(), accounts, client.InNamespace(d.NS)))
	require.NotContains(t, fmt.Sprintf("%+v", accounts), name)
}

// joinerConfig is how to connect with a join file.
func (d *deployed) joinerConfig(t *testing.T) *rest.Config {
	t.Helper()
	_, f := d.Joiner(t)
	return f.RESTConfig(false)
}

// token returns the Secret with the token of a member, as an administrator finds
// it. There must be one.
func (d *deployed) token(t *testing.T, id string) *corev1.Secret {
	t.Helper()
	var found []*corev1.Secret
	list := &corev1.SecretList{}
	require.NoError(t, d.Admin.List(t.Context(), list, client.InNamespace(d.NS)))
	for i := range list.Items {
		if list.Items[i].Annotations[corev1.ServiceAccountNameKey] == "cluster-"+id {
			found = append(found, &list.Items[i])
		}
	}
	require.Len(t, found, 1)
	return found[0]
}

// owned returns the metadata of an object that a service account owns.
func owned(ns, name, account string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: ns,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ServiceAccount", Name: account, UID: "uid"}},
	}
}

// bindingName returns the name of the RoleBinding that join makes.
func bindingName(role, account string) string {
	if role == broker.MemberRoleName {
		return account + "-" + role
	}
	return role
}

func named(o client.Object, name string) client.Object {
	o.SetName(name)
	return o
}

func ownedBy(o client.Object, owners []metav1.OwnerReference) client.Object {
	o.SetOwnerReferences(owners)
	return o
}

func withFinalizer(o client.Object) client.Object {
	o.SetFinalizers([]string{"example.com/never"})
	return o
}

// requireRefused requires that the API server refuses an object. If a user may not bind a Role, the
// API server looks whether the user has the same rights, and fails to find a Role that does not
// exist.
func requireRefused(t *testing.T, err error) {
	t.Helper()
	require.True(t, apierrors.IsForbidden(err) || apierrors.IsNotFound(err), "%v", err)
}
