package exchange_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
)

// inSlot returns an object as it is read from the broker, from a slot.
func inSlot[T client.Object](slot string, o T) T {
	brokertest.Annotate(o, submarinerv1.NameAnnotation, o.GetName())
	o.SetName(slot)
	exchange.Kinds().FromBroker(o)
	return o
}

// stored returns the writes to the broker, with the names that objects have there.
func stored(writes []exchange.Write) (out []string) {
	for _, w := range writes {
		if w.Set == "" {
			continue
		}
		o := w.Object.DeepCopyObject().(client.Object)
		exchange.Kinds().ToBroker(o)
		out = append(out, fmt.Sprintf("%s %s = %s", w.Op, o.GetName(), w.Object.GetName()))
	}
	return out
}

func TestNamesOnTheBroker(t *testing.T) {
	p := brokertest.InSlot(brokertest.Policy("x", "west", "p"), "west", 3)
	there := p.DeepCopy()
	exchange.Kinds().FromBroker(p)
	require.Equal(t, "p", p.Name)
	require.NotContains(t, p.Annotations, submarinerv1.NameAnnotation)
	exchange.Kinds().ToBroker(p)
	require.Equal(t, there, p)

	for name, o := range map[string]client.Object{
		"of a Cluster, which has no slot":        cluster("x", "west"),
		"of a Cluster that looks like one":       with(cluster("x", "west"), func(o client.Object) { o.SetName("west.1") }),
		"of the administrator's, which has none": cablePolicy("p", "vxlan"),
		"in a slot, but longer than a name may be": with(brokertest.Policy("x", "west", "p"),
			func(o client.Object) { o.SetName("west.0") }),
	} {
		was := o.GetName()
		long := "other"
		if was == "west.0" {
			long = strings.Repeat("x", 254)
		}
		brokertest.Annotate(o, submarinerv1.NameAnnotation, long)
		exchange.Kinds().FromBroker(o)
		require.Equal(t, was, o.GetName(), name)
		exchange.Kinds().ToBroker(o)
		require.Equal(t, was, o.GetName(), name)
	}
}

// What this cluster writes to the broker, and where.
func TestSlots(t *testing.T) {
	gateway := func(address string) *submarinerv1.Endpoint { return endpoint("x", "east", address) }
	name := func(address string) string { return gateway(address).Name }
	for what, tc := range map[string]struct {
		local, there objects
		want         []string
	}{
		"new objects are in the first free slots": {
			local: objects{unlabelled(gateway("3")), unlabelled(gateway("4")), unlabelled(gateway("5"))},
			there: objects{inSlot("east.1", gateway("4")), inSlot("west.0", endpoint("x", "west", "1"))},
			want:  []string{"create east.0 = " + name("3"), "create east.2 = " + name("5")},
		},
		"an object stays in its slot": {
			local: objects{
				with(unlabelled(gateway(
					"3")), func(o client.Object) { o.(*submarinerv1.Endpoint).Spec.Hostname = "other" }),
				unlabelled(gateway("4")),
			},
			there: objects{inSlot("east.9", gateway("3")), inSlot("east.4", gateway("4"))},
			want:  []string{"update east.9 = " + name("3")},
		},
		"a slot is used again once it is free": {
			local: objects{unlabelled(gateway("4"))},
			there: objects{inSlot("east.0", gateway("3"))},
			want:  []string{"create east.1 = " + name("4"), "delete east.0 = " + name("3")},
		},
		"of two with one name, made by two gateways, the later signature stays": {
			local: objects{unlabelled(gateway("3"))},
			there: objects{
				inSlot("east.0", gateway("3")),
				inSlot("east.1", at(2000, gateway("3"), func(*submarinerv1.Endpoint) {})),
				inSlot("east.2", gateway("3")),
			},
			want: []string{"delete east.0 = " + name("3"), "delete east.2 = " + name("3")},
		},
		"what somebody has put in our slots is deleted": {
			there: objects{
				inSlot("east.0", endpoint("x", "west", "1")),
				inSlot("east.1",
					with(gateway("1"), func(o client.Object) { o.SetName("any") }).(*submarinerv1.Endpoint)),
				inSlot(
					"east.2",
					with(gateway("2"),
						func(o client.Object) {
							o.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: "west"})
						}).(*submarinerv1.Endpoint),
				),
				inSlot("east.3", brokertest.Policy("x", "west", "p")),
				inSlot("east.4", brokertest.Policy("x", "east", "q")),
			},
			want: []string{
				"delete east.3 = p",
				"delete east.4 = q",
				"delete east.2 = " + name("2"),
				"delete east.1 = any",
				"delete east.0 = " + endpoint("x", "west", "1").Name,
			},
		},
		"policies": {
			local: objects{done(cablePolicy("p", "vxlan")), done(cablePolicy("q", "vxlan"))},
			there: objects{
				inSlot("east.0", brokertest.Policy("x", "east", "q")),
				inSlot("east.1", brokertest.Policy("x", "east", "q")),
				cablePolicy("default", "vxlan"),
			},
			want: []string{"create east.2 = p", "delete east.1 = q"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := set("default")
			s.Objects = tc.there
			for _, o := range tc.there {
				o.SetNamespace(s.Namespace)
			}
			writes, _ := plan(exchange.Kinds(),
				exchange.Snapshot{ClusterID: "east", Namespace: here, Local: tc.local, Sets: []exchange.SetSnapshot{s}})
			require.ElementsMatch(t, tc.want, stored(writes))
		})
	}
}

// If all slots are in use, an object waits until one is free.
func TestAllSlotsInUse(t *testing.T) {
	var local, there objects
	for i := range 32 {
		local = append(local, cablePolicy(fmt.Sprintf("p%02d", i), "vxlan"))
		there = append(there,
			inSlot(exchange.SlotName("east", i), brokertest.Policy("x", "east", fmt.Sprintf("p%02d", i+1))))
	}
	s := exchange.Snapshot{
		ClusterID: "east",
		Namespace: here,
		Local:     local,
		Sets:      []exchange.SetSnapshot{unsigned("default", there...)},
	}
	writes, _ := plan(exchange.Kinds(), s)
	require.Equal(t, []string{"delete east.31 = p32"}, stored(writes))
	require.Contains(t, said(writes),
		"p00: False Pending in []: it is not on the broker yet in every clusterset that it is for")
	s.Sets = []exchange.SetSnapshot{unsigned("default", there[:31]...)}
	writes, _ = plan(exchange.Kinds(), s)
	require.Equal(t, []string{"create east.31 = p00"}, stored(writes))
}

// Where there are more gateways than the broker takes, standbys give way, even if they are there
// already: the gateway that has taken over must be known. That is no fault.
func TestStandbysGiveWay(t *testing.T) {
	standby := with(endpoint("x", "east", "00"), func(o client.Object) {
		o.(*submarinerv1.Endpoint).Spec.BackendConfig = map[string]string{
			submarinerv1.BackendDrain: submarinerv1.Standby,
		}
	}).(*submarinerv1.Endpoint)
	local := objects{unlabelled(standby.DeepCopy())}
	there := objects{inSlot("east.0", standby.DeepCopy())}
	for i := range 16 {
		local = append(local, unlabelled(endpoint("x", "east", fmt.Sprintf("%02d", i+1))))
		if i > 0 {
			there = append(there, inSlot(exchange.SlotName("east", i), endpoint("x", "east", fmt.Sprintf("%02d", i+1))))
		}
	}
	s := exchange.Snapshot{
		ClusterID: "east",
		Namespace: here,
		Local:     local,
		Sets:      []exchange.SetSnapshot{unsigned("default", there...)},
	}
	writes, refused := plan(exchange.Kinds(), s)
	require.Equal(t, []string{"delete east.0 = " + standby.Name}, stored(writes))
	require.Empty(t, refused)
	s.Sets = []exchange.SetSnapshot{unsigned("default", there[1:]...)}
	writes, refused = plan(exchange.Kinds(), s)
	require.Equal(t, []string{"create east.0 = " + endpoint("x", "east", "01").Name}, stored(writes))
	require.Empty(t, refused)

	t.Log("there is one slot")
	s.Local = local[:2]
	s.Sets = []exchange.SetSnapshot{unsigned("default", there[0])}
	s.Sets[0].Reserved = map[string]types.UID{}
	writes, refused = plan(exchange.Kinds(), s)
	require.Equal(t, []string{"delete east.0 = " + standby.Name}, stored(writes))
	require.Empty(t, refused)
	s.Sets = []exchange.SetSnapshot{unsigned("default")}
	s.Sets[0].Reserved = map[string]types.UID{"endpoints/east.0": ""}
	writes, refused = plan(exchange.Kinds(), s)
	require.Equal(t, []string{"create east.0 = " + endpoint("x", "east", "01").Name}, stored(writes),
		"the standby waits")
	require.Empty(t, refused)
}

// A cluster publishes in what is reserved for it, and reports if that is not enough.
func TestReservedSlots(t *testing.T) {
	set := func(reserved []string, there ...client.Object) exchange.SetSnapshot {
		s := unsigned("default", there...)
		s.Reserved = map[string]types.UID{}
		for _, name := range reserved {
			s.Reserved[name] = ""
		}
		return s
	}
	plans := func(s exchange.SetSnapshot) ([]exchange.Write, []exchange.Refusal) {
		return plan(exchange.Kinds(), exchange.Snapshot{ClusterID: "east", Namespace: here, Local: objects{
			cablePolicy("p", "ipsec"), cablePolicy("q", "vxlan"), unlabelled(cluster("x", "east")),
		}, Sets: []exchange.SetSnapshot{s}})
	}
	writes, refused := plans(set(nil))
	require.Empty(t, stored(writes))
	require.Contains(t, said(writes),
		"p: False TooMany in []: the broker has no cablepolicies reserved for this cluster in clusterset default: the clusterset was deleted, or somebody has deleted what this cluster has in it: look at it with subctl clusterset list on the broker, and run subctl join again with a join file of the broker")
	require.Contains(t, texts(refused),
		"Cluster submariner-operator/east in this cluster: the broker has no clusters reserved for this cluster in clusterset default: the clusterset was deleted, or somebody has deleted what this cluster has in it: look at it with subctl clusterset list on the broker, and run subctl join again with a join file of the broker")
	writes, _ = plans(set([]string{"endpoints/east.0", "cablepolicies/east.3", "cablepolicies/west.0"}))
	require.Equal(t, []string{"create east.3 = p"}, stored(writes), "what there is, of the kind")
	writes, _ = plans(set([]string{"cablepolicies/east.3"}, inSlot("east.7", brokertest.Policy("x", "east", "q"))))
	require.Contains(t, stored(writes), "create east.3 = p")
	require.NotContains(t, fmt.Sprint(stored(writes)), "create east.7")
}

// A page reports whether the broker has it, in all clustersets.
func TestSharedPages(t *testing.T) {
	local := func(n int, conditions ...metav1.Condition) client.Object {
		p := brokertest.Page(here, "east", n)
		p.Labels = nil
		p.Annotations = nil
		p.Generation = 7
		p.UID = "uid"
		p.Status.Conditions = conditions
		if len(conditions) > 0 && conditions[0].Status == metav1.ConditionTrue {
			p.Status.ClusterSets = []string{"default"}
		}
		return p
	}
	condition := func(status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: "Shared", Status: status, Reason: reason, Message: "m", ObservedGeneration: 6}
	}
	yes := condition(metav1.ConditionTrue, "Shared")
	full := condition(metav1.ConditionFalse, "TooMany")
	there := func(n int) client.Object {
		return inSlot(exchange.SlotName("east", n), brokertest.Page("x", "east", n))
	}
	changed := with(there(0), func(o client.Object) { o.(*v1alpha1.ExportedServices).Spec.Services[0].Ready = false })
	reserving := func(s exchange.SetSnapshot, reserved ...string) exchange.SetSnapshot {
		s.Reserved = map[string]types.UID{}
		for _, name := range reserved {
			s.Reserved["exportedservices/"+name] = ""
		}
		return s
	}
	const none = "exportedservices reserved for this cluster in clusterset default: 2, all in use: run subctl join again with a join file of the broker, which reserves as many as this cluster has"
	mistaken := with(local(0),
		func(o client.Object) { o.(*v1alpha1.ExportedServices).Spec.Services[0].Namespace = "kube-system" })
	for what, test := range map[string]struct {
		local objects
		sets  []exchange.SetSnapshot
		want  []string
	}{
		"new": {
			objects{local(0)},
			[]exchange.SetSnapshot{reserving(set("default"), "east.0")},
			[]string{
				"east-services-0: False Pending in []: it is not on the broker yet in every clusterset that it is for",
			},
		},
		"on the broker": {
			objects{local(0)},
			[]exchange.SetSnapshot{reserving(set("default", there(0)))},
			[]string{"east-services-0: True Shared in [default]: it is on the broker in clusterset default"},
		},
		"changes": {
			objects{local(0, yes)},
			[]exchange.SetSnapshot{reserving(set("default", changed))},
			nil,
		},
		"in one of two clustersets": {
			objects{local(0, yes)},
			[]exchange.SetSnapshot{reserving(set("default", there(0))), reserving(set("lab"), "east.0")},
			nil,
		},
		"no place for the last of them, by number": {
			objects{local(2), local(10)},
			[]exchange.SetSnapshot{reserving(set("default", there(0)), "east.1")},
			[]string{
				"east-services-10: False TooMany in []: " + none,
				"east-services-2: False Pending in []: it is not on the broker yet in every clusterset that it is for",
			},
		},
		"got a place": {
			objects{local(0, full)},
			[]exchange.SetSnapshot{reserving(set("default", there(0)))},
			[]string{"east-services-0: True Shared in [default]: it is on the broker in clusterset default"},
		},
		"the broker is not known": {objects{local(0, yes)}, []exchange.SetSnapshot{unread("default")}, nil},
		"nor was there a place":   {objects{local(0, full)}, []exchange.SetSnapshot{unread("default")}, nil},
		"new, and the broker is not known": {
			objects{local(0)},
			[]exchange.SetSnapshot{unread("default")},
			[]string{
				"east-services-0: False Pending in []: it is not on the broker yet in every clusterset that it is for",
			},
		},
		"in no clusterset": {
			objects{local(0, yes)},
			nil,
			[]string{
				"east-services-0: False NotInClusterSet in []: this cluster is in no clusterset: let the administrator of the broker add it with subctl clusterset add",
			},
		},
		"more than its grant": {
			objects{mistaken},
			[]exchange.SetSnapshot{reserving(set("default"), "east.0")},
			[]string{"east-services-0: False Mistake in []: "},
		},
		"a copy, whatever its status claims": {
			objects{
				with(
					copied(brokertest.Page("x", "west", 0), "default"),
					func(o client.Object) {
						o.(*v1alpha1.ExportedServices).Status.Conditions = []metav1.Condition{yes}
					},
				),
			},
			[]exchange.SetSnapshot{set("default", brokertest.Page("x", "west", 0))},
			nil,
		},
	} {
		writes, _ := plan(exchange.Kinds(),
			exchange.Snapshot{ClusterID: "east", Namespace: here, Local: test.local, Sets: test.sets})
		var got []string
		for _, w := range writes {
			if p, ok := w.Object.(*v1alpha1.ExportedServices); ok && w.Op == exchange.Report {
				require.Len(t, p.Status.Conditions, 1)
				c := p.Status.Conditions[0]
				require.Equal(t, v1alpha1.ConditionShared, c.Type)
				require.EqualValues(t, 7, c.ObservedGeneration)
				got = append(got,
					fmt.Sprintf("%s: %s %s in %v: %s", p.Name, c.Status, c.Reason, p.Status.ClusterSets, c.Message))
			}
		}
		require.Len(t, got, len(test.want), "%s: %v", what, got)
		for i, text := range test.want {
			require.Contains(t, got[i], text, what)
		}
	}
}

// The holder of a join file makes an empty object whose owner does not exist: what is published
// there would be deleted with it. Somebody makes an object of the cluster outside its slots: the
// cluster cannot change it.
func TestHostileReservedSlots(t *testing.T) {
	owned := func(o client.Object) client.Object {
		o.SetOwnerReferences(
			[]metav1.OwnerReference{{APIVersion: "v1", Kind: "ServiceAccount", Name: "cluster-east", UID: "east"}})
		return o
	}
	for name, c := range map[string]struct {
		there    []client.Object
		reserved map[string]types.UID
		want     []string
	}{
		"an owner that does not exist": {
			objects{owned(cluster("x", "east"))},
			map[string]types.UID{"cablepolicies/east.1": "nobody", "cablepolicies/east.2": "east"},
			[]string{"create east.2 = p"},
		},
		"another cluster's object of our name": {
			objects{owned(cluster("x", "east")), ownedByWest(inSlot("west.0", brokertest.Policy("x", "west", "east")))},
			map[string]types.UID{"cablepolicies/east.1": "west", "cablepolicies/east.2": "east"},
			[]string{"create east.2 = p"},
		},
		"an administrator has made it": {
			objects{owned(cluster("x", "east"))},
			map[string]types.UID{"cablepolicies/east.1": ""},
			[]string{"create east.1 = p"},
		},
		"the owner is not known yet": {
			objects{cluster("x", "east")},
			map[string]types.UID{"cablepolicies/east.1": "east"},
			[]string{"create east.1 = p"},
		},
		"an object outside the slots": {
			objects{owned(cluster("x", "east")), brokertest.Policy("x", "east", "p")},
			map[string]types.UID{"cablepolicies/east.2": "east"},
			[]string{"create east.2 = p", "delete p = p"},
		},
		"an Endpoint outside the slots": {
			objects{owned(cluster("x", "east")), endpoint("x", "east", "10-0-0-1")},
			map[string]types.UID{"endpoints/east.0": "east", "cablepolicies/east.2": "east"},
			[]string{"create east.0", "create east.2 = p", "delete east-submariner-cable-east-10-0-0-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := unsigned("default", c.there...)
			s.Reserved = c.reserved
			e := endpoint(here, "east", "10-0-0-1")
			e.Labels = nil
			local := objects{cablePolicy("p", "ipsec"), unlabelled(cluster(here, "east"))}
			if strings.Contains(name, "Endpoint") {
				local = append(local, e)
			}
			writes, _ := plan(exchange.Kinds(),
				exchange.Snapshot{ClusterID: "east", Namespace: here, Local: local, Sets: []exchange.SetSnapshot{s}})
			for _, want := range c.want {
				require.Contains(t, fmt.Sprint(stored(writes)), want)
			}
			require.NotContains(t, fmt.Sprint(stored(writes)), "update p")
			require.NotContains(t, fmt.Sprint(stored(writes)), "update east-submariner")
			if strings.HasPrefix(c.want[0], "create east.2") {
				require.NotContains(t, fmt.Sprint(stored(writes)), "create east.1")
			}
		})
	}
}

func ownedByWest(o client.Object) client.Object {
	o.SetOwnerReferences(
		[]metav1.OwnerReference{{APIVersion: "v1", Kind: "ServiceAccount", Name: "cluster-west", UID: "west"}})
	return o
}

// A member gives its objects the names of others, and the names of slots and of copies. Whatever it
// chooses, what others share, and the copies of it, stay as they are, and nobody has a name taken.
func TestHostileSlots(t *testing.T) {
	policy := func(id, name string) *v1alpha1.CablePolicies { return brokertest.Policy("x", id, name) }
	honest := func() objects {
		return objects{
			cluster("x", "west"),
			inSlot("east.0", policy("east", "p")),
			inSlot("west.0", policy("west", "p")),
			brokertest.Sign(cablePolicy("q", "ipsec"), "default"),
		}
	}
	local := objects{
		copyOf("west", "default", policy("west", "p")),
		copyOf(submarinerv1.BrokerID, "default", cablePolicy("q", "ipsec")),
		unlabelled(cluster("x", "east")),
	}
	own := policy("east", "p")
	own.Labels = nil
	snapshot := func(theirs ...client.Object) exchange.Snapshot {
		return exchange.Snapshot{
			ClusterID: "east",
			Namespace: here,
			Local:     append(objects{own}, local...),
			Sets:      []exchange.SetSnapshot{unsigned("default", append(honest(), theirs...)...)},
		}
	}
	texts := func(writes []exchange.Write) (out []string) {
		for _, w := range writes {
			o := w.Object
			if maker := o.GetLabels()[submarinerv1.ClusterIDLabel]; maker != "north" {
				out = append(out, fmt.Sprintf("%s %T %s of %q in %q", w.Op, o, o.GetName(), maker, w.Set))
			}
		}
		return out
	}
	writes, _ := plan(exchange.Kinds(), snapshot())
	want := texts(writes)
	for _, name := range []string{
		"p",
		"q",
		"default",
		"p.default",
		"q.default",
		"p.west.default",
		"p.east.default",
		"p.west",
		"north.0",
		"east.0",
		"west.0",
		"east",
		"west",
		"",
		".",
		"p.",
		".p",
		"P",
		strings.Repeat("p", 300),
	} {
		for _, slot := range []string{"north.0", "north.31", "north.99", "north.x", "north", "p", "north.east.0"} {
			for _, label := range []string{"north", "east", "west", submarinerv1.BrokerID} {
				if !strings.Contains(slot, ".") && label != "north" {
					continue // no broker lets it
				}
				o := policy("north", name)
				o.Labels[submarinerv1.ClusterIDLabel] = label
				brokertest.SignAt(o, "", 9000)
				if brokertest.Annotate(o, submarinerv1.NameAnnotation, name); strings.Contains(slot, ".") {
					brokertest.Annotate(o, "submariner.io/slot", "east.0") // what only our memory should have
				}
				o.SetName(slot)
				exchange.Kinds().FromBroker(o)
				writes, _ := plan(exchange.Kinds(), snapshot(cluster("x", "north"), o))
				got := texts(writes)
				require.Equal(t, want, got, "%q in %s, labelled %s", name, slot, label)
			}
		}
	}
}

// A broker hides a page from the cluster whose page it is, and then the place of it. That is not as
// if the broker had never had a place: the other pages would not count it then, and other clusters
// would take it for removed.
func TestHostileBrokerHidesPages(t *testing.T) {
	page := brokertest.Page(here, "east", 0)
	page.Labels = nil
	page.Annotations = nil
	none := set("default")
	empty := set("default")
	none.Reserved = map[string]types.UID{}
	empty.Reserved = map[string]types.UID{"exportedservices/east.0": ""}
	there := set("default", inSlot("east.0", brokertest.Page("x", "east", 0)))
	reason := func(s exchange.SetSnapshot) string {
		writes, _ := plan(exchange.Kinds(), exchange.Snapshot{
			ClusterID: "east", Namespace: here, Local: objects{page}, Sets: []exchange.SetSnapshot{s},
		})
		for _, w := range writes {
			if w.Op == exchange.Report {
				page.Status = w.Object.(*v1alpha1.ExportedServices).Status
			}
		}
		return page.Status.Conditions[0].Reason
	}
	require.Equal(t, "TooMany", reason(none), "it never had a place")
	require.Equal(t, "Pending", reason(empty))
	require.Equal(t, "Shared", reason(there))
	require.Equal(t, "Lost", reason(empty))
	require.Equal(t, "Lost", reason(none))
	require.Equal(t, "Lost", reason(none))
	require.Equal(t, "Shared", reason(there))
	require.Equal(t, "Lost", reason(none))
}

// A hub may be in 1,000 clustersets. The status of its pages is not longer than the schema allows.
func TestPagesInManyClusterSets(t *testing.T) {
	page := brokertest.Page(here, "east", 0)
	page.Labels = nil
	page.Annotations = nil
	var sets []exchange.SetSnapshot
	for n := range 1000 {
		name := fmt.Sprintf("%s-%04d", strings.Repeat("x", 58), n)
		sets = append(sets, set(name, inSlot("east.0", brokertest.Page("x", "east", 0))))
	}
	writes, _ := plan(exchange.Kinds(),
		exchange.Snapshot{ClusterID: "east", Namespace: here, Local: objects{page}, Sets: sets})
	reports := slices.DeleteFunc(writes, func(w exchange.Write) bool { return w.Op != exchange.Report })
	require.Len(t, reports, 1)
	status := reports[0].Object.(*v1alpha1.ExportedServices).Status
	require.Len(t, status.ClusterSets, 1000)
	require.Equal(t, metav1.ConditionTrue, status.Conditions[0].Status)
	require.Less(t, len(status.Conditions[0].Message), 32768)
}

// A broker shows an object under the name that it has in clusters, labelled as ours and apparently
// later than ours. It does not take the place of what is in our slot, and is deleted.
func TestObjectsWithoutASlot(t *testing.T) {
	later := func(o client.Object) client.Object { return brokertest.SignAt(o, "", 9000) }
	gateway := endpoint("x", "east", "3")
	s := unsigned("default",
		inSlot("east.0", endpoint("x", "east", "3")), later(endpoint("x", "east", "3")),
		inSlot("east.0", brokertest.Policy("x", "east", "p")), later(brokertest.Policy("x", "east", "p")))
	writes, _ := plan(
		exchange.Kinds(),
		exchange.Snapshot{
			ClusterID: "east",
			Namespace: here,
			Local:     objects{unlabelled(endpoint("x", "east", "3")), done(cablePolicy("p", "vxlan"))},
			Sets:      []exchange.SetSnapshot{s},
		},
	)
	require.ElementsMatch(t, []string{"delete " + gateway.Name + " = " + gateway.Name, "delete p = p"}, stored(writes))
}

// Somebody applies a policy on the broker without signing it. No cluster goes by it, so it takes no
// name: the policy of that name that a cluster shares stays in force.
func TestUnsignedPolicyTakesNoName(t *testing.T) {
	for what, theirs := range map[string]*v1alpha1.CablePolicies{
		"unsigned": cablePolicy("p", "vxlan"),
		"signed by a cluster": with(brokertest.Policy("x", "west",
			"p"), func(o client.Object) { o.SetLabels(nil) }).(*v1alpha1.CablePolicies),
		"signed for another clusterset": brokertest.Sign(cablePolicy("p", "vxlan"), "lab"),
	} {
		s := unsigned("default", inSlot("east.0", brokertest.Policy("x", "east", "p")), theirs)
		writes, _ := plan(
			exchange.Kinds(),
			exchange.Snapshot{
				ClusterID: "east",
				Namespace: here,
				Local:     objects{done(cablePolicy("p", "vxlan"))},
				Sets:      []exchange.SetSnapshot{s},
			},
		)
		require.Empty(t, texts(writes), what)
	}
	t.Log("one that was valid before stays in force, and keeps the name")
	damaged := brokertest.Sign(cablePolicy("p", "ipsec"), "default")
	damaged.ConnectionPolicies[0].CableDriver = "vxlan"
	writes, _ := plan(exchange.Kinds(), exchange.Snapshot{
		ClusterID: "east", Namespace: here,
		Local: objects{
			copyOf(submarinerv1.BrokerID, "default", cablePolicy("p.default", "ipsec")),
			cablePolicy("p", "vxlan"),
		}, Sets: []exchange.SetSnapshot{unsigned("default", damaged)},
	})
	require.Empty(t, stored(writes))
	require.Contains(t, said(writes),
		"p: False NameTaken in []: the broker has a cable policy of this name in clusterset default: delete this one if the broker has adopted it; otherwise create it again under another name")
}
