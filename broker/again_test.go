package broker_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

// A member that deletes its identity would leave what belongs to it without an owner. Nobody could
// join with its ID any more.
func TestHostileOrphans(t *testing.T) {
	d := deployReal(t, kubetest.Shared(t))
	ctx := t.Context()
	east := d.Join(t, "east", "uid-east")
	identity := func() client.Object {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: broker.MemberName("east"), Namespace: d.NS}}
	}
	yes := true
	no := false
	require.Eventually(t, func() bool { return east.Delete(ctx, identity(), client.DryRunAll) == nil }, patience, tick,
		"the right takes a moment")
	for what, options := range map[string]client.DeleteOptions{
		"orphans": {PropagationPolicy: new(metav1.DeletePropagationOrphan)},
		//lint:ignore SA1019 an API server accepts it
		"orphans, in the form of before": {Raw: &metav1.DeleteOptions{OrphanDependents: &yes}},
	} {
		err := east.Delete(ctx, identity(), &options)
		require.ErrorContains(t, err, "cluster east may not leave what belongs to cluster-east without an owner", what)
	}
	for _, options := range []client.DeleteOptions{
		{PropagationPolicy: new(metav1.DeletePropagationForeground)},
		{PropagationPolicy: new(metav1.DeletePropagationBackground)},
		//lint:ignore SA1019 an API server accepts it
		{Raw: &metav1.DeleteOptions{OrphanDependents: &no}},
		{},
	} {
		options.DryRun = []string{metav1.DryRunAll}
		require.NoError(t, east.Delete(ctx, identity(), &options))
	}
}

// An administrator deletes an account and leaves what belongs to it without an owner. Nobody could
// join with the ID any more: revoke removes the rights as well.
func TestRevokeRemovesOrphanedRights(t *testing.T) {
	d := deployReal(t, kubetest.Shared(t))
	ctx := t.Context()
	invitee := (&deployed{d.Broker}).invitee(t, "east", "default")
	_, err := broker.AddMember(ctx, invitee, d.NS, "east", "uid-east", broker.Reservation{})
	require.NoError(t, err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: broker.MemberName("east"), Namespace: d.NS}}
	require.NoError(t, d.Admin.Delete(ctx, account, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(d.Admin.Get(ctx, client.ObjectKeyFromObject(account), account))
	}, patience, tick)
	rights := func() (names []string) {
		roles := &rbacv1.RoleList{}
		bindings := &rbacv1.RoleBindingList{}
		require.NoError(t, d.Admin.List(ctx, roles, client.InNamespace(d.NS)))
		require.NoError(t, d.Admin.List(ctx, bindings, client.InNamespace(d.NS)))
		for _, r := range roles.Items {
			names = append(names, r.Name)
		}
		for _, b := range bindings.Items {
			names = append(names, b.Name)
		}
		return slices.DeleteFunc(names, func(name string) bool { return !strings.Contains(name, "cluster-east") })
	}
	require.NotEmpty(t, rights(), "the test needs orphans")
	require.NoError(t,
		broker.Revoke(ctx, d.Admin, d.NS, []string{"default"}, "east", brokertest.Administrator(), time.Now()))
	require.Empty(t, rights())
	d.Join(t, "east", "uid-east-2")
}

// An administrator deletes what is reserved for a member, while the quota has room for just what
// the member needs: it recovers by joining again.
func TestReserveAfterADeletion(t *testing.T) {
	d := deployReal(t, kubetest.Shared(t))
	ctx := t.Context()
	d.Join(t, "east", "uid-east")
	limit(t, d, "7", "count/cablepolicies.submariner.io")
	for _, o := range []client.Object{
		cluster(d.NS, "east"),
		slotted["endpoints"](d.NS, "east", 0),
		slotted["cablepolicies"](d.NS, "east", 0),
	} {
		require.NoError(t, d.Admin.Delete(ctx, o))
	}
	d.Join(t, "east", "uid-east")
	require.Equal(t, 1+4+7+16, stored(t, d, "east"))
}

// An administrator raises the quota beyond what members read. No join stores so much that the
// members would exchange nothing any more.
func TestReserveNoMoreThanMembersRead(t *testing.T) {
	d := deployReal(t, kubetest.Shared(t))
	ctx := t.Context()
	limit(t, d, "9000", "count/cablepolicies.submariner.io")
	kinds := exchange.Kinds()
	k, err := kinds.Of(slotted["cablepolicies"](d.NS, "east", 0))
	require.NoError(t, err)
	k.Quota = 3
	join := func(id string, policies int) error {
		_, err := broker.EnsureMember(ctx, d.Admin, d.NS, id, "uid-"+id,
			broker.Reservation{Kinds: kinds, ToPublish: map[string]int{"cablepolicies": policies}})
		return err
	}
	require.NoError(t, join("east", 1))
	require.NoError(t, join("west", 2))
	require.NoError(t, join("west", 2), "again")
	require.EqualError(
		t,
		join("north", 1),
		"the broker has no room for the cablepolicies that cluster north needs, 1: remove clusters that are gone for good with subctl revoke, "+
			"or, if the quota submariner-k8s-broker in namespace "+d.NS+
			" is less than 3, raise it: it has 3 already, and members exchange nothing with a broker that has more than 3",
	)
	require.Equal(t, 1+4+1+16, stored(t, d, "east"))
	require.Equal(t, 1+4+2+16, stored(t, d, "west"))
}

// beforeWrites calls something before each request to create or to apply an object.
type beforeWrites struct {
	client.Client
	call func(n int)
	n    *int
}

func (b beforeWrites) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	b.call(*b.n)
	*b.n++
	return b.Client.Apply(ctx, obj, opts...)
}

func (b beforeWrites) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	b.call(*b.n)
	*b.n++
	return b.Client.Create(ctx, obj, opts...)
}

// Who has a join file makes the object anew in which revoke publishes the revocation, with an owner
// that does not exist, so that the broker would delete it.
func TestHostileJoinerRemovesARevocation(t *testing.T) {
	d := deployReal(t, kubetest.Shared(t))
	ctx := t.Context()
	d.Join(t, "east", "uid-east")
	joiner, _ := d.Joiner(t)
	won := 0
	admin := beforeWrites{d.Admin.(interface{ Unwrap() client.Client }).Unwrap(), func(n int) {
		o := exchange.Revoked(d.NS, "east", "")
		o.Annotations = nil
		o.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ServiceAccount", Name: "cluster-east", UID: "nobody"},
		}
		if n < 3 && kube.Settled(func() error { return joiner.Create(ctx, o) }) == nil {
			won++
		}
	}, new(int)}
	require.NoError(t,
		broker.Revoke(ctx, admin, d.NS, []string{"default"}, "east", brokertest.Administrator(), time.Now()))
	require.Positive(t, won, "the attacker was first")
	c := &submarinerv1.Cluster{}
	require.NoError(t, d.Admin.Get(ctx, client.ObjectKey{Namespace: d.NS, Name: "east"}, c))
	require.True(t, exchange.IsRemoved(c))
	require.Empty(t, c.OwnerReferences)
}

// Several joins of one cluster at a time, and joins that end between any two requests, leave a
// member that has everything once.
func TestReserveConcurrentlyAndInterrupted(t *testing.T) {
	d := deployReal(t, kubetest.Shared(t))
	ctx := t.Context()
	joiner, _ := d.Joiner(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			_, err := broker.AddMember(ctx, joiner, d.NS, "east", "uid-east", broker.Reservation{})
			assert.NoError(t, err)
		})
	}
	group.Wait()
	require.Equal(t, 1+4+8+16, stored(t, d, "east"))
	times := 0
	for n := 0; ; n++ {
		ctx, stop := context.WithCancel(ctx)
		interrupted := beforeWrites{joiner, func(i int) {
			if i == n {
				stop()
			}
		}, new(int)}
		_, err := broker.AddMember(ctx, interrupted, d.NS, "west", "uid-west", broker.Reservation{})
		stop()
		if err == nil { // it has not as many requests left
			break
		}
		require.ErrorIs(t, err, context.Canceled)
		times++
	}
	require.Greater(t, times, 4)
	_, err := broker.AddMember(ctx, joiner, d.NS, "west", "uid-other", broker.Reservation{})
	require.ErrorAs(t, err, new(*broker.TakenError))
	_, err = broker.AddMember(ctx, joiner, d.NS, "west", "uid-west", broker.Reservation{})
	require.NoError(t, err)
	require.Equal(t, 1+4+8+16, stored(t, d, "west"))
}
