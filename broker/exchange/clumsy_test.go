package exchange_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/kubetest"
)

// everything returns what the broker holds of all members.
func everything(t *testing.T, d *brokertest.Broker) (out []client.Object) {
	t.Helper()
	for _, k := range exchange.Kinds() {
		list := k.List.DeepCopyObject().(client.ObjectList)
		require.NoError(t, d.Admin.List(t.Context(), list, client.InNamespace(d.NS)))
		require.NoError(t, meta.EachListItem(list, func(o runtime.Object) error {
			out = append(out, o.DeepCopyObject().(client.Object))
			return nil
		}))
	}
	return out
}

// What an administrator of a broker does by hand to the objects of members, and whether they
// recover.
func TestClumsyAdministrator(t *testing.T) {
	d := brokertest.Deploy(t, kubetest.Shared(t))
	ctx := t.Context()
	admin := d.Admin.(interface{ Unwrap() client.Client }).Unwrap()
	gate := kubetest.NewGate(t, d.Server)
	east := newSite(t, d, gate, "east")
	west := newSite(t, d, gate, "west")
	for _, s := range []*site{east, west} {
		s.start()
		s.create(cluster(s.ns, s.id))
		s.create(endpoint(s.ns, s.id, "10-0-0-1"))
	}
	all := []string{"east", "west", eastCable, westCable}
	connected := func() {
		t.Helper()
		east.eventually(all...)
		west.eventually(all...)
	}
	settled := func() {
		t.Helper()
		east.eventuallyHealthy(true)
		west.eventuallyHealthy(true)
	}
	east.make("p", "vxlan")
	connected()
	west.holds("p.east.default vxlan east")
	settled()
	backup := everything(t, d)

	t.Log("labels, annotations and fields of what is reserved")
	for _, o := range backup {
		brokertest.Annotate(o, "kubectl.kubernetes.io/last-applied-configuration", "{}")
		o.SetLabels(
			map[string]string{submarinerv1.ClusterIDLabel: o.GetLabels()[submarinerv1.ClusterIDLabel], "app": "backup"})
		o = o.DeepCopyObject().(client.Object)
		require.NoError(t, client.IgnoreNotFound(admin.Update(ctx, o)))
	}
	for _, name := range []string{"east.1", "east.2"} {
		e := &submarinerv1.Endpoint{}
		require.NoError(t, admin.Get(ctx, client.ObjectKey{Namespace: d.NS, Name: name}, e))
		e.Spec.Hostname = "somebody"
		if name == "east.2" {
			e.Labels = nil
		}
		require.NoError(t, admin.Update(ctx, e))
	}
	east.make("q", "ipsec")
	west.holds("p.east.default vxlan east", "q.east.default ipsec east")
	settled()
	connected()

	t.Log("an old backup is restored over what there is now, under the same and under other names")
	east.drop("p")
	west.holds("q.east.default ipsec east")
	settled()
	for _, o := range backup {
		o = o.DeepCopyObject().(client.Object)
		now := o.DeepCopyObject().(client.Object)
		require.NoError(t, admin.Get(ctx, client.ObjectKeyFromObject(o), now))
		o.SetResourceVersion(now.GetResourceVersion())
		o.SetUID(now.GetUID())
		require.NoError(t, admin.Update(ctx, o), o.GetName())
	}
	east.shared("q", "Shared", "default")
	west.holds("q.east.default ipsec east")
	settled()
	connected()

	t.Log("somebody makes an object outside the slots")
	stray := brokertest.Policy(d.NS, "east", "r")
	require.NoError(t, admin.Create(ctx, stray))
	require.Eventually(t,
		func() bool { return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(stray), stray)) }, patience,
		tick)
	settled()

	t.Log("everything is deleted: the clusters report it, and do not write again and again")
	for _, o := range everything(t, d) {
		require.NoError(t, client.IgnoreNotFound(admin.Delete(ctx, o)))
	}
	east.eventually("east", eastCable)
	west.eventually("west", westCable)
	require.Eventually(t, func() bool {
		return strings.Contains(strings.Join(texts(east.ex.Status().Refused), "\n"), "run subctl join again")
	}, patience, tick)
	require.Eventually(t, func() bool {
		before := east.ex.Status().Writes
		time.Sleep(time.Second)
		return east.ex.Status().Writes == before
	}, patience, tick)

	t.Log("joining again repairs it")
	for _, s := range []*site{east, west} {
		_, err := broker.EnsureMember(ctx, d.Admin, d.NS, s.id, "uid-"+s.id, broker.Reservation{})
		require.NoError(t, err)
	}
	connected()
	west.holds("q.east.default ipsec east")
	settled()

	t.Log("an old state of etcd: what was stored then, with other UIDs")
	for _, o := range everything(t, d) {
		require.NoError(t, client.IgnoreNotFound(admin.Delete(ctx, o)))
	}
	for _, o := range backup {
		o = o.DeepCopyObject().(client.Object)
		o.SetResourceVersion("")
		o.SetUID("")
		require.NoError(t, admin.Create(ctx, o), o.GetName())
	}
	connected()
	west.holds("q.east.default ipsec east")
	settled()

	t.Log("objects that the holder of a join file makes, whose owner does not exist, while slots are scarce")
	joiner, _ := d.Joiner(t)
	for _, name := range []string{"r", "s", "t"} {
		east.make(name, "vxlan")
	}
	k, err := exchange.Kinds().Of(stray)
	require.NoError(t, err)
	sa := &corev1.ServiceAccount{}
	require.NoError(t, admin.Get(ctx, client.ObjectKey{Namespace: d.NS, Name: "cluster-east"}, sa))
	for range 40 {
		bad := k.Empty(d.NS, "east", 4)
		bad.SetOwnerReferences(
			[]metav1.OwnerReference{{APIVersion: "v1", Kind: "ServiceAccount", Name: sa.Name, UID: "nobody"}})
		_ = joiner.Create(ctx, bad)
		time.Sleep(50 * time.Millisecond)
	}
	west.holds("q.east.default ipsec east", "r.east.default vxlan east", "s.east.default vxlan east",
		"t.east.default vxlan east")
	connected()
}
