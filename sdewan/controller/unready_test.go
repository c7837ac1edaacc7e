package controller

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/sdewan/rest"
)

// The controller looks at readiness before it calls the REST API: a pod that is not ready gets no
// rule and no request at all, although it answers. The pods that are ready get every change. Once
// it is ready, it gets everything, and nothing that was deleted meanwhile.
func TestNoRuleForAPodThatIsNotReady(t *testing.T) {
	w := newWorld(t)
	pods := w.cnf("cnf-1", 2)
	ready := pods[0]
	spare := pods[1]
	w.setReady(spare.name, false)
	w.run()
	policy := w.policy("cnf-1", "p")
	w.create(policy)
	w.holds(ready, rest.Policies, "p")
	first := w.rule("cnf-1", "first", "p", "80")
	w.create(first)
	w.holds(ready, rest.Rules, "first")
	w.waits(first, NotReady)
	w.delete(first)
	w.create(w.rule("cnf-1", "second", "p", "81"))
	w.holds(ready, rest.Rules, "second")
	require.Empty(t, spare.Writes())
	require.Zero(t, spare.Logins(), "it is not even asked")

	w.setReady(spare.name, true)
	w.holds(spare, rest.Rules, "second")
	w.inSync(policy)
	w.gone(first)
	for _, write := range spare.Writes() {
		require.NotContains(t, write, "first", "a rule that was deleted before the pod was ready")
	}

	w.setReady(spare.name, false) // and again, after it was
	w.waits(policy, NotReady)
	writes := len(spare.Writes())
	third := w.rule("cnf-1", "third", "p", "82")
	w.create(third)
	w.holds(ready, rest.Rules, "second", "third")
	w.waits(third, NotReady)
	require.Len(t, spare.Writes(), writes)
}
