package discoverer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/services"
)

// speaks returns the slim report of the gateway that exchanges objects with the broker.
func speaks(name string, is metav1.ConditionStatus, reason string) *submarinerv1.Gateway {
	g := &submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: name}}
	g.Status.HAStatus = submarinerv1.HAStatusActive
	if reason != "" {
		g.Status.Conditions = []metav1.Condition{
			{Type: role.ConditionSynced, Status: metav1.ConditionTrue},
			{Type: role.ConditionBrokerSynced, Status: is, Reason: reason, Message: "watching clusterset default"},
		}
	}
	return Role().Slim(g).(*submarinerv1.Gateway)
}

// The contact with the broker is lost after a while in which nothing was read, and found after a
// while in which something was. What is not known changes nothing, and takes no time away.
func TestContactWithTheBroker(t *testing.T) {
	const no, yes = metav1.ConditionFalse, metav1.ConditionTrue
	now := time.Unix(10000, 0)
	var c Contact
	var again time.Duration
	look := func(is metav1.ConditionStatus, reason string, age time.Duration) (out services.Contact) {
		s := role.NewSnapshot("n1", speaks("gw", is, reason), speaks("other", no, ""))
		s.Now = now
		s.ReportTimes = role.ReportTimes{"gw": {At: now.Add(-age)}, "other": {At: now}}
		out, c, again = c.next(s)
		return out
	}
	require.Equal(t, services.ContactUnknown, look(yes, "Synced", 0), "the agent has just started")
	require.Equal(t, contactTime, again)
	now = now.Add(contactTime)
	require.Equal(t, services.ContactRead, look(yes, "Synced", 0))
	require.Zero(t, again)
	require.Equal(t, services.ContactRead, look(no, "Failed", 0), "the broker is read, and something else is wrong")

	require.Equal(t, services.ContactUnknown, look(no, submarinerv1.ReasonBrokerNotRead, 0))
	now = now.Add(contactTime / 2)
	require.Equal(t, services.ContactUnknown, look(no, role.ReasonWaiting, 0), "another gateway has taken over")
	require.Zero(t, again)
	require.Equal(t, services.ContactUnknown, look(no, submarinerv1.ReasonBrokerNotRead, 0))
	require.Equal(t, contactTime/2, again)
	now = now.Add(again - 1)
	require.Equal(t, services.ContactUnknown, look(no, submarinerv1.ReasonBrokerNotRead, 0))
	now = now.Add(1)
	require.Equal(t, services.ContactLost, look(no, submarinerv1.ReasonBrokerNotRead, 0))
	require.Equal(t, services.ContactUnknown, look(no, submarinerv1.ReasonBrokerNotRead, role.DeadAfter), "no report")
	require.Equal(t, services.ContactUnknown, look(yes, "Synced", role.DeadAfter))
	require.Equal(t, services.ContactLost, look(no, submarinerv1.ReasonBrokerNotRead, 0))

	require.Equal(t, services.ContactUnknown, look(yes, "Synced", 0), "other clusters may not have published yet")
	now = now.Add(contactTime)
	require.Equal(t, services.ContactRead, look(yes, "Synced", 0))
	require.Equal(t, services.ContactUnknown, look(no, submarinerv1.ReasonBrokerNotRead, 0))
	require.Equal(t, services.ContactUnknown, look(yes, "Synced", 0))
	require.Equal(t, contactTime, again, "it was away for a moment")
}

// A gateway that reads the broker counts, not one that has been replaced.
func TestContactOfOneGateway(t *testing.T) {
	away := speaks("a", metav1.ConditionFalse, submarinerv1.ReasonBrokerNotRead)
	s := role.NewSnapshot("n1", away, speaks("b", metav1.ConditionTrue, "Synced"))
	s.Now = time.Unix(1000, 0)
	s.ReportTimes = role.ReportTimes{"a": {At: s.Now}, "b": {At: s.Now}}
	lost, known := brokerLost(s)
	require.True(t, known)
	require.False(t, lost)
	s.ReportTimes = role.ReportTimes{"a": {At: s.Now}}
	lost, known = brokerLost(s)
	require.True(t, known)
	require.True(t, lost)
}

// The agent imports the address of a Service in place of its pods once the broker is away, and
// looks again when the time has come.
func TestServicesWhileTheBrokerIsAway(t *testing.T) {
	objs := importing(1)
	page := objs[len(objs)-1].(*v1alpha1.ExportedServices)
	page.Spec.Services[0].Endpoints = []v1alpha1.ExportedEndpoints{{
		Targets: []int32{8080}, Pods: []v1alpha1.ExportedEndpoint{{IP: "10.12.0.7"}},
	}}
	w := &discoveryCluster{id: "west", objs: append(objs, reachesOf(time.Unix(1000, 0), map[string]bool{"east": true}))}
	w.settle(t)
	now := time.Unix(20000, 0)
	var memory ServiceMemory
	endpoint := func(reason string) (string, time.Duration) {
		s := role.NewSnapshot("n1", append(w.objs, speaks("gw", metav1.ConditionFalse, reason))...)
		s.Now = now
		s.ReportTimes = role.ReportTimes{"gw": {At: now}}
		memory.Reach = Reach{"east": {connected: true}}
		s.Previous = memory
		p, err := planServices(s)
		require.NoError(t, err)
		memory = p.Decisions.(*ServicePlan).Memory
		for _, o := range p.Decisions.(*ServicePlan).imported.Slices {
			w.put(o)
		}
		return role.List[*discoveryv1.EndpointSlice](w.snapshot())[0].Endpoints[0].Addresses[0], p.Again
	}
	at, again := endpoint(submarinerv1.ReasonBrokerNotRead)
	require.Equal(t, "10.12.0.7", at)
	require.LessOrEqual(t, again, contactTime)
	require.Positive(t, again)
	now = now.Add(contactTime)
	at, _ = endpoint(submarinerv1.ReasonBrokerNotRead)
	require.Equal(t, "10.102.0.1", at)
	at, again = endpoint("Synced")
	require.Equal(t, "10.102.0.1", at)
	require.Positive(t, again)
	now = now.Add(contactTime)
	at, _ = endpoint("Synced")
	require.Equal(t, "10.12.0.7", at)
}

func TestSoonest(t *testing.T) {
	require.Equal(t, time.Second, soonest(0, time.Second))
	require.Equal(t, time.Second, soonest(time.Second, 0))
	require.Equal(t, time.Second, soonest(time.Minute, time.Second))
	require.Zero(t, soonest(0, 0))
}
