package mesh_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/policy"
)

// silently runs the loop with probes of which some answer and some have not answered for too long.
func (w *changingPair) silently(t *testing.T, silent []string, answer ...string) *submarinerv1.Connection {
	t.Helper()
	w.failing = silent
	defer func() { w.failing = nil }()
	return w.pass(t, time.Second, answer...)
}

// The two ends disagree later: the other end has dropped the cable without encryption that
// carries the traffic. This end sends nothing through it until it answers again, and reports it,
// also after a restart, and through another gateway.
func TestEndsDisagreeLater(t *testing.T) {
	const over = westCable + " over vxlan-tunnel"
	w := newChangingPair(t, "")
	w.withoutPolicy()
	w.pass(t, 0, westCable)
	require.Equal(t, "vxlan-tunnel", w.carrier(t))
	require.NotContains(t, w.plan.Probes.Targets, over, "pings of the gateway are enough")

	t.Run("only the health check fails", func(t *testing.T) {
		for range 3 {
			c := w.silently(t, []string{westCable}, over)
			require.Equal(t, submarinerv1.ConnectionError, c.Status)
			require.False(t, c.Silent)
			require.Equal(t, "vxlan-tunnel", w.carrier(t), "the other end has the cable")
			require.False(t, w.plan.Probes.Targets[over].Eager, "where answers take long, eager pings are lost")
		}
	})
	const message = "no traffic is sent until the cable answers, as the other end may use another one. Likely cause: gateway west-gw of cluster west is down; or a firewall between"
	silent := func(t *testing.T, c *submarinerv1.Connection) {
		t.Helper()
		require.True(t, c.Silent)
		require.Contains(t, []submarinerv1.ConnectionStatus{submarinerv1.ConnectionError, submarinerv1.Connecting},
			c.Status)
		require.Contains(t, c.StatusMessage, message)
		require.Equal(t, "drop", w.carrier(t), "its packets do not take the default route either")
		require.True(t, w.plan.Probes.Targets[over].Eager, "it goes on trying")
		require.Contains(t, w.plan.Using, westCable, "the pair still has its cable")
	}
	t.Run("the cable fails", func(t *testing.T) {
		silent(t, w.silently(t, []string{westCable, over}))
		silent(t, w.silently(t, []string{westCable, over}))
	})
	t.Run("a restart", func(t *testing.T) {
		w.snapshot.Memory = Recall(nil, []*submarinerv1.Gateway{w.report}, w.snapshot.Now)
		silent(t, w.pass(t, time.Second))
	})
	t.Run("another gateway of this cluster", func(t *testing.T) {
		sibling := w.report.DeepCopy()
		sibling.Name = "gw-2"
		other := &changingPair{
			snapshot: as(role.NewSnapshot(w.snapshot.Node, append(all(w.snapshot), sibling)...), w.snapshot),
		}
		other.snapshot.Memory.Using = nil
		require.True(t, other.pass(t, time.Second).Idle)
		require.Equal(t, "drop", other.carrier(t))
	})
	t.Run("it answers again", func(t *testing.T) {
		c := w.pass(t, time.Second, over)
		require.False(t, c.Silent)
		require.Equal(t, "vxlan-tunnel", w.carrier(t))
		require.Equal(t, submarinerv1.Connected, w.pass(t, time.Second, westCable).Status)
	})
}

// A pair that changes its cable while neither answers sends nothing through either. The first that
// answers carries the traffic.
func TestEndsDisagreeDuringAChange(t *testing.T) {
	const plain, encrypted = westCable + " over vxlan-tunnel", westCable + " over ipsec-tunnel"
	for answers, carrier := range map[string]string{plain: "vxlan-tunnel", encrypted: "ipsec-tunnel"} {
		w := newChangingPair(t, "")
		w.pass(t, 0, westCable)
		require.Equal(t, "vxlan-tunnel", w.carrier(t))
		w.silently(t, []string{westCable, encrypted})
		for range 40 {
			w.silently(t, []string{westCable, plain, encrypted})
		}
		c := &w.report.Status.Connections[0]
		require.Equal(t, "drop", w.carrier(t))
		require.Len(t, w.plan.Installed, 2)
		require.Equal(t, []string{"vxlan", "ipsec"}, []string{c.Driver, c.DesiredDriver})
		require.Contains(t, c.StatusMessage,
			"should be ipsec, which cable policy secure specifies, since 2026-01-01T00:00:00Z, but that cable does not answer: vxlan does not answer either, so there is no traffic")
		require.Equal(t, metav1.ConditionFalse, w.condition().Status)
		w.pass(t, time.Second, answers)
		require.Equal(t, carrier, w.carrier(t))
	}
}

// An encrypted cable that stops answering stays as it is: nobody without the keys can read what
// is sent through it, and it carries traffic as soon as the path is back.
func TestEncryptedCableStaysWithoutAnswers(t *testing.T) {
	w := newChangingPair(t, submarinerv1.EncryptionRequired)
	w.pass(t, 0, westCable)
	c := w.silently(t, []string{westCable, westCable + " over ipsec-tunnel"})
	require.False(t, c.Silent)
	require.Equal(t, "ipsec-tunnel", w.carrier(t))
	require.Len(t, w.plan.Probes.Targets, 1)
}

// carrier returns the device that carries the traffic; "drop" if its packets are dropped.
func (w *changingPair) carrier(t *testing.T) string {
	t.Helper()
	to := fate(w.plan.State, "", netip.MustParseAddr("10.112.7.7"))
	for _, c := range w.plan.Installed {
		if c.Carries() {
			require.Contains(t, to, "group")
			return c.Device()
		}
	}
	return to
}

// withoutPolicy removes the policies: the pair should use the cable that it uses.
func (w *changingPair) withoutPolicy() {
	objs := slices.DeleteFunc(all(w.snapshot), func(o role.Object) bool {
		_, isPolicy := o.(*v1alpha1.CablePolicies)
		return isPolicy
	})
	w.snapshot = as(role.NewSnapshot(w.snapshot.Node, objs...), w.snapshot)
	w.snapshot.PoliciesDigest = policy.Digest(nil)
}

// Where the cable to one gateway of the other cluster does not answer any more, the cable to a
// further gateway must answer before it carries anything, in whatever order they are.
func TestFurtherGatewayOfASilentCluster(t *testing.T) {
	for range 20 {
		s := role.Snapshot{Memory: role.Memory{Using: map[string]role.Using{
			"w1": {
				Cluster: "west",
				Device:  "vxlan-tunnel",
			},
			"w2": {Cluster: "west", Device: "vxlan-tunnel", Silent: true},
			"w3": {Cluster: "west", Device: "vxlan-tunnel"},
			"n1": {Cluster: "north", Device: "vxlan-tunnel"},
		}}}
		for name, silent := range map[string]bool{"west": true, "north": false} {
			u, ok := LastUsed(s, cable.Gateway{Cluster: name, Name: "new"})
			require.True(t, ok)
			require.Equal(t, silent, u.Silent)
		}
	}
}
