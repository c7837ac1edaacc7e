package allocator_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/globalnet"
	"subctl/globalnet/allocator"
)

// globalCluster is a cluster with a global network of 30 addresses: its API server, in memory.
type globalCluster struct {
	t       *testing.T
	objects []role.Object
	memory  *allocator.Addresses
	now     time.Time
}

func newGlobalCluster(t *testing.T, objs ...role.Object) *globalCluster {
	c := &globalCluster{t: t, now: time.Unix(1700000000, 0)}
	c.add(
		&v1alpha1.Submariner{
			ObjectMeta: metav1.ObjectMeta{Name: "submariner", Namespace: "submariner-operator"},
			Spec:       v1alpha1.SubmarinerSpec{GlobalCIDR: "242.0.0.0/27", ClusterCIDR: "10.244.0.0/16"},
		},
	)
	c.add(objs...)
	return c
}

func (c *globalCluster) add(objs ...role.Object) {
	for _, o := range objs {
		o.SetUID(types.UID(fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())))
		o.SetCreationTimestamp(metav1.NewTime(c.now))
		c.objects = append(c.objects, o)
	}
}

func (c *globalCluster) remove(gone role.Object) {
	for i, o := range c.objects {
		if o.GetUID() == gone.GetUID() {
			c.objects = append(c.objects[:i:i], c.objects[i+1:]...)
			return
		}
	}
	c.t.Fatalf("%s does not exist", gone.GetName())
}

// seen returns the objects as the agent sees them.
func (c *globalCluster) seen() (out []role.Object) {
	for _, o := range c.objects {
		out = append(out, allocator.Slim(o))
	}
	return out
}

// settle runs the agent until it writes nothing any more.
func (c *globalCluster) settle() {
	for range 9 {
		s := role.NewSnapshot("node", c.seen()...)
		s.Now = c.now
		if c.memory != nil {
			s.Previous = c.memory.Memory
		}
		role := allocator.Role()
		p, err := role.Plan(s)
		require.NoError(c.t, err)
		require.Empty(c.t, p.State)
		c.memory = p.Decisions.(*allocator.Addresses)
		r := role.Report(s, p, mesh.NewOutcome(p, c.now, nil, nil))
		if len(r.Apply)+len(r.Delete)+len(r.UpdateStatus)+len(r.Annotate) == 0 && r.Again == 0 {
			return
		}
		c.write(r)
		c.now = c.now.Add(r.Again)
	}
	c.t.Fatal("it does not settle")
}

// write does what the API server does with a report.
func (c *globalCluster) write(r role.Report) {
	for _, o := range r.Delete {
		c.remove(o)
	}
	c.add(r.Apply...)
	c.annotate(r.Annotate)
	for _, o := range r.UpdateStatus {
		for i, is := range c.objects {
			if is.GetUID() == o.GetUID() {
				changed := is.DeepCopyObject().(role.Object)
				reflect.ValueOf(
					changed).Elem().FieldByName("Status").Set(reflect.ValueOf(o).Elem().FieldByName("Status"))
				changed.SetResourceVersion(o.GetResourceVersion() + "+")
				c.objects[i] = changed
			}
		}
	}
}

// annotate does what the API server does with the annotations that the agent writes.
func (c *globalCluster) annotate(objs []role.Object) {
	for _, o := range objs {
		require.Equal(c.t, stripped(o), o, "it has nothing but annotations")
		for i, is := range c.objects {
			if reflect.TypeOf(is) != reflect.TypeOf(o) || role.KeyOf(is) != role.KeyOf(o) {
				continue
			}
			changed := is.DeepCopyObject().(role.Object)
			all := changed.GetAnnotations()
			for k, v := range o.GetAnnotations() {
				if all == nil {
					all = map[string]string{}
				}
				if all[k] = v; v == "" {
					delete(all, k)
				}
			}
			changed.SetAnnotations(all)
			c.objects[i] = changed
		}
	}
}

// stripped returns a pod or a Service with its name, UID and annotations only.
func stripped(o role.Object) role.Object {
	m := metav1.ObjectMeta{
		Namespace:   o.GetNamespace(),
		Name:        o.GetName(),
		UID:         o.GetUID(),
		Annotations: o.GetAnnotations(),
	}
	if _, is := o.(*corev1.Service); is {
		return &corev1.Service{ObjectMeta: m}
	}
	return &corev1.Pod{ObjectMeta: m}
}

// annotations returns the pods and Services with an address in their annotation.
func (c *globalCluster) annotations() string {
	var out []string
	for _, o := range c.objects {
		if at, has := o.GetAnnotations()[submarinerv1.GlobalIPAnnotation]; has {
			out = append(out, fmt.Sprintf("%s %s", o.GetName(), at))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// text returns the objects with addresses, and the conditions of exports.
func (c *globalCluster) text() string {
	var out []string
	s := role.NewSnapshot("node", c.objects...)
	for _, o := range role.List[*submarinerv1.ClusterGlobalEgressIP](s) {
		out = append(out, fmt.Sprintf("%s %d %s", o.Name, len(o.Status.AllocatedIPs), o.Status.Conditions[0].Message))
	}
	for _, o := range role.List[*submarinerv1.GlobalEgressIP](s) {
		out = append(
			out,
			fmt.Sprintf("%s/%s %s: %s", o.Namespace, o.Name, o.Status.Conditions[0].Reason,
				o.Status.Conditions[0].Message),
		)
	}
	for _, o := range role.List[*submarinerv1.GlobalIngressIP](s) {
		out = append(out, fmt.Sprintf("%s/%s %s %s", o.Namespace, o.Name, o.Spec.Target, o.Status.AllocatedIP))
	}
	for _, o := range role.List[*mcsv1alpha1.ServiceExport](s) {
		var conds []string
		for _, cond := range o.Status.Conditions {
			conds = append(conds, fmt.Sprintf("%s=%s %s", cond.Type, cond.Status, cond.Reason))
		}
		out = append(out, fmt.Sprintf("export %s/%s %s", o.Namespace, o.Name, strings.Join(conds, ", ")))
	}
	return strings.Join(out, "\n") + "\n"
}

func inShop(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }

func shopService(name string, spec corev1.ServiceSpec) *corev1.Service {
	return &corev1.Service{ObjectMeta: inShop(name), Spec: spec}
}

func shopPod(name, ip string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: inShop(name), Status: corev1.PodStatus{PodIP: ip}}
}

func shopExport(name string) *mcsv1alpha1.ServiceExport {
	return &mcsv1alpha1.ServiceExport{ObjectMeta: inShop(name)}
}

func slice(service string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	o := &discoveryv1.EndpointSlice{ObjectMeta: inShop(service + "-x"), Endpoints: endpoints}
	o.Labels = map[string]string{discoveryv1.LabelServiceName: service}
	return o
}

// Shared addresses: changed live, per gateway with several active ones, and refused where nobody
// uses them.
func TestEgressObjects(t *testing.T) {
	c := newGlobalCluster(
		t,
		&submarinerv1.GlobalEgressIP{
			ObjectMeta: inShop("many"),
			Spec:       submarinerv1.GlobalEgressIPSpec{NumberOfIPs: new(20)},
		},
		&submarinerv1.GlobalEgressIP{
			ObjectMeta: inShop("bad"),
			Spec: submarinerv1.GlobalEgressIPSpec{
				PodSelector: &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Near"}},
				},
			},
		},
		&submarinerv1.GlobalEgressIP{
			ObjectMeta: inShop("none"),
			Spec:       submarinerv1.GlobalEgressIPSpec{NumberOfIPs: new(0)},
		},
		&submarinerv1.GlobalEgressIP{ObjectMeta: inShop("one")},
		&submarinerv1.ClusterGlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Name: "mine"}},
	)
	c.settle()
	require.Equal(t, `cluster-egress.submariner.io 8 allocated 242.0.0.21-242.0.0.28
mine 0 no gateway uses it: use cluster-egress.submariner.io
shop/bad InvalidInput: podSelector is not valid: "Near" is not a valid label selector operator
shop/many Success: allocated 242.0.0.1-242.0.0.20
shop/none ZeroInput: it requests no address
shop/one Success: allocated 242.0.0.30
`, c.text())

	s := role.NewSnapshot("node", c.objects...)
	many := role.Find[*submarinerv1.GlobalEgressIP](s, "many").DeepCopy()
	c.remove(many)
	many.Spec.NumberOfIPs = new(3)
	many.ResourceVersion = "edited"
	c.objects = append(c.objects, many)
	c.settle()
	for _, name := range []string{"gw-1", "worker", "gw-2"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Labels = map[string]string{submarinerv1.GatewayNodeLabel: fmt.Sprint(name != "worker")}
		c.add(n)
		c.settle()
		require.Equal(t, name == "gw-2", strings.Contains(c.text(), "gw-1-cluster-egress.submariner.io 1 allocated"),
			"with a second gateway")
	}
	require.Contains(t, c.text(), "gw-2-cluster-egress.submariner.io 1 allocated", "a standby; the network is small")
	require.True(t, strings.HasPrefix(c.text(), "cluster-egress.submariner.io 8 allocated 242.0.0.21-242.0.0.28\n"),
		c.text())

	require.NotContains(t, c.text(), "fewer", "a standby needs no more")

	role.List[*v1alpha1.Submariner](s)[0].Spec.MultiActiveGatewayEnabled = true
	c.settle()
	require.Regexp(t,
		`gw-1-cluster-egress.submariner.io 1 allocated [0-9.]+, fewer than the usual 8: spec.numGlobalIPs requests more`,
		c.text())
	for _, name := range []string{"gw-1", "gw-2"} {
		o := role.Find[*submarinerv1.ClusterGlobalEgressIP](role.NewSnapshot("node", c.objects...),
			name+"-cluster-egress.submariner.io").DeepCopy()
		c.remove(o)
		o.Spec.NumGlobalIPs = new(8)
		o.ResourceVersion = "edited"
		c.objects = append(c.objects, o)
	}
	c.settle()
	c.now = c.now.Add(time.Hour)
	c.settle()
	require.Contains(t, c.text(), "shop/many Success: allocated 242.0.0.1-242.0.0.3\n")
	require.Contains(t, c.text(), "gw-1-cluster-egress.submariner.io 8 allocated")
	require.Contains(t, c.text(), "gw-2-cluster-egress.submariner.io 8 allocated")
	require.NotContains(t, c.text(), "\ncluster-egress")
	require.NotContains(t, c.text(), "fewer")

	role.List[*v1alpha1.Submariner](s)[0].DeletionTimestamp = &metav1.Time{Time: c.now}
	c.settle()
	require.NotContains(t, c.text(), "242.", "a cluster that leaves has no addresses")
}

// The status of an object that asks for addresses is written once, with all conditions.
func TestStatusIsWrittenOnce(t *testing.T) {
	c := newGlobalCluster(t, &corev1.Pod{ObjectMeta: inShop("client"), Status: corev1.PodStatus{PodIP: "10.244.0.9"}})
	c.settle()
	c.add(&submarinerv1.GlobalEgressIP{ObjectMeta: inShop("one")})
	report := func() role.Report {
		s := role.NewSnapshot("node", c.seen()...)
		s.Previous = c.memory.Memory
		p, err := allocator.Role().Plan(s)
		require.NoError(t, err)
		return allocator.Role().Report(s, p, mesh.NewOutcome(p, c.now, nil, nil))
	}
	written := report().UpdateStatus
	require.Len(t, written, 1)
	conditions := written[0].(*submarinerv1.GlobalEgressIP).Status.Conditions
	require.True(t, meta.IsStatusConditionTrue(conditions, submarinerv1.ConditionAllocated))
	require.True(t, meta.IsStatusConditionTrue(conditions, submarinerv1.ConditionSelects))
	c.settle()
	require.Empty(t, report().UpdateStatus)
	require.Equal(t, conditions,
		role.Find[*submarinerv1.GlobalEgressIP](role.NewSnapshot("node", c.objects...), "one").Status.Conditions,
		"it was not written again")
}

// Where there are too few addresses for as many as gateways usually get, each gateway gets fewer,
// rather than none.
func TestEgressOfManyGatewaysInASmallNetwork(t *testing.T) {
	many := &submarinerv1.GlobalEgressIP{
		ObjectMeta: inShop("many"),
		Spec:       submarinerv1.GlobalEgressIPSpec{NumberOfIPs: new(20)},
	}
	c := newGlobalCluster(t, many)
	c.settle()
	require.Contains(t, c.text(), "cluster-egress.submariner.io 8 allocated")
	for _, name := range []string{"gw-1", "gw-2"} {
		c.add(
			&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{
					Name:   name,
					Labels: map[string]string{submarinerv1.GatewayNodeLabel: "true"},
				},
			},
		)
	}
	role.List[*v1alpha1.Submariner](role.NewSnapshot("node", c.objects...))[0].Spec.MultiActiveGatewayEnabled = true
	c.settle()
	require.Contains(t, c.text(), "gw-1-cluster-egress.submariner.io 3 allocated")
	require.Contains(t, c.text(), "gw-2-cluster-egress.submariner.io 3 allocated", "10 are free, and some are left")
}

// Each of several active gateways uses a limited number of addresses. GlobalEgressIPs whose
// addresses exceed it report NoRoom.
func TestEgressWithoutRoom(t *testing.T) {
	gateway := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "gw", Labels: map[string]string{submarinerv1.GatewayNodeLabel: "true"}},
	}
	client := &corev1.Pod{ObjectMeta: inShop("client"), Status: corev1.PodStatus{PodIP: "10.244.0.9"}}
	many := &submarinerv1.GlobalEgressIP{
		ObjectMeta: inShop("many"),
		Spec:       submarinerv1.GlobalEgressIPSpec{NumberOfIPs: new(20)},
	}
	c := newGlobalCluster(t, gateway, client, many)
	selects := func() string {
		c.settle()
		s := role.NewSnapshot("node", c.objects...)
		return meta.FindStatusCondition(role.Find[*submarinerv1.GlobalEgressIP](s, "many").Status.Conditions,
			submarinerv1.ConditionSelects).Reason
	}
	require.Equal(t, submarinerv1.ReasonPodsSelected, selects())
	role.List[*v1alpha1.Submariner](role.NewSnapshot("node", c.objects...))[0].Spec.MultiActiveGatewayEnabled = true
	require.Equal(t, submarinerv1.ReasonNoRoom, selects(), "20 and the 8 of the gateway")
	second := gateway.DeepCopy()
	second.Name = "gw-2"
	c.add(second)
	require.Equal(t, submarinerv1.ReasonPodsSelected, selects(), "each has 10")
	second.Annotations = map[string]string{submarinerv1.DrainAnnotation: "1m"}
	require.Equal(t, submarinerv1.ReasonNoRoom, selects(), "pods use the other one only")
	gateway.Annotations = second.Annotations
	require.Equal(t, submarinerv1.ReasonPodsSelected, selects(), "both are used, as no other is left")
}

// Where a GlobalEgressIP has fewer addresses than the cluster has active gateways, or there are
// standbys, its status says which packets have other addresses.
func TestEgressThatIsNotOnAllGateways(t *testing.T) {
	gateway := func(name string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{submarinerv1.GatewayNodeLabel: "true"}},
		}
	}
	client := &corev1.Pod{ObjectMeta: inShop("client"), Status: corev1.PodStatus{PodIP: "10.244.0.9"}}
	egress := &submarinerv1.GlobalEgressIP{ObjectMeta: inShop("crawlers")}
	c := newGlobalCluster(t, gateway("gw-1"), client, egress)
	selects := func() metav1.Condition {
		c.settle()
		s := role.NewSnapshot("node", c.objects...)
		return *meta.FindStatusCondition(role.Find[*submarinerv1.GlobalEgressIP](s, "crawlers").Status.Conditions,
			submarinerv1.ConditionSelects)
	}
	require.Equal(t, "pods have its addresses as their source", selects().Message)

	t.Log("a standby")
	c.add(gateway("gw-2"))
	is := selects()
	require.Equal(t, submarinerv1.ReasonPodsSelected, is.Reason)
	require.Contains(t, is.Message, "except in what leaves through a standby gateway")

	t.Log("both are active, and there is one address")
	role.List[*v1alpha1.Submariner](role.NewSnapshot("node", c.objects...))[0].Spec.MultiActiveGatewayEnabled = true
	is = selects()
	require.Equal(t, submarinerv1.ReasonFewAddresses, is.Reason)
	require.Equal(t, metav1.ConditionFalse, is.Status)
	require.Contains(t, is.Message, "it has 1 of the 2 addresses that its gateways need")
	require.Contains(t, is.Message, "set spec.numberOfIPs to 2 at least")

	t.Log("one for each")
	s := role.NewSnapshot("node", c.objects...)
	role.Find[*submarinerv1.GlobalEgressIP](s, "crawlers").Spec.NumberOfIPs = new(2)
	is = selects()
	require.Equal(t, submarinerv1.ReasonPodsSelected, is.Reason)
	require.Equal(t, "pods have its addresses as their source", is.Message)
}

// What is not recorded is not given to anybody; thousands of objects are written in parts.
func TestGlobalnetReport(t *testing.T) {
	var pods []role.Object
	for i := range 1000 {
		pods = append(
			pods,
			&submarinerv1.GlobalIngressIP{
				ObjectMeta: inShop(fmt.Sprint("pod-", i)),
				Spec: submarinerv1.GlobalIngressIPSpec{
					Target: submarinerv1.TargetHeadlessServicePod,
					PodRef: &corev1.LocalObjectReference{Name: fmt.Sprint(i)},
				},
			},
		)
	}
	c := newGlobalCluster(t, pods...)
	s := role.NewSnapshot("node", c.seen()...)
	agentRole := allocator.Role()
	p, err := agentRole.Plan(s)
	require.NoError(t, err)
	r := agentRole.Report(s, p, mesh.NewOutcome(p, c.now, nil, nil))
	require.Len(t, r.UpdateStatus, 400-len(r.Apply))
	require.True(t, r.More)
	require.Empty(t, agentRole.Report(s, p, role.Outcome{Err: fmt.Errorf("no record")}))

	t.Log("objects of one namespace, which a quota may refuse each time, keep no other namespace waiting")
	for i := range 1000 {
		greedy := ownPod(fmt.Sprint("p", i))
		greedy.Namespace = "greedy"
		c.add(greedy)
	}
	c.add(ownPod("modest"))
	s = role.NewSnapshot("node", c.seen()...)
	p, err = agentRole.Plan(s)
	require.NoError(t, err)
	r = agentRole.Report(s, p, mesh.NewOutcome(p, c.now, nil, nil))
	require.Len(t, r.Apply, 200)
	require.Len(t, r.UpdateStatus, 200)
	require.True(t, slices.ContainsFunc(r.Apply, func(o role.Object) bool { return o.GetName() == "pod-modest" }))

	t.Log("what cannot be deleted does not either, and what is being deleted is not deleted again")
	for i := range 1000 {
		o := &submarinerv1.GlobalIngressIP{
			ObjectMeta: metav1.ObjectMeta{Namespace: "stuck", Name: fmt.Sprint("needless", i), Labels: role.Ours()},
		}
		if i%2 == 0 {
			o.DeletionTimestamp = &metav1.Time{Time: c.now}
			o.Finalizers = []string{"example.com/x"}
		}
		c.add(o)
	}
	s = role.NewSnapshot("node", c.seen()...)
	p, err = agentRole.Plan(s)
	require.NoError(t, err)
	r = agentRole.Report(s, p, mesh.NewOutcome(p, c.now, nil, nil))
	require.Len(t, r.Delete, 100)
	require.Len(t, r.Apply, 100)
	require.Len(t, r.UpdateStatus, 200)
	require.False(t, slices.ContainsFunc(r.Delete, func(o role.Object) bool { return o.GetDeletionTimestamp() != nil }))
	_, err = agentRole.Plan(role.NewSnapshot[role.Object]("node"))
	require.ErrorIs(t, err, role.ErrNotJoined)
}

// In a small network, several active gateways leave addresses to Services and pods.
func TestActiveGatewaysOfASmallNetwork(t *testing.T) {
	c := newGlobalCluster(t)
	fresh, _ := globalnet.Recall(netip.MustParsePrefix("242.0.0.0/28"), "")
	c.memory = &allocator.Addresses{Memory: allocator.AddressMemory{Allocated: fresh}}
	sub := role.List[*v1alpha1.Submariner](role.NewSnapshot("node", c.objects...))[0]
	sub.Spec.MultiActiveGatewayEnabled = true
	sub.Spec.GlobalCIDR = "242.0.0.0/28"
	for _, name := range []string{"gw-1", "gw-2"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Labels = map[string]string{submarinerv1.GatewayNodeLabel: "true"}
		c.add(n)
	}
	c.settle()
	require.Equal(
		t,
		`gw-1-cluster-egress.submariner.io 4 allocated 242.0.0.1-242.0.0.4, fewer than the usual 8: spec.numGlobalIPs requests more
gw-2-cluster-egress.submariner.io 4 allocated 242.0.0.5-242.0.0.8, fewer than the usual 8: spec.numGlobalIPs requests more
`,
		c.text(),
	)
}

// A cluster that leaves takes back what its ServiceExports say, and nothing else of them.
func TestLeavingClusterClearsExports(t *testing.T) {
	web := shopExport("web")
	web.Status.Conditions = []metav1.Condition{
		{Type: "Mine", Status: metav1.ConditionTrue, Reason: "Mine", LastTransitionTime: metav1.Unix(1, 0)},
	}
	c := newGlobalCluster(t, shopService("web", corev1.ServiceSpec{ClusterIP: "10.96.0.7"}), web, shopExport("typo"))
	c.settle()
	require.Contains(t, c.text(),
		"export shop/typo Valid=False NoService, Ready=False Pending\nexport shop/web Mine=True Mine, Valid=True Valid, Ready=True Exported\n")
	sub := role.List[*v1alpha1.Submariner](role.NewSnapshot("node", c.objects...))[0]
	sub.DeletionTimestamp = &metav1.Time{Time: c.now}
	c.settle()
	require.Equal(t, "export shop/typo \nexport shop/web Mine=True Mine\n", c.text())
}
