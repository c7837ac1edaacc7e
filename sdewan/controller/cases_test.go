package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/rest"
	"subctl/sdewan/rest/openwrttest"
)

// The unusual cases of the proposal, each with the proposal's words. Ten minutes are a second here:
// the controller is told by events, and tries again at least once a second.

const tenMinutes = time.Second

// unusual is the beginning of all four cases.
type unusual struct {
	*world
	pod1, pod2                   *pod
	policy1                      *batch.Mwan3Policy
	rule1, rule2, rule3          *batch.Mwan3Rule
	stopController               func()
	appliedOfPolicy1, appliedOf2 string
}

func newUnusual(t *testing.T) *unusual {
	t.Helper()
	u := &unusual{world: newWorld(t)}
	// A deployment (CNF) for a given purpose has two pod replicas (CNF-pod-1 and CNF-pod-2).
	// Controller is also brought up.
	pods := u.cnf("cnf-1", 2)
	u.pod1 = pods[0]
	u.pod2 = pods[1]
	u.stopController = u.run()
	// CNF-pod-1 and CNF-pod-2 are both running with no/default configuration.
	for _, p := range pods {
		require.Empty(t, p.Names(rest.Policies))
	}
	// MWAN3 policy 1 is added. MWAN3 rule 1 and Rule 2 are added to use MWAN3 Policy1.
	u.policy1 = u.policy("cnf-1", "policy1")
	u.rule1, u.rule2, u.rule3 = u.rule("cnf-1", "rule1", "policy1",
		"81"), u.rule("cnf-1", "rule2", "policy1", "82"), u.rule("cnf-1", "rule3", "policy1", "83")
	u.create(u.policy1)
	u.create(u.rule1)
	u.create(u.rule2)
	u.inSync(u.policy1, u.rule1, u.rule2)
	u.appliedOfPolicy1, u.appliedOf2 = u.policy1.Status.AppliedVersion, u.rule2.Status.AppliedVersion
	// Since all controller, CNF-pod-1 and CNF-pod-2 are running, CNF-pod-1 and CNF-pod-2 has
	// configuration MWAN3 Policy1, rule1 and rule2.
	for _, p := range pods {
		u.holds(p, rest.Policies, "policy1")
		u.holds(p, rest.Rules, "rule1", "rule2")
	}
	return u
}

// deleteRule1: every rule has a finalizer, so rule 1 is not deleted from etcd.
func (u *unusual) deleteRule1() {
	u.Helper()
	u.delete(u.rule1)
	require.NoError(u, u.get(u.rule1))
	require.NotNil(u, u.rule1.DeletionTimestamp)
	require.Contains(u, u.rule1.Finalizers, Finalizer)
}

func (u *unusual) addRule3() {
	u.Helper()
	u.create(u.rule3)
}

func (u *unusual) updateRule2() {
	u.Helper()
	require.NoError(u, retryConflict(func() error { // the controller writes its status
		if err := u.get(u.rule2); err != nil {
			return err
		}
		u.rule2.Spec.DestPort = "8082"
		return u.client.Update(u.Context(), u.rule2)
	}))
}

// changesWhileNotReady are the changes of cases 1 and 2, after which all rules wait for the CNF.
func (u *unusual) changesWhileNotReady() {
	u.Helper()
	// In the reconcile, it finds that the CNF is not ready, so CR status.appliedVersion is set nil.
	for _, r := range []sdewan.Rule{u.policy1, u.rule1, u.rule2} {
		u.waits(r, NotReady)
	}
	u.deleteRule1()
	u.addRule3()
	u.updateRule2()
	u.waits(u.rule3, NotReady)
	// Not so the pod that is ready: it has them at once.
	u.holds(u.pod2, rest.Rules, "rule2", "rule3")
	u.never(tenMinutes, func() error { return u.get(u.rule1) })
	require.NotNil(u, u.rule1.DeletionTimestamp)
	require.False(u, u.rule2.Status.InSync)
}

// latest checks that both pods have latest configuration and there is no duplicate information.
func (u *unusual) latest(port2 string, pods ...*pod) {
	u.Helper()
	u.gone(u.rule1)
	u.inSync(u.policy1, u.rule2, u.rule3)
	require.WithinDuration(u, time.Now(), u.rule2.Status.AppliedTime.Time, patience)
	for _, p := range pods {
		require.Equal(u, []string{"policy1"}, p.EffectiveNames(rest.Policies))
		require.Equal(u, []string{"rule2", "rule3"}, p.EffectiveNames(rest.Rules))
		require.Equal(u, port2, p.Field(rest.Rules, "rule2", "dest_port"))
		require.Equal(u, p.EffectiveNames(rest.Rules), p.Names(rest.Rules))
	}
}

// Case 1: a pod is stopped, and another one takes its place after 10 minutes, with no
// configuration.
func TestCase1(t *testing.T) {
	u := newUnusual(t)
	u.kill(u.pod1) // Now CNF-pod-1 is stopped.
	u.changesWhileNotReady()
	pods := u.pods("cnf-1") // CNF-pod-1 is brought back up after 10 minutes
	u.latest("8082", pods...)
	require.Len(t, pods, 2)
}

// Case 2: a pod is disconnected, but still running. In the proposal's case it has been restarted
// when it is back.
func TestCase2(t *testing.T) {
	for name, restarted := range map[string]bool{"it was restarted": true, "it has kept its configuration": false} {
		t.Run(name, func(t *testing.T) {
			u := newUnusual(t)
			u.pod1.stop() // Now CNF-pod-1 is disconnected, but still running.
			u.setReady(u.pod1.name, false)
			u.changesWhileNotReady()
			if restarted {
				u.pod1.Reset()
			} else {
				require.Equal(t, []string{"rule1", "rule2"}, u.pod1.EffectiveNames(rest.Rules))
			}
			u.connect(u.pod1) // CNF-pod-1 is brought back up after 10 minutes
			u.setReady(u.pod1.name, true)
			u.latest("8082", u.pod1, u.pod2)
		})
	}
}

// connect serves a box that was stopped again.
func (w *world) connect(p *pod) {
	w.Helper()
	_, p.stop = openwrttest.Serve(w, hostPort(netipAddr(p.ip), port),
		w.authority.Certificate(w, "*."+w.namespace+".pod.cluster.local"), p.Box)
}

// Case 3: the controller is down.
func TestCase3(t *testing.T) {
	u := newUnusual(t)
	u.stopController() // Controller is down for 10 minutes.
	u.deleteRule1()
	u.addRule3()
	u.updateRule2()
	// rule3 status.appliedVersion and status.appliedTime and status.inSync are nil/default value;
	// those of rule2 are the values before controller goes down.
	require.NoError(t, u.get(u.rule3))
	require.Equal(t, batch.RuleStatus{}, u.rule3.Status)
	require.NoError(t, u.get(u.rule2))
	require.Equal(t, u.appliedOf2, u.rule2.Status.AppliedVersion)
	require.True(t, u.rule2.Status.InSync)
	for _, p := range []*pod{u.pod1, u.pod2} {
		require.Equal(t, []string{"rule1", "rule2"}, p.EffectiveNames(rest.Rules))
		p.Writes()
	}
	u.run() // Controller is up.
	u.latest("8082", u.pod1, u.pod2)
	require.NotEqual(t, u.appliedOf2, u.rule2.Status.AppliedVersion)
	require.Equal(t, u.appliedOfPolicy1, u.policy1.Status.AppliedVersion, "the policy was not touched")
	for _, p := range []*pod{u.pod1, u.pod2} {
		require.NotContains(t, p.Writes(), "PUT mwan3/policies/policy1")
	}
}

// Case 4: the controller is down, and then a pod.
func TestCase4(t *testing.T) {
	u := newUnusual(t)
	u.stopController() // Controller is down for 10 minutes.
	u.kill(u.pod1)     // After controller goes down, CNF-pod-1 is down
	u.deleteRule1()
	u.addRule3()
	// For MWAN3 rule 2, we don't make any change
	var pods []*pod
	u.eventually(func() error { pods = u.pods("cnf-1"); return twoPods(pods) }) // CNF-pod-1 is up
	u.run()                                                                     // Controller is up.
	u.latest("82", pods...)
	require.NotEqual(t, u.appliedOf2, u.rule2.Status.AppliedVersion, "it was applied again")
}

// Case 4 again, with a container that restarts within its pod while the controller is down, so that
// the API server has nothing new.
func TestCase4InPlace(t *testing.T) {
	u := newUnusual(t)
	u.stopController()
	u.pod1.Reset()
	u.deleteRule1()
	u.addRule3()
	u.run()
	u.latest("82", u.pod1, u.pod2)
}

// A container that restarts so quickly that its pod stays ready gets its rules again, too.
func TestQuickRestart(t *testing.T) {
	u := newUnusual(t)
	u.pod1.Reset()
	u.restarted(u.pod1.name, 1)
	u.holds(u.pod1, rest.Rules, "rule1", "rule2")
}
