package exchange_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

// Two toy kinds are added to the table as CONTRIBUTING.md describes: a type, and a row of
// the table. Nothing else knows them.

// toyGroup is an API group of their own.
var toyGroup = schema.GroupVersion{Group: "toys.example.com", Version: "v1"}

// Beacon goes the way of Endpoints: it is named <cluster ID>.<name>.
type Beacon struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              BeaconSpec `json:"spec"`
}

// BeaconSpec is what is copied of a Beacon.
type BeaconSpec struct {
	Lights []string `json:"lights,omitempty"`
}

// BeaconList is a list of Beacons.
type BeaconList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Beacon `json:"items"`
}

func (b *Beacon) DeepCopyObject() runtime.Object {
	return &Beacon{
		TypeMeta:   b.TypeMeta,
		ObjectMeta: *b.ObjectMeta.DeepCopy(),
		Spec:       BeaconSpec{Lights: slices.Clone(b.Spec.Lights)},
	}
}

func (l *BeaconList) DeepCopyObject() runtime.Object {
	out := &BeaconList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Beacon))
	}
	return out
}

func beacons() exchange.Kind {
	return exchange.Kind{
		GroupVersion: toyGroup,
		Name:         "Beacon",
		Resource:     "beacons",
		Noun:         "Beacon",
		Object:       &Beacon{},
		List:         &BeaconList{},
		Fields:       func(o client.Object) []any { return []any{&o.(*Beacon).Spec} },
		Named: &exchange.Named{
			Names: exchange.NameRule{Prefix: "{id}.", Rest: regexp.MustCompile(`^[a-z0-9-]+$`), RestNoun: "name"},
		},
		MaxSize: 1 << 10,
		SizeVariable: admissionv1.Variable{
			Name:       "beaconSize",
			Expression: exchange.SizeOfLists("object.spec", "lights"),
		},
		PerCluster: 2,
		Reserved:   2,
		Quota:      10,
		Verbs:      []string{"get", "list", "watch", "update", "delete", "deletecollection"},
	}
}

// Notice goes the way of cable policies: it has any name, and no status.
type Notice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              NoticeSpec `json:"spec"`
}

// NoticeSpec is what is copied of a Notice.
type NoticeSpec struct {
	Text string `json:"text,omitempty"`
}

// NoticeList is a list of Notices.
type NoticeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Notice `json:"items"`
}

func (n *Notice) DeepCopyObject() runtime.Object {
	return &Notice{TypeMeta: n.TypeMeta, ObjectMeta: *n.ObjectMeta.DeepCopy(), Spec: n.Spec}
}

func (l *NoticeList) DeepCopyObject() runtime.Object {
	out := &NoticeList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Notice))
	}
	return out
}

func notices() exchange.Kind {
	return exchange.Kind{
		GroupVersion: toyGroup,
		Name:         "Notice",
		Resource:     "notices",
		Noun:         "notice",
		Object:       &Notice{},
		List:         &NoticeList{},
		Fields:       func(o client.Object) []any { return []any{&o.(*Notice).Spec} },
		Free: &exchange.Free{Check: func(o client.Object) error {
			if o.(*Notice).Spec.Text == "" {
				return fmt.Errorf("spec.text is empty")
			}
			return nil
		}},
		MaxSize: 1 << 10,
		SizeVariable: admissionv1.Variable{
			Name:       "noticeSize",
			Expression: "(has(object.spec.text) ? size(object.spec.text) : 0)",
		},
		PerCluster: 2,
		Reserved:   2,
		Quota:      10,
		Verbs:      []string{"get", "list", "watch", "update", "delete", "deletecollection"},
	}
}

// withToys is the table with the toy kinds.
func withToys() exchange.Table { return append(exchange.Kinds(), beacons(), notices()) }

// labels returns the label of a cluster's objects on the broker; "" is no label.
func labels(owner string) map[string]string {
	if owner == "" {
		return nil
	}
	return map[string]string{submarinerv1.ClusterIDLabel: owner}
}

func beacon(ns, name, owner string, lights ...string) *Beacon {
	return signed(
		"default",
		&Beacon{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns, Labels: labels(owner)},
			Spec:       BeaconSpec{Lights: lights},
		},
	)
}

func notice(ns, name, owner, text string) *Notice {
	return signed(
		"default",
		&Notice{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns, Labels: labels(owner)},
			Spec:       NoticeSpec{Text: text},
		},
	)
}

func TestPlanOfToys(t *testing.T) {
	writes, refused := plan(withToys(), exchange.Snapshot{
		ClusterID: "east", Namespace: here,
		Local: []client.Object{
			beacon(here, "east.a", "", "red"),
			beacon(here, "west.a", ""),
			notice(here, "n", "", "hello"),
		},
		Sets: []exchange.SetSnapshot{set("default", beacon("x", "west.b", "west", "green"),
			beacon("x", "west.c", "west"), beacon("x", "west.d", "west"), beacon("x", "north.a", "west"),
			beacon("x", "south.a", "south", strings.Repeat("x", 2000)), notice("x", "w", "west", "hello"),
			notice("x", "v", "", "from the broker"), notice("x", "u", "west", ""))},
	})
	require.Equal(t, []string{
		"create Beacon west.b here",
		"create Beacon west.c here",
		"create Beacon east.a on the broker in clusterset default",
		"create Notice v here",
		"create Notice w.west.default here",
		"create Notice n on the broker in clusterset default",
	}, texts(writes))
	require.Equal(t, []string{
		`Beacon submariner-operator/west.a in this cluster: its name is not one of the names that cluster "east" may give its beacons`,
		`Beacon submariner-k8s-broker/north.a on the broker: its name is not one of the names that cluster "west" may give its beacons`,
		"Beacon submariner-k8s-broker/south.a on the broker: it has 2056 bytes, more than 1024",
		"Beacon submariner-k8s-broker/west.d on the broker: cluster west has more than 2 of them",
		"Notice submariner-k8s-broker/u on the broker: it is not in force anywhere: spec.text is empty",
	}, texts(refused))
}

// A kind that is not in the table is refused, on either side: it is never treated as
// another kind.
func TestUnknownKindIsRefused(t *testing.T) {
	writes, refused := plan(exchange.Kinds(), exchange.Snapshot{
		ClusterID: "east", Namespace: here,
		Local: []client.Object{beacon(here, "east-submariner-cable-east-1", "")},
		Sets:  []exchange.SetSnapshot{set("default", beacon("x", "west", "west"), notice("x", "default", "", "hello"))},
	})
	require.Empty(t, writes)
	require.Equal(t, []string{
		"Beacon submariner-operator/east-submariner-cable-east-1 in this cluster: clusters do not exchange objects of this kind",
		"Beacon submariner-k8s-broker/west on the broker: clusters do not exchange objects of this kind",
		"Notice submariner-k8s-broker/default on the broker: clusters do not exchange objects of this kind",
	}, texts(refused))

	_, err := exchange.Kinds().Of(&submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "gw"}})
	require.EqualError(t, err, "*v1.Gateway gw: clusters do not exchange objects of this kind")
	kind, err := withToys().Of(&Beacon{})
	require.NoError(t, err)
	require.Equal(t, "beacons", kind.Resource)
}

// rendered returns the objects of one type of a broker with the toy kinds.
func rendered[T client.Object](t *testing.T) (out []T) {
	t.Helper()
	objects, err := broker.Render(broker.Options{Namespace: "hub", Kinds: withToys()})
	require.NoError(t, err)
	for _, o := range objects {
		if o, ok := o.(T); ok {
			out = append(out, o)
		}
	}
	return out
}

func TestRightsAndQuotasOfToys(t *testing.T) {
	for _, role := range rendered[*rbacv1.Role](t) {
		if role.Name == broker.IdentityRoleName {
			continue // it has no right to what is exchanged
		}
		verbs := beacons().Verbs
		if role.Name == broker.JoinerName {
			verbs = []string{"get", "list", "watch"}
		}
		require.Contains(
			t,
			role.Rules,
			rbacv1.PolicyRule{
				APIGroups: []string{toyGroup.Group},
				Resources: []string{"beacons", "notices"},
				Verbs:     verbs,
			},
			role.Name,
		)
	}
	hard := rendered[*corev1.ResourceQuota](t)[0].Spec.Hard
	for _, kind := range []string{"beacons", "notices"} {
		most := hard[corev1.ResourceName("count/"+kind+".toys.example.com")]
		require.EqualValues(t, 10, most.Value())
	}
}

// toyClient returns a client that knows the toy kinds.
func toyClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	exchange.Table{beacons(), notices()}.AddToScheme(scheme)
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

// installToys makes an API server serve the toy kinds.
func installToys(t *testing.T, server *kubetest.Server) {
	t.Helper()
	admin := server.Client(t)
	for _, k := range []exchange.Kind{beacons(), notices()} {
		field := map[string]apiextensionsv1.JSONSchemaProps{
			"lights": {
				Type: "array",
				Items: &apiextensionsv1.JSONSchemaPropsOrArray{
					Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"},
				},
			},
			"text": {Type: "string"},
		}
		crd := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: k.Resource + "." + toyGroup.Group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: toyGroup.Group, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{
					Plural:   k.Resource,
					Kind:     k.Name,
					ListKind: k.Name + "List",
				},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: toyGroup.Version, Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object",
						Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"spec": {Type: "object", Properties: field},
						},
					}},
				}},
			},
		}
		require.NoError(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), crd)))
		c := toyClient(t, server.Config())
		brokertest.Eventually(t,
			func() bool { return c.List(t.Context(), k.List.DeepCopyObject().(client.ObjectList)) == nil })
	}
}

// toyBroker deploys a broker that exchanges the toy kinds.
func toyBroker(t *testing.T) (d *brokertest.Broker, as func(id string) client.Client) {
	t.Helper()
	server := kubetest.Shared(t)
	installToys(t, server)
	d = brokertest.DeployWith(t, server, broker.Options{Kinds: withToys()})
	return d, func(id string) client.Client {
		t.Helper()
		cred, err := broker.AddMember(t.Context(), d.Admin, d.NS, id, "uid-"+id, broker.Reservation{})
		require.NoError(t, err)
		return brokertest.Filling(toyClient(t, server.As(string([]byte(cred.Token)))))
	}
}

// The broker's API server enforces what is derived from the rows of the toy kinds.
func TestMembersWriteTheirOwnToys(t *testing.T) {
	d, as := toyBroker(t)
	d.LetCreate(t)
	east := as("east")
	west := as("west")
	ctx := t.Context()
	require.NoError(t, east.Create(ctx, brokertest.InSlot(beacon(d.NS, "east.a", "east", "red"), "east", 0)))
	require.NoError(t, east.Create(ctx, brokertest.InSlot(notice(d.NS, "n", "east", "hello"), "east", 0)))

	denied := func(err error, why string) {
		t.Helper()
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, why)
	}
	denied(west.Create(ctx, brokertest.InSlot(beacon(d.NS, "east.b", "west"), "west", 0)),
		"cluster west may not write the Beacon east.b: its own are named west.<name>")
	denied(west.Create(ctx, brokertest.InSlot(beacon(d.NS, "west", "west"), "west", 0)),
		"its own are named west.<name>")
	denied(west.Create(ctx, brokertest.InSlot(beacon(d.NS, "west.b", "east"), "west", 0)),
		`label submariner-io/clusterID is "east", not west`)
	denied(west.Delete(ctx, brokertest.InSlot(beacon(d.NS, "east.a", ""), "east", 0)),
		"may not write the Beacon east.a")
	denied(west.Delete(ctx, brokertest.InSlot(notice(d.NS, "n", "", ""), "east", 0)),
		"cluster west may not change the notice n, which cluster east has made")
	denied(west.Create(ctx, brokertest.InSlot(notice(d.NS, "a.b", "west", "x"), "west", 0)), "a.b cannot name a notice")
	denied(west.Create(ctx, brokertest.InSlot(beacon(d.NS, "west.b", "west", strings.Repeat("x", 2000)), "west", 0)),
		"west.b has more than 1024 characters")
	denied(west.Create(ctx, brokertest.InSlot(notice(d.NS, "m", "west", strings.Repeat("x", 2000)), "west", 0)),
		"m has more than 1024 characters")
	large := cluster(d.NS, "west")
	large.Annotations["a"] = strings.Repeat("x", 2000)
	require.NoError(t, west.Create(ctx, large), "bounds are of a kind")

	t.Log("the names of a member are the bound of what it stores")
	light := func(c client.Client, id string, slot int) error {
		return c.Create(ctx, brokertest.InSlot(beacon(d.NS, fmt.Sprintf("%s.x%d", id, slot), id), id, slot))
	}
	require.NoError(t, light(west, "west", 0))
	require.NoError(t, light(west, "west", 1))
	denied(light(west, "west", 2),
		"cluster west may not write the Beacon west.2: it has the names west.0 to west.1, and the name in clusters is in annotation submariner.io/name")
	north := as("north")
	require.NoError(t, light(north, "north", 0))
	require.NoError(t, light(north, "north", 1))

	t.Log("leaving")
	require.NoError(
		t,
		withToys().Withdraw(ctx, west, exchange.Set{Name: "default", Namespace: d.NS}, "west",
			brokertest.Administrator().Public()),
	)
	require.NoError(
		t,
		withToys().Withdraw(ctx, north, exchange.Set{Name: "default", Namespace: d.NS}, "north",
			brokertest.Administrator().Public()),
	)
	left := &BeaconList{}
	require.NoError(t, east.List(ctx, left, client.InNamespace(d.NS)))
	require.Len(t, left.Items, 1)
	require.NoError(
		t,
		withToys().Withdraw(ctx, east, exchange.Set{Name: "default", Namespace: d.NS}, "east",
			brokertest.Administrator().Public()),
	)
	for _, k := range withToys() {
		list := k.List.DeepCopyObject().(client.ObjectList)
		require.NoError(t, east.List(ctx, list, client.InNamespace(d.NS)))
		require.Equal(t, 0, lenOf(t, list), k.Name)
	}
	require.NoError(
		t,
		withToys().Withdraw(ctx, east, exchange.Set{Name: "default", Namespace: d.NS}, "east",
			brokertest.Administrator().Public()),
		"again",
	)
}

func TestToysAreExchanged(t *testing.T) {
	d, _ := toyBroker(t)
	gate := kubetest.NewGate(t, d.Server)
	east := newSite(t, d, gate, "east")
	west := newSite(t, d, gate, "west")
	for _, s := range []*site{east, west} {
		s.create(cluster(s.ns, s.id))
		_, err := broker.EnsureMember(t.Context(), toyClient(t, d.Server.Config()), d.NS, s.id, "uid-"+s.id,
			broker.Reservation{Kinds: withToys()})
		require.NoError(t, err)
		s.config.Kinds = withToys()
		s.client = toyClient(t, d.Server.Config())
		s.start()
	}
	ctx := t.Context()
	hub := toyClient(t, d.Server.Config())
	require.NoError(t, east.client.Create(ctx, beacon(east.ns, "east.a", "", "red")))
	require.NoError(t, west.client.Create(ctx, beacon(west.ns, "west.a", "", "green")))
	require.NoError(t, east.client.Create(ctx, notice(east.ns, "n", "", "hello")))
	require.NoError(t, hub.Create(ctx, notice(d.NS, "all", "", "from the broker")))
	holds := func(s *site, want ...string) {
		t.Helper()
		require.Eventually(t, func() bool { return slices.Equal(want, toysOf(ctx, t, s)) }, patience, tick, "%s", s.id)
	}
	holds(east, "all BROKER from the broker", "east.a  [red]", "n  hello", "west.a west [green]")
	holds(west, "all BROKER from the broker", "east.a east [red]", "n.east.default east hello", "west.a  [green]")
	require.NoError(t, east.client.Delete(ctx, beacon(east.ns, "east.a", "")))
	require.NoError(t, hub.Delete(ctx, notice(d.NS, "all", "", "")))
	holds(west, "n.east.default east hello", "west.a  [green]")
	east.eventuallyHealthy(true)
	east.stop()
	west.stop()
}

// toysOf returns the toys that a cluster holds, sorted: "name owner content".
func toysOf(ctx context.Context, t *testing.T, s *site) []string {
	t.Helper()
	b := &BeaconList{}
	n := &NoticeList{}
	require.NoError(t, s.client.List(ctx, b, client.InNamespace(s.ns)))
	require.NoError(t, s.client.List(ctx, n, client.InNamespace(s.ns)))
	out := []string{}
	for _, o := range b.Items {
		out = append(out, fmt.Sprintf("%s %s %s", o.Name, o.Labels[submarinerv1.ClusterIDLabel], o.Spec.Lights))
	}
	for _, o := range n.Items {
		out = append(out, fmt.Sprintf("%s %s %s", o.Name, o.Labels[submarinerv1.ClusterIDLabel], o.Spec.Text))
	}
	slices.Sort(out)
	return out
}
