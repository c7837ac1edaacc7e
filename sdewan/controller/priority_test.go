package controller

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan/rest"
)

// Rules with priorities are in their order on a CNF, in whichever order they are created: a GitOps
// apply after a disaster means the same firewall. A changed priority moves a rule.
func TestPriorities(t *testing.T) {
	w := newWorld(t)
	p := w.cnf("cnf-1", 1)[0]
	w.run()
	order := []string{"deny", "allow", "log", "old"}
	priorities := map[string]string{"deny": "10", "allow": "20", "log": "30", "old": ""}
	create := func(names []string) {
		for _, name := range names {
			w.create(&batch.FirewallRule{
				ObjectMeta: w.meta("cnf-1", name),
				Spec:       batch.FirewallRuleSpec{Src: "*", Proto: "udp", Priority: batch.Priority(priorities[name])},
			})
		}
	}
	create([]string{"old", "log", "deny", "allow"})
	w.holds(p, rest.FirewallRules, order...)
	for _, name := range order {
		w.delete(&batch.FirewallRule{ObjectMeta: w.meta("cnf-1", name)})
	}
	w.holds(p, rest.FirewallRules)
	again := slices.Clone(order)
	slices.Reverse(again)
	create(again)
	w.holds(p, rest.FirewallRules, order...)

	r := &batch.FirewallRule{ObjectMeta: w.meta("cnf-1", "log")}
	w.eventually(func() error {
		if err := w.get(r); err != nil {
			return err
		}
		r.Spec.Priority = "5"
		return w.client.Update(w.Context(), client.Object(r))
	})
	w.holds(p, rest.FirewallRules, "log", "deny", "allow", "old")
}
