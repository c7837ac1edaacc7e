package broker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/kube"
)

// formerSets are the clustersets of the broker of formerBroker, whose base namespace is "base".
var formerSets = []string{"default", "a", "b", "c"}

// formerBroker returns a broker with the objects.
func formerBroker(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

// failingAfter returns a client with which all writes fail after the first n.
func failingAfter(c client.WithWatch, n int64) client.Client {
	var made atomic.Int64
	write := func(do func() error) error {
		if made.Add(1) > n {
			return errors.New("the connection is lost")
		}
		return do()
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, opts...) })
		},
		DeleteAllOf: func(
			ctx context.Context,
			c client.WithWatch,
			o client.Object,
			opts ...client.DeleteAllOfOption,
		) error {
			return write(func() error { return c.DeleteAllOf(ctx, o, opts...) })
		},
		Patch: func(
			ctx context.Context,
			c client.WithWatch,
			o client.Object,
			p client.Patch,
			opts ...client.PatchOption,
		) error {
			return write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
	})
}

// shown returns the clustersets that have the proof that a cluster was removed.
func shown(t *testing.T, c client.Client, id string) (sets []string) {
	t.Helper()
	for _, set := range formerSets {
		o := &submarinerv1.Cluster{}
		err := c.Get(t.Context(), client.ObjectKey{Namespace: broker.NamespaceIn("base", set), Name: id}, o)
		require.NoError(t, client.IgnoreNotFound(err))
		if err == nil && o.Annotations[submarinerv1.GrantAnnotation] == "" {
			require.NotEmpty(t, o.Annotations[submarinerv1.RevocationAnnotation], set)
			require.Empty(t, o.OwnerReferences, set)
			sets = append(sets, set)
		}
	}
	return sets
}

// binding returns the rights of a member or of the holder of a join file in a clusterset.
func binding(name, set string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: broker.NamespaceIn("base", set), Name: name},
		RoleRef:    rbacv1.RoleRef{Name: broker.MemberRoleName},
	}
}

// A revocation tells the ID of a cluster only to the members of clustersets in which others may
// know it, also if the cluster has no account any more, or never had one.
func TestRevokedIn(t *testing.T) {
	leaving, err := brokertest.Key("east").SignLeaving(brokertest.IdentityIn("east", "a").Grant, 1)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		objects []client.Object
		want    []string
		isKnown bool
	}{
		"it has uninstalled": {
			[]client.Object{exchange.Left("base-a", "east", leaving)},
			[]string{"a"},
			true,
		},
		"it was revoked": {
			[]client.Object{exchange.Revoked("base", "east", "x"), exchange.Revoked("base-b", "east", "x")},
			[]string{"default", "b"},
			true,
		},
		"it is invited only": {
			[]client.Object{binding(broker.InviteeName("east"), "b")},
			[]string{"b"},
			true,
		},
		"its rights remain": {
			[]client.Object{binding("cluster-east-"+broker.MemberRoleName, "c")},
			[]string{"c"},
			true,
		},
		"nothing shows that it ever existed": {nil, formerSets, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := formerBroker(t, test.objects...)
			in, isKnown, err := broker.RevokedIn(t.Context(), c, "base", formerSets, "east",
				brokertest.Administrator().Public())
			require.NoError(t, err)
			require.Equal(t, test.want, in)
			require.Equal(t, test.isKnown, isKnown)
			for range 2 { // it can be repeated
				require.NoError(t,
					broker.Revoke(t.Context(), c, "base", formerSets, "east", brokertest.Administrator(), time.Now()))
				require.Equal(t, test.want, shown(t, c, "east"))
			}
		})
	}
}

// hidden returns a member of the clustersets default, a and b. It has deleted its Cluster in a,
// where only its rights show that it is a member, and its account shows no grant.
func hidden(t *testing.T) []client.Object {
	t.Helper()
	grants, err := trust.Published(brokertest.IdentityIn("east", "default", "a", "b").Grant)
	require.NoError(t, err)
	objects := []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "base", Name: broker.MemberName("east")}},
	}
	for _, set := range []string{"default", "a", "b"} {
		place := &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: broker.NamespaceIn("base", set), Name: broker.MemberName("east")},
		}
		objects = append(objects, binding("cluster-east-"+broker.MemberRoleName, set), place)
		if set != "a" {
			c := brokertest.Cluster(place.Namespace, "east")
			c.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role", Name: place.Name, UID: "x"},
			}
			brokertest.Annotate(c, submarinerv1.GrantAnnotation, grants[set])
			objects = append(objects, c)
		}
	}
	return objects
}

// collect deletes what a broker deletes with the Roles of east that are deleted.
func collect(t *testing.T, c client.Client) {
	t.Helper()
	for _, set := range formerSets {
		ns := broker.NamespaceIn("base", set)
		if c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: broker.MemberName("east")}, &rbacv1.Role{}) == nil {
			continue
		}
		o := &submarinerv1.Cluster{}
		if c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "east"}, o) == nil && len(o.OwnerReferences) > 0 {
			require.NoError(t, c.Delete(t.Context(), o))
		}
		require.NoError(t,
			client.IgnoreNotFound(c.Delete(t.Context(), binding("cluster-east-"+broker.MemberRoleName, set))))
	}
}

// A member does not escape its removal, or its revocation, in a clusterset by deleting its Cluster
// there: the members learn of it, whichever request of the command is the last before the
// connection is lost, once the command is repeated.
func TestHostileMemberDeletesItsCluster(t *testing.T) {
	for name, test := range map[string]struct {
		run  func(ctx context.Context, c client.Client) error
		want []string
	}{
		"revoked": {
			func(ctx context.Context, c client.Client) error { return revokeEast(ctx, c, time.Now()) },
			[]string{"default", "a", "b"},
		},
		"removed": {func(ctx context.Context, c client.Client) error {
			change := broker.SetChange{Cluster: "east", Remove: []string{"a", "b", "c"}}
			_, err := broker.ChangeSets(ctx, c, "base", formerSets, change, broker.Reservation{},
				brokertest.Administrator(), time.Now())
			return err
		}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				interruptions := 0
				for isDone := false; !isDone; interruptions++ {
					c := formerBroker(t, hidden(t)...)
					isDone = test.run(t.Context(), failingAfter(c, int64(interruptions))) == nil
					collect(t, c)
					require.NoError(t, test.run(t.Context(), c), "after %d writes", interruptions)
					require.Equal(t, test.want, shown(t, c, "east"), "after %d writes", interruptions)
				}
				require.Greater(t, interruptions, 10)
			})
		})
	}
}
