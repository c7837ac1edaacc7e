package broker_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

// slotOf returns object i of a kind, in the slot of that number.
type slotOf func(ns, id string, i int) client.Object

var slotted = map[string]slotOf{
	"endpoints": func(ns, id string, i int) client.Object {
		return brokertest.InSlot(endpoint(ns, id, fmt.Sprintf("10-0-0-%x", i)), id, i)
	},
	"exportedservices": func(ns, id string, i int) client.Object {
		return brokertest.InSlot(brokertest.Page(ns, id, i), id, i)
	},
	"cablepolicies": func(ns, id string, i int) client.Object {
		return brokertest.InSlot(shared(ns, id, fmt.Sprint("p", i)), id, i)
	},
}

// full returns everything that a member can store in a clusterset.
func full(t *testing.T, ns, id string) []client.Object {
	t.Helper()
	out := []client.Object{cluster(ns, id)}
	for _, of := range slotted {
		for i := range share(t, of(ns, id, 0)) {
			out = append(out, of(ns, id, i))
		}
	}
	return out
}

// stored returns how many objects of the kinds that clusters exchange the broker has of a member.
func stored(t *testing.T, d *deployed, id string) (n int) {
	t.Helper()
	for _, k := range exchange.Kinds() {
		list := k.List.DeepCopyObject().(client.ObjectList)
		require.NoError(t, d.Admin.List(t.Context(), list, client.InNamespace(d.NS)))
		n += countNamed(t, list, id)
	}
	return n
}

// A member writes as fast as it can, in every way that it has, while the quotas have room for just
// one more cluster. Meanwhile another one publishes, changes, empties and publishes again all that
// it has reserved, without one write that is refused; and a cluster joins, so that the quotas were
// not charged.
func TestHostileHoarder(t *testing.T) {
	d := deployReal(t, kubetest.Shared(t))
	ctx := t.Context()
	hoarder := d.Join(t, "east", "uid-east")
	west := d.Join(t, "west", "uid-west")
	east := hoarder.(interface{ Unwrap() client.Client }).Unwrap()
	counted := map[string]int{
		"endpoints.submariner.io":        4,
		"clusters.submariner.io":         1,
		"cablepolicies.submariner.io":    8,
		"exportedservices.submariner.io": 16,
	}
	used := func() map[string]int64 {
		q := &corev1.ResourceQuota{}
		require.NoError(t, d.Admin.Get(ctx, client.ObjectKey{Namespace: d.NS, Name: "submariner-k8s-broker"}, q))
		out := map[string]int64{}
		for name := range counted {
			u := q.Status.Used[corev1.ResourceName("count/"+name)]
			out[name] = u.Value()
		}
		return out
	}
	for name, n := range counted {
		limit(t, d, fmt.Sprint(3*n), "count/"+name)
	}
	before := used()
	for name, n := range counted {
		require.EqualValues(t, 2*n, before[name], name)
	}
	reserved := func(id string) []client.Object {
		return []client.Object{
			cluster(d.NS, id),
			slotted["endpoints"](d.NS, id, 0),
			slotted["endpoints"](d.NS, id, 1),
			slotted["endpoints"](d.NS, id, 2),
			slotted["endpoints"](d.NS, id, 3),
			slotted["cablepolicies"](d.NS, id, 0),
			slotted["cablepolicies"](d.NS, id, 3),
			slotted["exportedservices"](d.NS, id, 1),
		}
	}
	own := reserved("east")
	gvk := func(o client.Object) client.Object {
		k, err := exchange.Kinds().Of(o)
		require.NoError(t, err)
		o.GetObjectKind().SetGroupVersionKind(k.GroupVersion.WithKind(k.Name))
		return o
	}
	fresh := func(n int) client.Object {
		if n%2 == 0 {
			return slotted["endpoints"](d.NS, "east", 4+n%12)
		}
		return slotted["cablepolicies"](d.NS, "east", 8+n%24)
	}
	short := func(n int) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Duration(1+n%8)*time.Millisecond)
	}
	ways := map[string]func(n int) error{
		"create":             func(n int) error { return east.Create(ctx, fresh(n)) },
		"create what exists": func(n int) error { return east.Create(ctx, reserved("east")[n%len(own)]) },
		"create for a trial": func(n int) error { return east.Create(ctx, fresh(n), client.DryRunAll) },
		"create with a name of the API server": func(n int) error {
			o := fresh(n)
			o.SetName("")
			o.SetGenerateName("east.")
			return east.Create(ctx, o)
		},
		"give up every create": func(n int) error {
			ctx, stop := short(n)
			defer stop()
			return east.Create(ctx, fresh(n))
		},
		"apply": func(n int) error {
			return east.Patch(
				ctx,
				gvk(fresh(n)),
				//lint:ignore SA1019 an API server accepts it
				client.Apply,
				client.FieldOwner("x"),
				client.ForceOwnership,
			)
		},
		"give up every apply": func(n int) error {
			ctx, stop := short(n)
			defer stop()
			return east.Patch(
				ctx,
				gvk(fresh(n)),
				//lint:ignore SA1019 an API server accepts it
				client.Apply,
				client.FieldOwner("x"),
				client.ForceOwnership,
			)
		},
		"update what does not exist": func(n int) error { return east.Update(ctx, fresh(n)) },
		"change": func(n int) error {
			return east.Patch(
				ctx,
				own[1+n%(len(own)-1)],
				client.RawPatch(types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"annotations":{"a":"%d%s"}}}`, n, strings.Repeat("x", 8000))),
			)
		},
		"give up every change": func(n int) error {
			ctx, stop := short(n)
			defer stop()
			return east.Patch(ctx, own[1+n%(len(own)-1)],
				client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"a":"%d"}}}`, n)))
		},
	}
	var done atomic.Bool
	var group sync.WaitGroup
	counts := map[string]*atomic.Int64{}
	for name, way := range ways {
		count := &atomic.Int64{}
		counts[name] = count
		group.Go(func() {
			for n := 0; !done.Load(); n++ {
				if err := way(n); err == nil && !strings.Contains(name, "change") {
					t.Errorf("%s: no error", name)
					return
				}
				count.Add(1)
			}
		})
	}
	var slowest time.Duration
	timed := func(what string, write func() error) {
		began := time.Now()
		require.NoError(t, write(), what)
		slowest = max(slowest, time.Since(began))
	}
	for round := range 3 {
		for _, o := range reserved("west") {
			timed(fmt.Sprint("publish ", o.GetName(), " in round ", round),
				func() error { return fillOrChange(ctx, west, o) })
		}
		for n, o := range reserved("west") {
			timed("change "+o.GetName(), func() error {
				return west.Patch(
					ctx,
					o,
					client.RawPatch(types.MergePatchType,
						fmt.Appendf(nil, `{"metadata":{"annotations":{"a":"%d"}}}`, n)),
				)
			})
		}
		for _, o := range reserved("west") {
			timed("empty "+o.GetName(), func() error { return empty(ctx, west, o) })
		}
	}
	require.Equal(t, before, used(), "nothing that a member does is charged")
	done.Store(true)
	group.Wait()
	require.Equal(t, before, used(), "nothing that a member does is charged")
	d.Join(t, "north", "uid-north")
	for name, count := range counts {
		t.Logf("%s: %d times", name, count.Load())
	}
	t.Logf("the slowest write of the other member took %s", slowest)
	require.LessOrEqual(t, stored(t, d, "east"), 1+4+8+16)
}

// fillOrChange makes an object of the broker the same as o.
func fillOrChange(ctx context.Context, c client.Client, o client.Object) error {
	there := o.DeepCopyObject().(client.Object)
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), there); err != nil {
		return err
	}
	o.SetResourceVersion(there.GetResourceVersion())
	o.SetOwnerReferences(there.GetOwnerReferences())
	return c.Update(ctx, o)
}

// empty makes an object of a member empty.
func empty(ctx context.Context, c client.Client, o client.Object) error {
	k, err := exchange.Kinds().Of(o)
	if err != nil {
		return err
	}
	id, _ := submarinerv1.OwnerID(o)
	blank := k.Empty(o.GetNamespace(), id, 0)
	blank.SetName(o.GetName())
	return fillOrChange(ctx, c, blank)
}

// Members have no right to create objects in any clusterset, not even after they have deleted one.
func TestHostileCreate(t *testing.T) {
	d := deployReal(t, kubetest.Shared(t), "lab")
	ctx := t.Context()
	east := d.Join(t, "east", "uid-east").(interface{ Unwrap() client.Client }).Unwrap()
	for _, ns := range []string{d.NS, broker.NamespaceIn(d.NS, "lab")} {
		for _, o := range full(t, ns, "east") {
			require.True(t, apierrors.IsForbidden(east.Create(ctx, o)))
		}
	}
	gone := slotted["endpoints"](d.NS, "east", 0)
	require.NoError(t, east.Delete(ctx, gone))
	require.True(t, apierrors.IsForbidden(east.Create(ctx, slotted["endpoints"](d.NS, "east", 0))))
	d.Join(t, "east", "uid-east") // again
	require.NoError(t, east.Get(ctx, client.ObjectKeyFromObject(gone), gone), "joining again adds what is missing")
}

// Who has a join file reserves objects for clusters, and makes no others.
func TestHostileReservations(t *testing.T) {
	d := deployReal(t, kubetest.Shared(t))
	ctx := t.Context()
	d.Join(t, "east", "uid-east")
	joiner, _ := d.Joiner(t)
	sa := &corev1.ServiceAccount{}
	require.NoError(t, d.Admin.Get(ctx, client.ObjectKey{Namespace: d.NS, Name: "cluster-east"}, sa))
	owned := func(o client.Object) client.Object {
		o.SetOwnerReferences(
			[]metav1.OwnerReference{{APIVersion: "v1", Kind: "ServiceAccount", Name: sa.Name, UID: sa.UID}})
		return o
	}
	with := func(o client.Object, change func(client.Object)) client.Object { change(o); return o }
	for _, k := range exchange.Kinds() {
		more := func() client.Object { return owned(k.Empty(d.NS, "east", k.PerCluster-1)) }
		if k.Slotted() {
			require.NoError(t, joiner.Create(ctx, more(), client.DryRunAll), k.Name)
		}
		for what, o := range map[string]client.Object{
			"without an owner":  k.Empty(d.NS, "east", 9),
			"another's":         owned(k.Empty(d.NS, "west", 9)),
			"another name":      with(more(), func(o client.Object) { o.SetName("east.x") }),
			"a name of another": with(more(), func(o client.Object) { o.SetName("west.9") }),
			"too many":          owned(k.Empty(d.NS, "east", k.PerCluster)),
			"generated":         with(more(), func(o client.Object) { o.SetName(""); o.SetGenerateName("east.") }),
			"without a label":   with(more(), func(o client.Object) { o.SetLabels(nil) }),
			"another label":     with(more(), func(o client.Object) { o.GetLabels()["a"] = "b" }),
			"annotated":         with(more(), func(o client.Object) { brokertest.Annotate(o, "a", "b") }),
			"signed": with(more(), func(o client.Object) {
				brokertest.Annotate(o, submarinerv1.SignatureAnnotation, "b")
			}),
			"with a finalizer": with(more(), func(o client.Object) { o.SetFinalizers([]string{"example.com/kept"}) }),
			"with a second owner": with(more(), func(o client.Object) {
				refs := append(o.GetOwnerReferences(), o.GetOwnerReferences()...)
				refs[1].UID = "another"
				o.SetOwnerReferences(refs)
			}),
			"with an empty list of owners": func() client.Object {
				u, err := kube.Unstructured(d.Admin.Scheme(), k.Empty(d.NS, "east", 9))
				require.NoError(t, err)
				require.NoError(t, unstructured.SetNestedSlice(u.Object, []any{}, "metadata", "ownerReferences"))
				return u
			}(),
			"owned by nothing that exists": with(more(), func(o client.Object) {
				refs := o.GetOwnerReferences()
				refs[0].Kind = "Unknown"
				o.SetOwnerReferences(refs)
			}),
			"of an invitee's owner": with(more(), func(o client.Object) {
				refs := o.GetOwnerReferences()
				refs[0].Name = "invitee-east"
				o.SetOwnerReferences(refs)
			}),
		} {
			if what == "too many" && !k.Slotted() {
				continue
			}
			err := joiner.Create(ctx, o, client.DryRunAll)
			require.True(t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%s, %s: %v", k.Name, what, err)
		}
	}
	large := owned(slotted["endpoints"](d.NS, "east", 9))
	large.SetAnnotations(nil)
	large.(*submarinerv1.Endpoint).Spec.Hostname = strings.Repeat("x", 250)
	large.(*submarinerv1.Endpoint).Spec.Subnets = []string{
		strings.Repeat("x", 60),
		strings.Repeat("y", 60),
		strings.Repeat("z", 60),
		strings.Repeat("z", 60),
	}
	require.True(t, apierrors.IsForbidden(joiner.Create(ctx, large, client.DryRunAll)), "large")
	own := owned(exchange.Kinds()[0].Empty(d.NS, "east", 0))
	require.True(t, apierrors.IsForbidden(joiner.Delete(ctx, own)))
	require.True(t, apierrors.IsForbidden(joiner.Update(ctx, own)))
}

// What a cluster gets when it joins, how it gets more, and what remains when it leaves.
func TestReserve(t *testing.T) {
	d := deployReal(t, kubetest.Shared(t))
	ctx := t.Context()
	joiner, _ := d.Joiner(t)
	add := func(r broker.Reservation) {
		t.Helper()
		_, err := broker.AddMember(ctx, joiner, d.NS, "east", "uid-east", r)
		require.NoError(t, err)
	}
	add(broker.Reservation{ToPublish: map[string]int{"endpoints": 9}, Grant: brokertest.Grant("east")})
	require.Equal(t, 1+9+8+16, stored(t, d, "east"))
	few := brokertest.Grant("west")
	few.Gateways = 2
	_, err := broker.AddMember(ctx, joiner, d.NS, "west", "uid-west",
		broker.Reservation{ToPublish: map[string]int{"endpoints": 9}, Grant: few})
	require.NoError(t, err)
	require.Equal(t, 1+2+8+16, stored(t, d, "west"))
	few.Gateways = 16
	_, err = broker.AddMember(ctx, joiner, d.NS, "west", "uid-west",
		broker.Reservation{ToPublish: map[string]int{"endpoints": 5}, Grant: few})
	require.NoError(t, err)
	require.Equal(t, 1+5+8+16, stored(t, d, "west"), "joining again adds what is missing")

	more := broker.Reservation{ToPublish: map[string]int{"endpoints": 5, "cablepolicies": 20}, Grant: few}
	_, err = broker.AddMember(ctx, joiner, d.NS, "west", "uid-west", more)
	require.NoError(t, err)
	require.Equal(t, 1+5+20+16, stored(t, d, "west"), "also policies")
	more.ToPublish["cablepolicies"] = 99
	_, err = broker.AddMember(ctx, joiner, d.NS, "west", "uid-west", more)
	require.NoError(t, err)
	require.Equal(t, 1+5+32+16, stored(t, d, "west"), "no more than a clusterset takes of one cluster")

	t.Log("what a cluster has to publish must fit into the quota, the rest need not")
	used := func(n int) string { return fmt.Sprint(8 + 32 + n) }
	limit(t, d, used(1), "count/cablepolicies.submariner.io")
	_, err = broker.AddMember(ctx, joiner, d.NS, "north", "uid-north", broker.Reservation{})
	require.NoError(t, err)
	require.Equal(t, 1+4+1+16, stored(t, d, "north"))
	_, err = broker.AddMember(ctx, joiner, d.NS, "south", "uid-south", broker.Reservation{})
	require.ErrorContains(
		t,
		err,
		"the broker has no room for the cablepolicies that cluster south needs, 1: remove clusters that are gone for good with subctl revoke, or, if the quota submariner-k8s-broker in namespace "+
			d.NS+" is less than 2000, raise it: ",
	)
	require.ErrorContains(t, err, "exceeded quota")
	limit(t, d, used(3), "count/cablepolicies.submariner.io")
	more.ToPublish["cablepolicies"] = 4
	_, err = broker.AddMember(ctx, joiner, d.NS, "north", "uid-north", more)
	require.ErrorContains(t, err, "no room for the cablepolicies that cluster north needs, 4")
	limit(t, d, "2000", "count/cablepolicies.submariner.io")
	_, err = broker.AddMember(ctx, joiner, d.NS, "broker-only", "uid",
		broker.Reservation{Kinds: exchange.KindsFrom(v1alpha1.PoliciesFromBroker)})
	require.NoError(t, err)
	require.Equal(t, 1+4+16, stored(t, d, "broker-only"), "it can publish no policies")

	t.Log("who leaves, and who is revoked, leaves nothing")
	require.NoError(
		t,
		broker.RemoveMember(ctx, d.Admin, d.NS, []string{submarinerv1.DefaultClusterSet}, "west",
			brokertest.Administrator().Public()),
	)
	require.NoError(
		t,
		d.Admin.Delete(ctx,
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "cluster-east", Namespace: d.NS}}),
	)
	require.Eventually(t, func() bool { return stored(t, d, "east")+stored(t, d, "west") == 0 }, patience, tick)
	require.NoError(t,
		broker.Revoke(ctx, d.Admin, d.NS, []string{"default"}, "north", brokertest.Administrator(), time.Now()))
	require.Equal(t, 1, stored(t, d, "north"), "the revocation")
	north := d.Join(t, "north", "uid-north")
	require.Equal(t, 1+4+8+16, stored(t, d, "north"))
	require.NoError(t, fillOrChange(ctx, north, cluster(d.NS, "north")), "it takes the place of the revocation")
	d.Join(t, "north", "uid-north") // again
	require.Equal(t, 1+4+8+16, stored(t, d, "north"))
}

// What a member stores under other names, in other namespaces and of other kinds is refused, by
// rights or by the admission policy.
func TestHostileNames(t *testing.T) {
	d := deploy(t, kubetest.Shared(t), "lab")
	east := d.Join(t, "east", "uid-east")
	ctx := t.Context()
	refused := func(what string, err error) {
		t.Helper()
		require.True(t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%s: %v", what, err)
		require.NotContains(t, err.Error(), "exceeded quota", what)
	}
	lab := broker.NamespaceIn(d.NS, "lab")
	for resource, of := range slotted {
		n := share(t, of(d.NS, "east", 0))
		for _, name := range []string{
			"east",
			"east.",
			"east..0",
			"east.0.",
			"east.0.0",
			"east.00",
			"east.01",
			"east.-0",
			"east.-1",
			"east.+1",
			"east.1e0",
			"east.0x1",
			"east.٣",
			fmt.Sprint("east.", n),
			"east.99",
			"east.999",
			"east.9999",
			"east.99999",
			"east.99999999999999999999",
			"easta.0",
			"east-b.0",
			"EAST.0",
			" east.0",
			"east.0 ",
			"west.0",
			"west",
			"p",
			"default",
			".0",
			"0",
		} {
			o := of(d.NS, "east", 0)
			o.SetName(name)
			refused(resource+" "+name, east.Create(ctx, o))
			o = of(d.NS, "east", 0)
			o.SetName("")
			o.SetGenerateName(name)
			refused(resource+" generated from "+name, east.Create(ctx, o))
		}
		refused("another member's slot", east.Create(ctx, of(d.NS, "west", 0)))
		refused("another clusterset", east.Create(ctx, of(lab, "east", 0)))
		long := of(d.NS, "east", 0)
		brokertest.Annotate(long, submarinerv1.NameAnnotation, strings.Repeat("x", 300))
		refused("a long name in clusters", east.Create(ctx, long))
	}
	for what, o := range map[string]client.Object{
		"a second Cluster": cluster(d.NS, "east.0"),
		"a Gateway":        &submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "east.0", Namespace: d.NS}},
		"a Submariner":     &v1alpha1.Submariner{ObjectMeta: metav1.ObjectMeta{Name: "east", Namespace: d.NS}},
		"a Broker":         &v1alpha1.Broker{ObjectMeta: metav1.ObjectMeta{Name: "east", Namespace: d.NS}},
		"a ConfigMap":      &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "east", Namespace: d.NS}},
		"a Secret":         &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "east", Namespace: d.NS}},
		"a service account": &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: "cluster-east2", Namespace: d.NS},
		},
		"an Event": &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "east", Namespace: d.NS},
			InvolvedObject: corev1.ObjectReference{Namespace: d.NS},
		},
		"a quota":     &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "east", Namespace: d.NS}},
		"a namespace": &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.NS + "-east"}},
	} {
		refused(what, east.Create(ctx, o))
	}
	require.Equal(t, 1+4+8+16, stored(t, d, "east"), "what is reserved")

	t.Log("a member that deletes its identity may write for a moment, under the same names")
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: broker.MemberName("east"), Namespace: d.NS}}
	require.NoError(t, east.Delete(ctx, sa))
	for _, of := range slotted {
		for i := range 40 {
			_ = east.Create(ctx, of(d.NS, "east", i))
		}
	}
	require.LessOrEqual(t, stored(t, d, "east"), len(full(t, d.NS, "east")))
}

// share returns how many objects of a kind a member can store.
func share(t *testing.T, o client.Object) int {
	t.Helper()
	k, err := exchange.Kinds().Of(o)
	require.NoError(t, err)
	return k.PerCluster
}
