package mesh_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable/natdiscovery"
	"subctl/dataplane"
	"subctl/internal/kubetest"
	"subctl/policy"
)

// changingPair is a gateway whose pair uses VXLAN, while a policy wants IPsec.
type changingPair struct {
	snapshot role.Snapshot
	report   *submarinerv1.Gateway
	plan     Plan
	failing  []string // the probes that have not been answered for too long
}

const westCable = "submariner-cable-west-10-89-2-11"

func newChangingPair(t *testing.T, encryption submarinerv1.Encryption) *changingPair {
	t.Helper()
	file, err := txtar.ParseFile("../../testdata/scenarios/encryption-required.txtar")
	require.NoError(t, err)
	objs := kubetest.Decode(t, file)
	for _, o := range objs {
		switch o := o.(type) {
		case *v1alpha1.Submariner:
			o.Spec.Encryption = encryption
		case *submarinerv1.RouteAgent:
			o.Status.Node.IPsec = submarinerv1.EngineFact{Name: "kernel"}
		case *submarinerv1.Cluster:
			if submarinerv1.IsCopy(o) {
				o.Spec.PublicKey = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
			}
		}
	}
	secure := &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			Name: "secure", Namespace: submarinerv1.OperatorNamespace,
			Labels: map[string]string{submarinerv1.ClusterIDLabel: "west", submarinerv1.ClusterSetLabel: "default"},
		},
		ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: "ipsec"}},
	}
	s, err := FromReports("gw", append(objs, secure)...)
	require.NoError(t, err)
	s.PoliciesDigest = policy.Digest([]*v1alpha1.CablePolicies{secure})
	s.Now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s.Standing.Active = true
	s.Memory.Using = map[string]role.Using{westCable: {Cluster: "west", Driver: "vxlan", Device: "vxlan-tunnel"}}
	return &changingPair{snapshot: s}
}

// pass runs the loop after some time, with the probes that answer.
func (w *changingPair) pass(t *testing.T, after time.Duration, answer ...string) *submarinerv1.Connection {
	t.Helper()
	w.snapshot.Now = w.snapshot.Now.Add(after)
	w.snapshot.Health = map[string]role.Health{}
	for _, name := range answer {
		w.snapshot.Health[name] = role.Health{Status: submarinerv1.Connected}
	}
	for _, name := range w.failing {
		w.snapshot.Health[name] = role.Health{Status: submarinerv1.ConnectionError}
	}
	var err error
	w.plan, err = PlanGateway(w.snapshot)
	require.NoError(t, err)
	w.snapshot.Memory.Using, w.snapshot.Memory.First = w.plan.Using, w.plan.First
	o := role.Outcome{Now: w.snapshot.Now, Health: w.snapshot.Health}
	var was []metav1.Condition
	if w.report != nil {
		was = w.report.Status.Conditions
	}
	w.report = &submarinerv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: w.snapshot.Node},
		Status: submarinerv1.GatewayStatus{
			HAStatus:    submarinerv1.HAStatusActive,
			Conditions:  report.Conditions(was, w.plan, o),
			Connections: report.Connections(w.plan, o),
		},
	}
	require.Len(t, w.report.Status.Connections, 1)
	return &w.report.Status.Connections[0]
}

func (w *changingPair) condition() *metav1.Condition {
	return meta.FindStatusCondition(w.report.Status.Conditions, role.ConditionCablesChanged)
}

// A cable that does not answer is reported after 30 s, with what to check, also if the agent
// was restarted meanwhile; not before, and no longer once it answers.
func TestStuckChange(t *testing.T) {
	w := newChangingPair(t, "")
	c := w.pass(t, 0, westCable)
	require.Equal(t, "changing to ipsec, which does not answer yet: traffic stays with vxlan until it does",
		c.StatusMessage)
	c = w.pass(t, 29*time.Second, westCable)
	require.Nil(t, w.condition())
	require.False(t, c.Stuck(w.snapshot.Now))

	w.snapshot.Memory = Recall(nil, []*submarinerv1.Gateway{w.report}, w.snapshot.Now) // a restart
	c = w.pass(t, time.Second, westCable)
	const message = "the cable to gateway west-gw of cluster west should be ipsec, which cable policy secure specifies, since 2026-01-01T00:00:00Z, but that cable does not answer: traffic stays with vxlan. " +
		"Likely cause: a firewall between 10.89.1.11 and 10.89.2.11 drops UDP port 4500 or ESP (IP protocol 50); " +
		"or cluster west does not use ipsec, because it does not have the policy or could not set up the cable (subctl show connections there)"
	require.Equal(t, submarinerv1.Connecting, c.Status)
	require.Equal(t, message, c.StatusMessage)
	require.True(t, c.Stuck(w.snapshot.Now))
	require.Equal(t, metav1.ConditionFalse, w.condition().Status)
	require.Equal(t, "NoAnswer", w.condition().Reason)
	require.Equal(t, message, w.condition().Message)
	require.True(t, role.Wrong(*w.condition()))

	w.pass(t, time.Minute, westCable)
	require.Equal(t, message, w.condition().Message, "the message does not change: each change is an Event")

	w.snapshot.Cables = []dataplane.CableState{
		{Device: "ipsec-tunnel", Peer: w.plan.Links[1].State, Message: "AUTHENTICATION_FAILED: the pair key differs"},
	}
	w.pass(t, 0, westCable)
	require.Contains(t, w.condition().Message,
		"Likely cause: AUTHENTICATION_FAILED: the pair key differs; or a firewall between")
	w.snapshot.Cables[0] = dataplane.CableState{Device: "ipsec-tunnel", Peer: w.plan.Links[1].State, Up: true}
	w.pass(t, 0, westCable)
	require.Contains(t, w.condition().Message,
		"Likely cause: the gateways have agreed on keys, but packets do not pass: a firewall between")

	w.pass(t, time.Second, westCable, role.ProbeName(westCable, "ipsec-tunnel"))
	require.Nil(t, w.condition(), "it answers")
	c = w.pass(t, time.Hour, westCable)
	require.Nil(t, c.ChangingSince)
}

// A pair that must be encrypted gives up its plain cable at once: if the new one does not
// answer, that is reported as well.
func TestStuckWithoutTraffic(t *testing.T) {
	w := newChangingPair(t, submarinerv1.EncryptionRequired)
	c := w.pass(t, 0)
	require.Equal(t, "ipsec", c.Driver)
	require.Len(t, w.plan.Installed, 1)
	w.snapshot.Memory = Recall(nil, []*submarinerv1.Gateway{w.report}, w.snapshot.Now)
	c = w.pass(t, 30*time.Second)
	require.Contains(t, c.StatusMessage,
		"that cable does not answer: the cable before it could not stay, so there is no traffic. Likely cause: a firewall between 10.89.1.11 and 10.89.2.11 drops UDP port 4500")
	require.NotNil(t, w.condition())
	c = w.pass(t, time.Second, westCable)
	require.Equal(t, submarinerv1.Connected, c.Status)
	require.Nil(t, w.condition())
	w.pass(t, time.Second, westCable)
	c = w.pass(t, time.Hour)
	require.Nil(t, w.condition(), "a cable that fails later is not a change")
	require.Nil(t, c.ChangingSince)
}

// The first cable of a pair that does not answer is reported like a change, also if the agent was
// restarted meanwhile; not before 30 s have passed, and no longer once it answers.
func TestStuckFirstCable(t *testing.T) {
	for _, lower := range []int{0, 1400} {
		w := newChangingPair(t, "")
		w.snapshot.Memory.Using = nil
		c := w.pass(t, 0)
		require.True(t, c.Idle)
		require.Equal(t, "no traffic is sent until the cable answers, as the other end may use another one",
			c.StatusMessage)
		const first = westCable + " over ipsec-tunnel"
		w.failing = []string{first}
		c = w.pass(t, 29*time.Second)
		require.Nil(t, w.condition())
		require.False(t, c.Stuck(w.snapshot.Now))

		w.snapshot.Memory = Recall(nil, []*submarinerv1.Gateway{w.report}, w.snapshot.Now) // a restart
		require.Empty(t, w.snapshot.Memory.Using)
		cause := ""
		if lower != 0 {
			w.snapshot.Paths = map[string]natdiscovery.Path{
				westCable: {Address: netip.MustParseAddr("10.89.2.11"), MTU: lower, Done: true},
			}
			cause = "; or packets are lost because the path carries at most 1400 bytes, less than this node's MTU of 1500"
		}
		c = w.pass(t, time.Second)
		message := "the cable to gateway west-gw of cluster west should be ipsec, which cable policy secure specifies, since 2026-01-01T00:00:00Z, but that cable does not answer: " +
			"no traffic is sent until it does, as the other end may use another one. Likely cause: a firewall between 10.89.1.11 and 10.89.2.11 drops UDP port 4500 or ESP (IP protocol 50); " +
			"or cluster west does not use ipsec, because it does not have the policy or could not set up the cable (subctl show connections there)" + cause
		require.Equal(t, message, c.StatusMessage)
		require.True(t, c.Stuck(w.snapshot.Now))
		require.Equal(t, metav1.ConditionFalse, w.condition().Status)
		require.Equal(t, "NoAnswer", w.condition().Reason)
		require.Equal(t, message, w.condition().Message)
		w.pass(t, time.Hour)
		require.Equal(t, message, w.condition().Message, "the message does not change: each change is an Event")

		w.failing = nil
		c = w.pass(t, time.Second, first)
		require.Nil(t, w.condition(), "it answers")
		require.Nil(t, c.ChangingSince)
		require.Empty(t, w.plan.First)
	}
}
