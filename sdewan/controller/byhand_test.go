package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// Routes, rules for routes, translations and rules for devices are objects like the others: they
// are on all pods, in their order. What somebody has written by hand is removed, or kept if the CNF
// says so, and an Event tells both.
func TestNetworkKinds(t *testing.T) {
	w := newWorld(t)
	p := w.cnf("cnf-1", 1)[0]
	p.Put(rest.Routes, &rest.Route{Name: "by-hand", Dst: "10.9.0.0/16", Dev: "net0", Table: "cnf"})
	w.run()
	route := &batch.CNFRoute{
		ObjectMeta: w.meta("cnf-1", "r"),
		Spec:       batch.CNFRouteSpec{Dst: "10.1.0.0/16", Dev: "#default", Table: "cnf"},
	}
	nat := &batch.CNFNAT{
		ObjectMeta: w.meta("cnf-1", "n"),
		Spec:       batch.CNFNATSpec{SrcIP: "10.2.0.0/16", Dest: "#default", Target: "MASQUERADE"},
	}
	first := &batch.CNFRouteRule{
		ObjectMeta: w.meta("cnf-1", "first"),
		Spec:       batch.CNFRouteRuleSpec{Src: "10.2.0.0/16", Table: "cnf"},
	}
	device := &batch.NetworkFirewallRule{
		ObjectMeta: w.meta("cnf-1", "d"),
		Spec:       batch.NetworkFirewallRuleSpec{Src: "#default", Proto: "udp", Target: "DROP"},
	}
	for _, r := range []sdewan.Rule{route, nat, first, device} {
		w.create(r.(client.Object))
	}
	w.inSync(route, nat, first, device)
	w.holds(p, rest.Routes, "r")
	w.holds(p, rest.NATs, "n")
	w.holds(p, rest.RouteRules, "first")
	w.holds(p, rest.NetworkRules, "d")
	require.Equal(t, "removed from pods, as no rule stands for them: route/routes/by-hand: write rules, or name them "+
		"in the annotation sdewan.subctl.io/unmanaged before you write them by hand", w.event(ByHand))
	w.delete(route)
	w.gone(route)
	w.holds(p, rest.Routes)
}
