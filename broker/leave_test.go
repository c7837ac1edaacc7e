package broker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/kubetest"
)

// leaving returns the statement of a cluster that it has left.
func leaving(t *testing.T, id string) string {
	t.Helper()
	token, err := brokertest.Key(id).SignLeaving(brokertest.Granted(brokertest.Grant(id)), 1)
	require.NoError(t, err)
	return token
}

// What a cluster states when it leaves remains on the broker when everything else of the cluster is
// deleted, and is replaced when a cluster joins with its ID.
func TestLeave(t *testing.T) {
	d := deployReal(t, kubetest.Shared(t))
	ctx := t.Context()
	east := d.Join(t, "east", "uid-east")
	require.NoError(t, fillOrChange(ctx, east, cluster(d.NS, "east")))
	statement := leaving(t, "east")
	for range 2 { // it can be repeated
		without, _, err := broker.Leave(ctx, east, d.NS, []string{submarinerv1.DefaultClusterSet}, "east", statement)
		require.NoError(t, err)
		require.Empty(t, without)
	}
	require.NoError(
		t,
		broker.RemoveMember(ctx, east, d.NS, []string{submarinerv1.DefaultClusterSet}, "east",
			brokertest.Administrator().Public()),
	)
	require.Eventually(t, func() bool { return stored(t, d, "east") == 1 }, patience, tick, "the rest is deleted")
	c := &submarinerv1.Cluster{}
	require.NoError(t, d.Admin.Get(ctx, client.ObjectKey{Namespace: d.NS, Name: "east"}, c))
	require.True(t, exchange.IsRemoved(c))
	require.Equal(t, map[string]string{submarinerv1.LeavingAnnotation: statement}, c.Annotations)
	state, err := broker.Look(ctx, d.Admin, d.NS)
	require.NoError(t, err)
	require.NotContains(t, state.Members, "east")

	t.Log("another cluster joins with its ID, and leaves")
	again := d.Join(t, "east", "uid-east-2")
	require.Equal(t, 1+4+8+16, stored(t, d, "east"))
	require.NoError(t, fillOrChange(ctx, again, cluster(d.NS, "east")), "it takes the place of the statement")
	require.NoError(t, d.Admin.Get(ctx, client.ObjectKeyFromObject(c), c))
	require.NotContains(t, c.Annotations, submarinerv1.LeavingAnnotation)
	_, _, err = broker.Leave(ctx, again, d.NS, []string{submarinerv1.DefaultClusterSet}, "east", leaving(t, "east"))
	require.NoError(t, err)
	require.NoError(
		t,
		broker.RemoveMember(ctx, again, d.NS, []string{submarinerv1.DefaultClusterSet}, "east",
			brokertest.Administrator().Public()),
	)

	t.Log("without a Cluster there is nothing that it could replace")
	west := d.Join(t, "west", "uid-west")
	require.NoError(t, d.Admin.Delete(ctx, cluster(d.NS, "west")))
	without, _, err := broker.Leave(ctx, west, d.NS, []string{submarinerv1.DefaultClusterSet}, "west",
		leaving(t, "west"))
	require.NoError(t, err)
	require.Equal(t, []string{d.NS}, without)
}

// A member can give up the owner only of a Cluster that states that it has left, and of nothing
// else. So it leaves nothing else behind. It writes no such statement for another member.
func TestHostileLeaver(t *testing.T) {
	d := deployReal(t, kubetest.Shared(t))
	ctx := t.Context()
	east := d.Join(t, "east", "uid-east")
	d.Join(t, "west", "uid-west")
	token := leaving(t, "east")
	get := func(o client.Object) client.Object {
		require.NoError(t, d.Admin.Get(ctx, client.ObjectKeyFromObject(o), o))
		return o
	}
	own := func(change func(*submarinerv1.Cluster)) client.Object {
		there := get(cluster(d.NS, "east"))
		c := exchange.Left(d.NS, "east", token)
		c.UID = there.GetUID()
		c.ResourceVersion = there.GetResourceVersion()
		change(c)
		return c
	}
	other := exchange.Left(d.NS, "west", token)
	other.ResourceVersion = get(cluster(d.NS, "west")).GetResourceVersion()
	endpoint := get(slotted["endpoints"](d.NS, "east", 0))
	endpoint.SetOwnerReferences(nil)
	brokertest.Annotate(endpoint, submarinerv1.LeavingAnnotation, token)
	for name, o := range map[string]client.Object{
		"of another member":             other,
		"an Endpoint without its owner": endpoint,
		"without a statement":           own(func(c *submarinerv1.Cluster) { c.Annotations = nil }),
		"with a signature, too": own(func(c *submarinerv1.Cluster) {
			brokertest.Annotate(c, submarinerv1.SignatureAnnotation, "a.b.c")
		}),
		"with another annotation": own(func(c *submarinerv1.Cluster) { brokertest.Annotate(c, "example.com/a", "b") }),
		"with networks":           own(func(c *submarinerv1.Cluster) { c.Spec.ClusterCIDR = []string{"10.0.0.0/8"} }),
		"with a public key":       own(func(c *submarinerv1.Cluster) { c.Spec.PublicKey = strings.Repeat("x", 600) }),
		"too large": own(func(c *submarinerv1.Cluster) {
			c.Annotations[submarinerv1.LeavingAnnotation] = strings.Repeat("x", exchange.MaxProof+1)
		}),
		"with the label of another": own(func(c *submarinerv1.Cluster) {
			c.Labels[submarinerv1.ClusterIDLabel] = "west"
		}),
		"with the ID of another": own(func(c *submarinerv1.Cluster) { c.Spec.ClusterID = "west" }),
		"with a finalizer": own(func(c *submarinerv1.Cluster) {
			c.Finalizers = []string{"example.com/never"}
		}),
		"with another owner": own(func(c *submarinerv1.Cluster) {
			c.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ServiceAccount", Name: "cluster-west", UID: "x"},
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			err := east.Update(ctx, o, client.DryRunAll)
			require.True(t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%v", err)
		})
	}
	require.NoError(t, east.Update(ctx, own(func(*submarinerv1.Cluster) {}), client.DryRunAll))

	t.Log("the holder of a join file makes no such Cluster")
	joiner, _ := d.Joiner(t)
	for _, owner := range []string{"", "cluster-north"} {
		o := exchange.Left(d.NS, "north", leaving(t, "north"))
		if owner != "" {
			o.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ServiceAccount", Name: owner, UID: "x"},
			}
		}
		err := joiner.Create(ctx, o)
		require.True(t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%v", err)
	}

	t.Log("revoke removes what it has left behind")
	require.NoError(t, east.Update(ctx, own(func(*submarinerv1.Cluster) {})))
	require.NoError(
		t,
		east.Delete(ctx,
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: broker.MemberName("east"), Namespace: d.NS}}),
	)
	require.NoError(t,
		broker.Revoke(ctx, d.Admin, d.NS, []string{"default"}, "east", brokertest.Administrator(), time.Now()))
	require.Contains(t, get(cluster(d.NS, "east")).GetAnnotations(), submarinerv1.RevocationAnnotation)
	require.NotContains(t, get(cluster(d.NS, "east")).GetAnnotations(), submarinerv1.LeavingAnnotation)
}
