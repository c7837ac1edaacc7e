package broker_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

// attack is something a member tries. Each leaves what it found when denied.
type attack struct {
	name string
	do   func(ctx context.Context, member client.Client) error
}

// foreignWrites is every way to write the object of another member, which
// exists, and to make one in its name, which does not.
func foreignWrites(victim, missing client.Object) []attack {
	fresh := func(o client.Object) client.Object { return o.DeepCopyObject().(client.Object) }
	get := func(ctx context.Context, c client.Client) (client.Object, error) {
		o := fresh(victim)
		return o, c.Get(ctx, client.ObjectKeyFromObject(victim), o)
	}
	update := func(change func(client.Object)) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			o, err := get(ctx, c)
			if err != nil {
				return nil // to be able to read it is part of the attack
			}
			change(o)
			return c.Update(ctx, o)
		}
	}
	patch := func(data string) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, fresh(victim), client.RawPatch(types.MergePatchType, []byte(data)))
		}
	}
	relabelled := func(o client.Object) { o.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: "east"}) }
	return []attack{
		{"create", func(ctx context.Context, c client.Client) error { return c.Create(ctx, fresh(missing)) }},
		{"create with our label", func(ctx context.Context, c client.Client) error {
			o := fresh(missing)
			relabelled(o)
			return c.Create(ctx, o)
		}},
		{"update", update(func(o client.Object) { brokertest.Annotate(o, "a", "b") })},
		{"patch", patch(`{"metadata":{"annotations":{"a":"b"}}}`)},
		{"apply", func(ctx context.Context, c client.Client) error {
			o := fresh(victim)
			o.SetResourceVersion("")
			return kube.Apply(ctx, c, "attacker", o)
		}},
		{"relabel", update(relabelled)},
		{"relabel by patch", patch(`{"metadata":{"labels":{"submariner-io/clusterID":"east"}}}`)},
		{"steal", func(ctx context.Context, c client.Client) error {
			spec := `{"cluster_id":"east"}`
			switch victim.(type) {
			case *v1alpha1.CablePolicies:
				spec = `[{"name":"vxlan"}]`
			case *v1alpha1.ExportedServices:
				spec = `{"clusterID":"east"}`
			}
			return patch(`{"metadata":{"labels":{"submariner-io/clusterID":"east"}},"spec":`+spec+`}`)(ctx, c)
		}},
		{"unlabel", patch(`{"metadata":{"labels":null}}`)},
		{"add a finalizer", patch(`{"metadata":{"finalizers":["x.io/y"]}}`)},
		{"write the status", func(ctx context.Context, c client.Client) error {
			if _, ok := victim.(*v1alpha1.CablePolicies); !ok {
				return c.Patch(ctx, fresh(victim), client.RawPatch(types.MergePatchType, []byte(`{"status":{}}`)))
			}
			return c.Status().Patch(ctx, fresh(victim),
				client.RawPatch(types.MergePatchType, []byte(`{"status":{"clusterSets":["x"]}}`)))
		}},
		{"delete", func(ctx context.Context, c client.Client) error { return c.Delete(ctx, fresh(victim)) }},
		{"delete all", func(ctx context.Context, c client.Client) error {
			return c.DeleteAllOf(ctx, fresh(victim), client.InNamespace(victim.GetNamespace()))
		}},
		{"delete by label", func(ctx context.Context, c client.Client) error {
			return c.DeleteAllOf(ctx, fresh(victim), client.InNamespace(victim.GetNamespace()),
				client.MatchingLabels{submarinerv1.ClusterIDLabel: "west"})
		}},
	}
}

// rename returns o under another name and with another cluster ID in its label,
// so that every field but one may be right.
func rename(o client.Object, name, label string) client.Object {
	o.SetName(name)
	o.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: label})
	return o
}

// unsigned removes the signature of an object.
func unsigned(o client.Object) client.Object {
	o.SetAnnotations(nil)
	return o
}

// misnamed is every object that says different things of whose it is.
func misnamed(ns string) map[string]lie {
	lying := func(id, spec string) client.Object {
		c := cluster(ns, id)
		c.Spec.ClusterID = spec
		return c
	}
	gateway := func(id, address string) *submarinerv1.Endpoint {
		return brokertest.InSlot(endpoint(ns, id, address), "east", 0)
	}
	cable := func(name string) client.Object {
		e := endpoint(ns, "east", "10-0-0-7")
		e.Name = name
		return brokertest.InSlot(e, "east", 0)
	}
	in := func(slot string) client.Object {
		e := gateway("east", "10-0-0-7")
		e.Name = slot
		return e
	}
	const slots = "it has the names east.0 to east.15, and the name in clusters is in annotation submariner.io/name"
	far := gateway("east", "10-0-0-8")
	foreign := gateway("east", "10-0-0-8")
	far.Spec.ClusterID = "west"
	foreign.Labels[submarinerv1.ClusterIDLabel] = "west"
	prefix := gateway("east-b", "10-0-0-9")
	prefix.Labels[submarinerv1.ClusterIDLabel] = "east"
	prefix.Spec.ClusterID = "east"
	policy := func(name, label string) client.Object {
		p := brokertest.InSlot(shared(ns, "east", name), "east", 0)
		p.Labels[submarinerv1.ClusterIDLabel] = label
		return p
	}
	page := func(n int, change func(*v1alpha1.ExportedServices)) client.Object {
		p := brokertest.Page(ns, "east", n)
		change(p)
		return brokertest.InSlot(p, "east", 0)
	}
	const pages = "its own are named east-services-<page>"
	return map[string]lie{
		"own page, foreign ID": {
			page(0, func(p *v1alpha1.ExportedServices) { p.Spec.ClusterID = "west" }),
			"",
		},
		"own page, foreign label": {
			page(0, func(p *v1alpha1.ExportedServices) { p.Labels[submarinerv1.ClusterIDLabel] = "west" }),
			`is "west", not east`,
		},
		"a page too many": {
			page(64, func(p *v1alpha1.ExportedServices) { p.Spec.Pages = 64 }),
			pages,
		},
		"page of a number with a zero": {page(0, func(p *v1alpha1.ExportedServices) { p.Name += "0" }), pages},
		"page of a name that starts so": {
			page(0, func(p *v1alpha1.ExportedServices) { p.Name = "east-b-services-0" }),
			pages,
		},
		"page whose name reads two ways": {
			page(0, func(p *v1alpha1.ExportedServices) { p.Name = "east-services-1-services-0" }),
			pages,
		},
		"page in the first slot too many": {
			brokertest.InSlot(brokertest.Page(ns, "east", 0), "east", 64),
			"it has the names east.0 to east.63",
		},
		"page in a slot of another": {
			brokertest.InSlot(brokertest.Page(ns, "east", 0), "west", 0),
			"it has the names east.0 to east.63",
		},
		"page in a slot, without its name": {unnamed(page(0, func(*v1alpha1.ExportedServices) {})), pages},
		"own Cluster, foreign ID":          {lying("east", "west"), ""},
		"own Cluster, foreign label":       {rename(cluster(ns, "east"), "east", "west"), `is "west", not east`},
		"own Cluster, no label":            {rename(cluster(ns, "east"), "east", ""), `is "", not east`},
		"own Cluster, foreign name": {
			rename(cluster(ns, "east"), "north", "east"),
			"may not write the Cluster north",
		},
		"own Endpoint, foreign ID":    {far, ""},
		"own Endpoint, foreign label": {foreign, `is "west", not east`},
		"own Endpoint, other cable": {
			cable("east-submariner-cable-east-10-0-0-8"),
			"is not named after its spec.cable_name",
		},
		"own Endpoint, any name": {
			cable("east"),
			"may not write the Endpoint east: its own are named east-submariner-cable-east-<address>",
		},
		"Endpoint of a name that starts so": {
			prefix,
			"may not write the Endpoint east-b-submariner-cable-east-b-10-0-0-9",
		},
		"Endpoint whose name reads two ways": {
			cable("east-submariner-cable-east-x-submariner-cable-east-submariner-cable-east-x-1"),
			"its own are named",
		},
		"Endpoint without a slot":              {endpoint(ns, "east", "10-0-0-7"), slots},
		"Endpoint in a slot of another":        {in("west.0"), slots},
		"Endpoint in a slot that starts alike": {in("east-b.0"), slots},
		"Endpoint in the first slot too many":  {in("east.16"), slots},
		"Endpoint in a slot with a zero":       {in("east.00"), slots},
		"Endpoint in a slot that is no number": {in("east.a"), slots},
		"Endpoint in a slot of a large number": {in("east.99999999999999999999"), slots},
		"Endpoint in a slot of a slot":         {in("east.0.0"), slots},
		"Endpoint in a slot, without its name": {
			unnamed(gateway("east", "10-0-0-7")),
			"may not write the Endpoint east.0: its own are named",
		},
		"Cluster of a name that starts alike": {lying("east-b", "east-b"), "may not write the Cluster east-b"},
		"Cluster in a slot": {
			brokertest.InSlot(cluster(ns, "east"), "east", 0),
			"may not write the Cluster east.0",
		},
		"policy, foreign label": {policy("p", "west"), `is "west", not east`},
		"policy, no label":      {policy("p", ""), `is "", not east`},
		"policy without a slot": {
			shared(ns, "east", "p"),
			"may not write the cable policy p: it has the names east.0 to east.31",
		},
		"policy in the first slot too many": {
			brokertest.InSlot(shared(ns, "east", "p"), "east", 32),
			"it has the names east.0 to east.31",
		},
		"no signature": {
			unsigned(cluster(ns, "east")),
			"has no annotation submariner.io/signature",
		},
		"policy of the broker":               {policy("p", submarinerv1.BrokerID), `is "BROKER", not east`},
		"policy of a name that is none":      {policy("p.lab", "east"), "p.lab cannot name a cable policy"},
		"policy in a slot, without its name": {unnamed(policy("p", "east")), "east.0 cannot name a cable policy"},
	}
}

// lie is an object that a member may not write, and why; empty if either of two admission policies
// answers.
type lie struct {
	client.Object
	why string
}

// unnamed removes the name that an object in a slot has in clusters.
func unnamed(o client.Object) client.Object {
	annotations := o.GetAnnotations()
	delete(annotations, submarinerv1.NameAnnotation)
	return o
}

// A member writes nothing but its own: a matrix of what it tries, with objects of all kinds.
func TestHostileMember(t *testing.T) {
	d := deploy(t, kubetest.Shared(t))
	east := d.Join(t, "east", "uid-east")
	west := d.Join(t, "west", "uid-west")
	d.Join(t, "east-b", "uid-b")
	ctx := t.Context()

	t.Log("what is its own")
	own := []client.Object{
		cluster(d.NS, "east"),
		brokertest.InSlot(endpoint(d.NS, "east", "10-0-0-1"), "east", 0),
		brokertest.InSlot(endpoint(d.NS, "east", "fd00--1"), "east", 15),
		brokertest.InSlot(shared(d.NS, "east", "own"), "east", 31),
		brokertest.InSlot(brokertest.Page(d.NS, "east", 63), "east", 63),
	}
	for _, o := range own {
		require.NoError(t, east.Create(ctx, o))
		brokertest.Annotate(o, "a", "b")
		require.NoError(t, east.Update(ctx, o))
		require.NoError(t,
			east.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"c":"d"}}}`))))
		require.NoError(t, kube.Apply(ctx, east, "east", o))
	}
	require.NoError(
		t,
		east.DeleteAllOf(ctx, &submarinerv1.Endpoint{}, client.InNamespace(d.NS),
			client.MatchingLabels{submarinerv1.ClusterIDLabel: "east"}),
	)
	require.NoError(t, east.Delete(ctx, own[0]))
	require.NoError(
		t,
		east.DeleteAllOf(ctx, &v1alpha1.CablePolicies{}, client.InNamespace(d.NS),
			client.MatchingLabels{submarinerv1.ClusterIDLabel: "east"}),
	)
	require.NoError(
		t,
		east.DeleteAllOf(ctx, &v1alpha1.ExportedServices{}, client.InNamespace(d.NS),
			client.MatchingLabels{submarinerv1.ClusterIDLabel: "east"}),
	)

	t.Log("what is of another, and what is nobody's")
	brokers := shared(d.NS, "", "of-the-broker")
	brokers.Labels = nil
	victims := []client.Object{
		cluster(d.NS, "west"),
		brokertest.InSlot(endpoint(d.NS, "west", "10-0-0-1"), "west", 0),
		brokertest.InSlot(shared(d.NS, "west", "of-west"), "west", 0),
		brokers,
		brokertest.InSlot(brokertest.Page(d.NS, "west", 0), "west", 0),
	}
	for i, o := range victims {
		maker := west
		if i == 3 {
			maker = d.Admin
		}
		require.NoError(t, maker.Create(ctx, o))
	}
	unlabelled := brokers.DeepCopy()
	unlabelled.Name = "in-nobodys-name"
	unlabelled.ResourceVersion = ""
	missing := []client.Object{
		cluster(d.NS, "north"),
		brokertest.InSlot(endpoint(d.NS, "west", "10-0-0-2"), "west", 1),
		brokertest.InSlot(shared(d.NS, "west", "in-wests-name"), "west", 1),
		unlabelled,
		brokertest.InSlot(brokertest.Page(d.NS, "west", 1), "west", 1),
	}
	for i, victim := range victims {
		for _, a := range foreignWrites(victim, missing[i]) {
			t.Run(fmt.Sprintf("%s %T %s", a.name, victim, victim.GetName()), func(t *testing.T) {
				err := a.do(ctx, east)
				require.True(t, apierrors.IsForbidden(err), "%v", err)
			})
		}
		after := victim.DeepCopyObject().(client.Object)
		require.NoError(t, west.Get(ctx, client.ObjectKeyFromObject(victim), after))
		require.Equal(t, victim.GetResourceVersion(), after.GetResourceVersion(), "it was changed")
	}
	for name, o := range misnamed(d.NS) {
		t.Run("create "+name, func(t *testing.T) {
			err := east.Create(ctx, o.Object)
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err, o.why)
		})
	}

	t.Log("what is the broker's")
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: d.NS} }
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: meta("cluster-west-token")},
		&corev1.ServiceAccount{ObjectMeta: meta("cluster-west")},
		&corev1.ServiceAccount{ObjectMeta: meta(broker.JoinerName)},
		&rbacv1.Role{ObjectMeta: meta("cluster-west")},
		&rbacv1.RoleBinding{ObjectMeta: meta("cluster-west")},
		&v1alpha1.Broker{ObjectMeta: meta(v1alpha1.BrokerName)},
		&corev1.ConfigMap{ObjectMeta: meta("submariner-globalnet-info")},
	} {
		for _, a := range foreignWrites(o,
			func() client.Object { m := o.DeepCopyObject().(client.Object); m.SetName("more"); return m }()) {
			if a.name == "update" || a.name == "relabel" {
				continue // needs to read it first, which is tried below
			}
			t.Run(fmt.Sprintf("%s %T %s", a.name, o, o.GetName()), func(t *testing.T) {
				err := a.do(ctx, east)
				require.True(t, apierrors.IsForbidden(err), "%v", err)
			})
		}
	}
	for _, id := range []string{"west", "east"} {
		o := d.token(t, id)
		require.True(t, apierrors.IsForbidden(east.Get(ctx, client.ObjectKeyFromObject(o), o)))
	}
	require.True(t, apierrors.IsForbidden(east.List(ctx, &corev1.SecretList{}, client.InNamespace(d.NS))))
	require.True(t, apierrors.IsForbidden(east.List(ctx, &submarinerv1.ClusterList{})), "it sees other namespaces")
	require.NoError(t, east.List(ctx, &submarinerv1.ClusterList{}, client.InNamespace(d.NS)))
	require.True(
		t,
		apierrors.IsForbidden(
			east.Get(ctx, client.ObjectKey{Namespace: d.NS, Name: v1alpha1.BrokerName}, &v1alpha1.Broker{})),
		"a member may be in other clustersets only, and needs nothing of it",
	)

	t.Log("an administrator's change to its own can be mended")
	mine := cluster(d.NS, "east")
	require.NoError(t, east.Create(ctx, mine))
	require.NoError(
		t,
		d.Admin.Patch(
			ctx,
			mine,
			client.RawPatch(types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"submariner-io/clusterID":"west"}},"spec":{"cluster_id":"west"}}`)),
		),
	)
	require.True(t, apierrors.IsForbidden(west.Delete(ctx, mine)), "relabelling gave it away")
	mine.Labels = map[string]string{submarinerv1.ClusterIDLabel: "east"}
	mine.Spec.ClusterID = "east"
	require.NoError(t, east.Update(ctx, mine))
	require.NoError(
		t,
		broker.RemoveMember(ctx, east, d.NS, []string{submarinerv1.DefaultClusterSet}, "east",
			brokertest.Administrator().Public()),
	)
}

// The matrix can fail: without the policy the same attacks succeed.
func TestWithoutPolicyAttacksSucceed(t *testing.T) {
	d := deploy(t, kubetest.Shared(t))
	east := d.Join(t, "east", "uid-east")
	west := d.Join(t, "west", "uid-west")
	for _, name := range []string{"-member", "-labels"} {
		require.NoError(
			t,
			d.Admin.Delete(t.Context(),
				&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: d.NS + name}}),
		)
	}
	probe := func() bool {
		mislabelled := cluster(d.NS, "east")
		mislabelled.Labels[submarinerv1.ClusterIDLabel] = "west"
		return east.Create(t.Context(), cluster(d.NS, "foreign"), client.DryRunAll) == nil &&
			east.Create(t.Context(), mislabelled, client.DryRunAll) == nil
	}
	require.Eventually(t, probe, patience, tick)
	for i := range foreignWrites(cluster(d.NS, "x"), cluster(d.NS, "x")) {
		victim := cluster(d.NS, "west")
		require.NoError(t, client.IgnoreAlreadyExists(west.Create(t.Context(), victim)))
		missing := cluster(d.NS, "north")
		a := foreignWrites(victim, missing)[i]
		require.NoError(t, a.do(t.Context(), east), a.name)
		require.NoError(
			t,
			client.IgnoreNotFound(
				d.Admin.Patch(t.Context(), victim,
					client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))),
			),
		)
		require.NoError(t, d.Admin.DeleteAllOf(t.Context(), &submarinerv1.Cluster{}, client.InNamespace(d.NS)))
	}
}

// Nobody, not even an administrator of the broker, can give a Cluster a label that only
// our components set: the other clusters would ignore it, or decide by it.
func TestReservedLabels(t *testing.T) {
	d := deploy(t, kubetest.Shared(t))
	east := d.Join(t, "east", "uid-east")
	require.NoError(t, east.Create(t.Context(), cluster(d.NS, "east")))
	for _, test := range []struct{ labels, want string }{
		{`"site":"cloud","example.com/tier":"gold"`, ""},
		{`"submariner-io/clusterID":"east"`, ""},
		{`"submariner-io/clusterID":"west"`, "label submariner-io/clusterID is"},
		{`"submariner-io/other":"x"`, "reserved labels: submariner-io/other: choose other names"},
		{`"submariner.io/clusterset":"blue"`, "reserved labels: submariner.io/clusterset: choose other names"},
	} {
		for _, c := range []client.Client{east, d.Admin} {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{`+test.labels+`}}}`))
			err := c.Patch(t.Context(), cluster(d.NS, "east"), patch, client.DryRunAll)
			if test.want == "" {
				require.NoError(t, err, test.labels)
			} else {
				require.True(t, apierrors.IsForbidden(err), "%s: %v", test.labels, err)
				require.Contains(t, err.Error(), test.want)
			}
		}
	}
}

// On a broker that accepts only its own cable policies, a member can delete a policy, but neither
// create nor change one.
func TestHostilePolicyWriter(t *testing.T) {
	server := kubetest.Shared(t)
	o := broker.Options{PoliciesFrom: v1alpha1.PoliciesFromBroker}
	d := &deployed{brokertest.DeployWith(t, server, o)}
	d.LetCreate(t)
	east := d.Join(t, "east", "uid-east")
	ctx := t.Context()
	require.NoError(t, east.Create(ctx, cluster(d.NS, "east")), "other kinds are not affected")
	before := brokertest.InSlot(shared(d.NS, "east", "before"), "east", 0)
	require.NoError(t, d.Admin.Create(ctx, before))
	changed := before.DeepCopy()
	changed.ConnectionPolicies[0].CableDriver = "wireguard"
	for name, write := range map[string]func() error{
		"create": func() error { return east.Create(ctx, brokertest.InSlot(shared(d.NS, "east", "new"), "east", 1)) },
		"update": func() error { return east.Update(ctx, changed) },
		"patch": func() error {
			return east.Patch(ctx, before.DeepCopy(),
				client.RawPatch(types.MergePatchType, []byte(`{"spec":[{"name":"wireguard"}]}`)))
		},
		"apply": func() error {
			return kube.Apply(ctx, east, "east", brokertest.InSlot(shared(d.NS, "east", "applied"), "east", 2))
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := write()
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err, "this broker accepts no cable policy of a cluster")
		})
	}
	require.NoError(t, east.Delete(ctx, before))
}
