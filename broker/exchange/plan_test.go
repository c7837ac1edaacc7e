package exchange_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
)

const here = "submariner-operator"

// unlabelled returns o as its own cluster has it.
func unlabelled(o client.Object) client.Object {
	o.SetNamespace(here)
	o.SetLabels(nil)
	return o
}

// copied returns o as a cluster has it that is in the given sets with its owner.
func copied(o client.Object, sets string) client.Object {
	signed("", o)
	o.SetNamespace(here)
	if token, ok := o.GetAnnotations()[submarinerv1.GrantAnnotation]; ok {
		brokertest.Annotate(o, submarinerv1.GrantAnnotation, trust.Bare(token))
	}
	brokertest.Annotate(o, submarinerv1.ClusterSetsAnnotation, sets)
	return o
}

// set returns a clusterset with objects, which their owners have signed.
func set(name string, objects ...client.Object) exchange.SetSnapshot {
	for _, o := range objects {
		brokertest.PublishIn(signed(name, o), name)
	}
	return unsigned(name, objects...)
}

// unsigned returns a clusterset with objects as they are.
func unsigned(name string, objects ...client.Object) exchange.SetSnapshot {
	ns := broker.NamespaceIn(submarinerv1.BrokerNamespace, name)
	for _, o := range objects {
		o.SetNamespace(ns)
	}
	return exchange.SetSnapshot{Set: exchange.Set{Name: name, Namespace: ns}, Known: true, Objects: objects}
}

func unread(name string) exchange.SetSnapshot {
	s := set(name)
	s.Known = false
	return s
}

func with(o client.Object, change func(client.Object)) client.Object {
	change(o)
	return o
}

func TestPlan(t *testing.T) {
	east := func() client.Object { return cluster("x", "east") }
	west := func() client.Object { return cluster("x", "west") }
	gateway := func(id string) client.Object { return endpoint("x", id, "192-0-2-1") }
	for name, tc := range map[string]struct {
		local   []client.Object
		sets    []exchange.SetSnapshot
		writes  []string
		refused []string
	}{
		"nothing": {sets: []exchange.SetSnapshot{set("default")}},
		"ours go there": {
			local: []client.Object{unlabelled(east()), unlabelled(gateway("east"))},
			sets:  []exchange.SetSnapshot{set("default"), set("lab")},
			writes: []string{
				"create Cluster east on the broker in clusterset default",
				"create Cluster east on the broker in clusterset lab",
				"create Endpoint east-submariner-cable-east-192-0-2-1 on the broker in clusterset default",
				"create Endpoint east-submariner-cable-east-192-0-2-1 on the broker in clusterset lab",
			},
		},
		"ours are there": {
			local: []client.Object{unlabelled(east())},
			sets:  []exchange.SetSnapshot{set("default", east())},
		},
		"ours are gone": {
			sets:   []exchange.SetSnapshot{set("default", east())},
			writes: []string{"delete Cluster east on the broker in clusterset default"},
		},
		"ours were relabelled there": {
			local: []client.Object{unlabelled(east())},
			sets: []exchange.SetSnapshot{
				set(
					"default",
					with(east(), func(o client.Object) {
						o.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: "west"})
					}),
				),
			},
			writes: []string{"update Cluster east on the broker in clusterset default"},
		},
		"theirs come here": {
			sets:   []exchange.SetSnapshot{set("default", west(), gateway("west"))},
			writes: []string{"create Cluster west here", "create Endpoint west-submariner-cable-west-192-0-2-1 here"},
		},
		"theirs are here": {
			local: []client.Object{copied(west(), "default")},
			sets:  []exchange.SetSnapshot{set("default", west())},
		},
		"theirs are gone": {
			local:  []client.Object{copied(west(), "default")},
			sets:   []exchange.SetSnapshot{set("default")},
			writes: []string{"delete Cluster west here"},
		},
		"one copy of two": {
			local: []client.Object{copied(west(), "default,lab")},
			sets:  []exchange.SetSnapshot{set("lab", west()), set("default", west())},
		},
		"gone from one set of two": {
			local:  []client.Object{copied(west(), "default,lab")},
			sets:   []exchange.SetSnapshot{set("default", west()), set("lab")},
			writes: []string{"update Cluster west here"},
		},
		"nothing is deleted that an unread set may hold": {
			local: []client.Object{
				copied(west(), "default,lab"),
				copied(cluster("x", "north"), "lab"),
				copied(cluster("x", "south"), ""),
			},
			sets: []exchange.SetSnapshot{set("default", west()), unread("lab")},
		},
		"an unread set does not hold up another": {
			local:  []client.Object{copied(west(), "default")},
			sets:   []exchange.SetSnapshot{set("default", cluster("x", "north")), unread("lab")},
			writes: []string{"create Cluster north here", "delete Cluster west here"},
		},
		"we left a set": {
			local:  []client.Object{copied(west(), "lab")},
			sets:   []exchange.SetSnapshot{set("default")},
			writes: []string{"delete Cluster west here"},
		},
		"we left a set, and the others may not have been looked at then": {
			local:  []client.Object{copied(west(), "lab"), copied(cluster("x", "north"), "default")},
			sets:   []exchange.SetSnapshot{set("default"), unread("prod")},
			writes: []string{"delete Cluster north here"},
		},
		"nothing is written to an unread set": {
			local: []client.Object{unlabelled(east())},
			sets:  []exchange.SetSnapshot{unread("default")},
		},
		"a copy was changed by hand": {
			local: []client.Object{
				with(copied(west(),
					"default"), func(o client.Object) { o.(*submarinerv1.Cluster).Spec.ClusterCIDR = nil }),
			},
			sets:   []exchange.SetSnapshot{set("default", west())},
			writes: []string{"update Cluster west here"},
		},
		"another cluster says it is us": {
			sets: []exchange.SetSnapshot{
				set("default",
					with(west(), func(o client.Object) { o.(*submarinerv1.Cluster).Spec.ClusterID = "east" })),
			},
			refused: []string{
				"Cluster submariner-k8s-broker/west on the broker: it claims to belong to this cluster, but is not named after it",
			},
		},
		"our label on the object of another": {
			sets: []exchange.SetSnapshot{
				set(
					"default",
					with(west(), func(o client.Object) {
						o.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: "east"})
					}),
				),
			},
			refused: []string{
				"Cluster submariner-k8s-broker/west on the broker: it claims to belong to this cluster, but is not named after it",
			},
		},
		"no label": {
			sets: []exchange.SetSnapshot{set("default", with(west(), func(o client.Object) { o.SetLabels(nil) }))},
			refused: []string{
				"Cluster submariner-k8s-broker/west on the broker: it has no label submariner-io/clusterID",
			},
		},
		"a label that is no cluster ID": {
			sets: []exchange.SetSnapshot{
				set(
					"default",
					with(west(), func(o client.Object) {
						o.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: "We.st"})
					}),
				),
			},
			refused: []string{`Cluster submariner-k8s-broker/west on the broker: "We.st" is not a cluster ID`},
		},
		"label and spec disagree": {
			sets: []exchange.SetSnapshot{
				set("default",
					with(west(), func(o client.Object) { o.(*submarinerv1.Cluster).Spec.ClusterID = "north" })),
			},
			refused: []string{
				`Cluster submariner-k8s-broker/west on the broker: spec.cluster_id is "north", not "west"`,
			},
		},
		"an endpoint of another name": {
			sets: []exchange.SetSnapshot{
				set("default",
					with(gateway("west"), func(o client.Object) { o.SetName("north-submariner-cable-north-1") })),
			},
			refused: []string{
				`Endpoint submariner-k8s-broker/north-submariner-cable-north-1 on the broker: its name is not one of the names that cluster "west" may give its endpoints`,
			},
		},
		"an endpoint of another cable": {
			sets: []exchange.SetSnapshot{
				set("default",
					with(gateway("west"), func(o client.Object) { o.(*submarinerv1.Endpoint).Spec.CableName = "x" })),
			},
			refused: []string{
				`Endpoint submariner-k8s-broker/west-submariner-cable-west-192-0-2-1 on the broker: spec.cable_name is "x", but it is not named after that cable`,
			},
		},
		"too large": {
			sets: []exchange.SetSnapshot{set("default", with(gateway("west"), func(o client.Object) {
				o.SetAnnotations(map[string]string{"a": strings.Repeat("x", 16_114)})
			}))},
			refused: []string{
				"Endpoint submariner-k8s-broker/west-submariner-cable-west-192-0-2-1 on the broker: it has 16385 bytes, more than 16384",
			},
		},
		"in the way": {
			local: []client.Object{unlabelled(west())},
			sets:  []exchange.SetSnapshot{set("default", west())},
			refused: []string{
				"Cluster submariner-operator/west in this cluster: spec.cluster_id is \"west\", not \"east\"",
				"Cluster submariner-k8s-broker/west on the broker: this cluster has an object of that name",
			},
		},
		"ours with a label": {
			local:  []client.Object{with(east(), func(o client.Object) { o.SetNamespace(here) })},
			sets:   []exchange.SetSnapshot{set("default")},
			writes: []string{"create Cluster east on the broker in clusterset default"},
		},
		"ours with the label of another": {
			local: []client.Object{with(east(), func(o client.Object) {
				o.SetNamespace(here)
				o.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: "west"})
			})},
			sets:   []exchange.SetSnapshot{set("default", east(), west())},
			writes: []string{"create Cluster west here"},
		},
		"ours became invalid": { // what is published stays
			local: []client.Object{
				with(
					unlabelled(
						east()),
					func(o client.Object) { o.SetNamespace(here); o.(*submarinerv1.Cluster).Spec.ClusterID = "north" },
				),
			},
			sets: []exchange.SetSnapshot{set("default", east())},
			refused: []string{
				"Cluster submariner-operator/east in this cluster: spec.cluster_id is \"north\", not \"east\"",
			},
		},
		"names that start alike": { // cluster east-b may not be taken for east
			sets: []exchange.SetSnapshot{
				set("default", cluster("x", "east-b"), endpoint("x", "east-b", "192-0-2-1")),
			},
			writes: []string{
				"create Cluster east-b here",
				"create Endpoint east-b-submariner-cable-east-b-192-0-2-1 here",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			writes, refused := plan(exchange.Kinds(),
				exchange.Snapshot{ClusterID: "east", Namespace: here, Local: tc.local, Sets: tc.sets})
			require.Equal(t, tc.writes, texts(writes))
			require.Equal(t, tc.refused, texts(refused))
		})
	}
}

func texts[T fmt.Stringer](list []T) (out []string) {
	for _, x := range list {
		out = append(out, x.String())
	}
	return out
}

func TestManyObjectsOfOneCluster(t *testing.T) {
	var objects []client.Object
	for i := range 20 {
		objects = append(objects, endpoint("x", "west", fmt.Sprintf("10-0-0-%x", i)))
	}
	writes, refused := plan(exchange.Kinds(),
		exchange.Snapshot{ClusterID: "east", Namespace: here, Sets: []exchange.SetSnapshot{set("default", objects...)}})
	require.Len(t, writes, 16)
	require.Len(t, refused, 4)
}

// What is copied, exactly.
func TestFederatedFields(t *testing.T) {
	o := cluster("x", "east")
	o.Labels = map[string]string{"a": "b", "submariner.io/clusterset": "forged", "submariner-io/x": "y"}
	o.Annotations = map[string]string{
		"c": "d", corev1.LastAppliedConfigAnnotation: "{}", submarinerv1.ClusterSetsAnnotation: "forged",
	}
	o.Namespace = here
	o.UID = "uid"
	o.ResourceVersion = "7"
	o.Finalizers = []string{"f"}
	writes, _ := plan(
		exchange.Kinds(),
		exchange.Snapshot{
			ClusterID: "east",
			Namespace: here,
			Local:     []client.Object{o},
			Sets:      []exchange.SetSnapshot{set("default")},
		},
	)
	want := cluster("submariner-k8s-broker", "east")
	want.Labels = map[string]string{"a": "b", submarinerv1.ClusterIDLabel: "east"}
	want.Spec.ClusterSets = []string{"default"}
	brokertest.SignAt(want, "", now.UnixMilli())
	brokertest.PublishIn(want, "default")
	require.Equal(t, want, writes[0].Object)
	token := brokertest.Identity("east").Grant
	brokertest.Annotate(want, submarinerv1.GrantAnnotation, token)

	writes, _ = plan(
		exchange.Kinds(),
		exchange.Snapshot{
			ClusterID: "west",
			Namespace: here,
			Sets:      []exchange.SetSnapshot{set("lab", want.DeepCopy()), set("default", want.DeepCopy())},
		},
	)
	want.Namespace = here
	want.Annotations[submarinerv1.ClusterSetsAnnotation] = "default,lab"
	want.Annotations[submarinerv1.GrantAnnotation] = trust.Bare(token)
	want.Spec.ClusterSets = []string{"default", "lab"}
	require.Equal(t, want, writes[0].Object)
}

// A reader copies only what may be copied, whatever a member or the broker writes.
func TestLabelsAndAnnotationsOfOthers(t *testing.T) {
	o := cluster("x", "east")
	o.Annotations = map[string]string{
		"kubectl.kubernetes.io/restartedAt": "now",
		submarinerv1.PoliciesAnnotation:     "forged",
		submarinerv1.CableConfigAnnotation:  "forged",
	}
	o.Labels["submariner.io/gateway"] = "true"
	o.Labels["submariner-io/other"] = "true"
	for i := range 100 {
		o.Labels[fmt.Sprintf("l%03d", i)] = "v"
	}
	kinds := exchange.Kinds()
	plan := func() client.Object {
		writes, refused := plan(
			kinds,
			exchange.Snapshot{
				ClusterID: "west",
				Namespace: here,
				Sets:      []exchange.SetSnapshot{unsigned("default", brokertest.SignOf(kinds, o, ""))},
			},
		)
		require.Empty(t, refused)
		require.Len(t, writes, 1)
		return withoutProofs(writes[0].Object)
	}
	copied := plan()
	want := map[string]string{submarinerv1.ClusterIDLabel: "east"}
	for i := range submarinerv1.MaxLabels {
		want[fmt.Sprintf("l%03d", i)] = "v"
	}
	require.Equal(t, want, copied.GetLabels())
	require.Equal(t, map[string]string{submarinerv1.ClusterSetsAnnotation: "default"}, copied.GetAnnotations())

	t.Log("an annotation that the kind lists is copied")
	for i := range kinds {
		if kinds[i].Name == "Cluster" {
			kinds[i].Named.Annotations = []string{"kubectl.kubernetes.io/restartedAt"}
		}
	}
	require.Equal(t, "now", plan().GetAnnotations()["kubectl.kubernetes.io/restartedAt"])
}

func BenchmarkPlan1000Clusters(b *testing.B) {
	var remote, local []client.Object
	for i := range 1000 {
		id := fmt.Sprintf("c%d", i)
		remote = append(remote, cluster("x", id), endpoint("x", id, "192-0-2-1"))
		local = append(local, copied(cluster("x", id), "default"), copied(endpoint("x", id, "192-0-2-1"), "default"))
	}
	s := exchange.Snapshot{
		ClusterID: "east",
		Namespace: here,
		Local:     local,
		Sets:      []exchange.SetSnapshot{set("default", remote...)},
	}
	for b.Loop() {
		if writes, _ := plan(exchange.Kinds(), s); len(writes) > 0 {
			b.Fatal(writes[0])
		}
	}
}
