package exchange_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

// make makes a policy in the cluster.
func (s *site) make(name, driver string) {
	s.t.Helper()
	p := cablePolicy(name, driver)
	p.Namespace = s.ns
	p.Generation = 0
	require.NoError(s.t, s.client.Create(s.t.Context(), p))
}

// policies returns what the cluster holds, sorted: "name driver maker".
func (s *site) policies() []string {
	s.t.Helper()
	list := &v1alpha1.CablePoliciesList{}
	require.NoError(s.t, s.client.List(s.t.Context(), list, client.InNamespace(s.ns)))
	out := []string{}
	for _, p := range list.Items {
		out = append(out,
			fmt.Sprintf("%s %s %s", p.Name, p.ConnectionPolicies[0].CableDriver, p.Labels[submarinerv1.ClusterIDLabel]))
	}
	slices.Sort(out)
	return out
}

func (s *site) holds(want ...string) {
	s.t.Helper()
	slices.Sort(want)
	require.Eventually(s.t, func() bool { return slices.Equal(want, s.policies()) }, patience, 10*time.Millisecond,
		"%s: want %q", s.id, want)
}

// shared waits for what is reported on a policy.
func (s *site) shared(name, reason string, sets ...string) *metav1.Condition {
	s.t.Helper()
	p := &v1alpha1.CablePolicies{}
	require.Eventually(s.t, func() bool {
		require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, p))
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionShared)
		return c != nil && c.Reason == reason && c.ObservedGeneration == p.Generation &&
			slices.Equal(sets, p.ClusterSets())
	}, patience, 10*time.Millisecond, "%s: %+v", name, p)
	return meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionShared)
}

func (s *site) drop(name string) {
	s.t.Helper()
	require.NoError(
		s.t,
		s.client.Delete(s.t.Context(),
			&v1alpha1.CablePolicies{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns}}),
	)
}

// onBroker returns the policy on the broker that has a name in clusters; nil if there is none.
func onBroker(t *testing.T, d *brokertest.Broker, name string) *v1alpha1.CablePolicies {
	t.Helper()
	list := &v1alpha1.CablePoliciesList{}
	require.NoError(t, d.Admin.List(t.Context(), list, client.InNamespace(d.NS)))
	for _, p := range list.Items {
		if p.Annotations[submarinerv1.NameAnnotation] == name || p.Name == name {
			return &p
		}
	}
	return nil
}

func TestExchangeOfPolicies(t *testing.T) {
	d := brokertest.Deploy(t, kubetest.Shared(t))
	gate := kubetest.NewGate(t, d.Server)
	east := newSite(t, d, gate, "east")
	west := newSite(t, d, gate, "west")
	var told sync.Map // by name of a policy of east: the reason
	east.config.Warn = func(p client.Object, c metav1.Condition) { told.Store(p.GetName(), c.Reason) }
	for _, s := range []*site{east, west} {
		s.create(cluster(s.ns, s.id))
		s.start()
	}
	brokers := func(name, driver string) *v1alpha1.CablePolicies {
		p := cablePolicy(name, driver)
		p.Namespace = d.NS
		p.Generation = 0
		return brokertest.Sign(p, "default")
	}

	t.Log("from a member and from the broker")
	east.make("p", "vxlan")
	fallback := brokers("default", "ipsec")
	require.NoError(t, d.Admin.Create(t.Context(), fallback))
	east.holds("default ipsec BROKER", "p vxlan ")
	west.holds("default ipsec BROKER", "p.east.default vxlan east")
	require.Equal(t, metav1.ConditionTrue, east.shared("p", "Shared", "default").Status)

	t.Log("what others report on the policy stays, and so does what we do")
	accepted := &v1alpha1.CablePolicies{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: east.ns}}
	accepted.Status.Conditions = []metav1.Condition{
		{
			Type:               v1alpha1.ConditionAccepted,
			Status:             metav1.ConditionTrue,
			Reason:             "Good",
			LastTransitionTime: metav1.Now(),
		},
	}
	require.NoError(t, kube.ApplyStatus(t.Context(), east.client, "another", accepted))
	p := &v1alpha1.CablePolicies{}
	require.NoError(t, east.client.Get(t.Context(), client.ObjectKey{Namespace: east.ns, Name: "p"}, p))
	p.ConnectionPolicies[0].CableDriver = "wireguard"
	require.NoError(t, east.client.Update(t.Context(), p))
	west.holds("default ipsec BROKER", "p.east.default wireguard east")
	east.shared("p", "Shared", "default")
	require.NoError(t, east.client.Get(t.Context(), client.ObjectKey{Namespace: east.ns, Name: "p"}, p))
	require.True(t, meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionAccepted))

	t.Log("a mistake is not shared, and what was shared stays in force")
	p.ConnectionPolicies[0].CableOptions = &v1alpha1.CableOptions{
		Data: map[string]string{v1alpha1.CableCustomConfig: "mtu: 5"},
	}
	require.NoError(t, east.client.Update(t.Context(), p))
	require.Contains(t, east.shared("p", "Mistake", "default").Message,
		"its last valid version stays in force: spec[0].options.data: line 1: mtu")
	require.NoError(t, east.client.Get(t.Context(), client.ObjectKey{Namespace: east.ns, Name: "p"}, p))
	require.Equal(t, []v1alpha1.CablePolicySpec{{CableDriver: "wireguard"}}, p.InForce())
	west.holds("default ipsec BROKER", "p.east.default wireguard east")
	p.ConnectionPolicies[0].CableOptions = nil
	require.NoError(t, east.client.Update(t.Context(), p))
	east.shared("p", "Shared", "default")
	nonsense := brokers("nonsense", "vxlan")
	nonsense.ConnectionPolicies[0].CableOptions = &v1alpha1.CableOptions{
		Data: map[string]string{v1alpha1.CableCustomConfig: "mtu: 5"},
	}
	require.NoError(t, d.Admin.Create(t.Context(), brokertest.Sign(nonsense, "default")))
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(west.ex.Status().Refused,
			func(r exchange.Refusal) bool { return r.Name == "nonsense" })
	}, patience, tick)
	west.holds("default ipsec BROKER", "p.east.default wireguard east")
	require.NoError(t, d.Admin.Delete(t.Context(), nonsense))

	t.Log("only who made it changes it")
	copied := &v1alpha1.CablePolicies{}
	require.NoError(t,
		west.client.Get(t.Context(), client.ObjectKey{Namespace: west.ns, Name: "p.east.default"}, copied))
	copied.ConnectionPolicies[0].CableDriver = "ipsec"
	require.NoError(t, west.client.Update(t.Context(), copied))
	west.holds("default ipsec BROKER", "p.east.default wireguard east")
	west.drop("default")
	west.holds("default ipsec BROKER", "p.east.default wireguard east")
	require.NoError(t, d.Admin.Delete(t.Context(), onBroker(t, d, "p")))
	require.Eventually(t, func() bool { return onBroker(t, d, "p") != nil }, patience, tick)

	t.Log("a policy with the name of one that comes later, while the broker is away")
	gate.Shut()
	east.eventuallyHealthy(false)
	west.eventuallyHealthy(false)
	east.make("q", "vxlan")
	require.NoError(t, d.Admin.Create(t.Context(), brokers("q", "wireguard")))
	west.drop("default")
	east.drop("p")
	east.shared("q", "Pending")
	gate.Open(t, d.Server)
	east.holds("default ipsec BROKER", "q vxlan ", "q.default wireguard BROKER")
	west.holds("default ipsec BROKER", "q wireguard BROKER")
	require.Equal(t,
		"the broker has a cable policy of this name in clusterset default: delete this one if the broker has adopted it; otherwise create it again under another name",
		east.shared("q", "NameTaken").Message)
	require.Eventually(t, func() bool { reason, _ := told.Load("q"); return reason == "NameTaken" }, patience, tick)
	_, heard := told.Load("p")
	require.False(t, heard, "of mistakes the condition Accepted tells")
	east.drop("q")
	east.holds("default ipsec BROKER", "q.default wireguard BROKER")

	t.Log("deletes that nobody watched")
	east.make("r", "vxlan")
	west.holds("default ipsec BROKER", "q wireguard BROKER", "r.east.default vxlan east")
	east.shared("r", "Shared", "default")
	east.stop()
	west.stop()
	east.drop("r")
	require.NoError(t, d.Admin.Delete(t.Context(), fallback))
	require.NoError(t, d.Admin.Delete(t.Context(), brokers("q", "")))
	east.start()
	west.start()
	east.holds()
	west.holds()

	t.Log("a label that selects a cluster, put on it where it is")
	arrives := func(labels string, want map[string]string) {
		t.Helper()
		c := cluster(east.ns, "east")
		require.NoError(
			t,
			east.client.Patch(t.Context(), c,
				client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":`+labels+`}}`))),
		)
		want[submarinerv1.ClusterIDLabel] = "east"
		require.Eventually(t, func() bool {
			return west.client.Get(t.Context(), client.ObjectKey{Namespace: west.ns, Name: "east"}, c) == nil &&
				maps.Equal(want, c.Labels)
		}, patience, tick, "%v", c)
	}
	arrives(`{"env":"production","zone":"eu"}`, map[string]string{"env": "production", "zone": "eu"})
	arrives(`{"env":"staging","zone":null}`, map[string]string{"env": "staging"})

	t.Log("two of a name at one moment")
	gate.Shut()
	east.eventuallyHealthy(false)
	west.eventuallyHealthy(false)
	const races = 10
	for i := range races {
		east.make(fmt.Sprintf("race-%d", i), "vxlan")
		west.make(fmt.Sprintf("race-%d", i), "ipsec")
	}
	gate.Open(t, d.Server)
	for i := range races {
		name := fmt.Sprintf("race-%d", i)
		for _, site := range []*site{east, west} {
			site.shared(name, "Shared", "default")
		}
		require.Eventually(t, func() bool {
			return slices.Contains(east.policies(), name+".west.default ipsec west") &&
				slices.Contains(west.policies(), name+".east.default vxlan east")
		}, patience, tick, "%s", name)
		east.drop(name)
		west.drop(name)
	}
	west.holds()
	east.holds()
	east.eventuallyHealthy(true)
	require.Nil(t, onBroker(t, d, "p"))
	east.stop()
	west.stop()
}
