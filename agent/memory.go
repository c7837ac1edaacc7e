package agent

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/policy"
)

// recall returns the memory of the last plan. An agent that has just started takes it over from the
// reports of its cluster's gateways. The agent of a node that is no gateway node makes no plan, and
// reads nothing.
func (a *agent) recall(ctx context.Context, s role.Snapshot) (role.Memory, error) {
	if a.memory == nil && a.Role.Recall == nil {
		a.memory = &role.Memory{}
	}
	if a.memory != nil {
		return *a.memory, nil
	}
	if members.Sweeps(s, a.Role.Owner) {
		return role.Memory{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout) // the loop and the probes wait for it
	defer cancel()
	var list submarinerv1.GatewayList
	if err := a.reports.List(ctx, &list, client.InNamespace(submarinerv1.OperatorNamespace)); err != nil {
		return role.Memory{}, fmt.Errorf("reading what the gateways are connected to: %w", err)
	}
	var reports []*submarinerv1.Gateway
	for i := range list.Items {
		reports = append(reports, &list.Items[i])
	}
	m := a.Role.Recall(a.Node, mesh.HoldsNoneOf(s, reports) || a.holdsNothing(ctx), reports, s.Now)
	a.memory = &m
	return m, nil
}

// holdsNothing reports whether the node is known to hold nothing of the role's Owner. Sync reports
// what keeps the agent from reading it.
func (a *agent) holdsNothing(ctx context.Context) bool {
	t, err := a.target(a.Role.Owner)
	if err != nil {
		return false
	}
	held, err := t.Observe(ctx)
	return err == nil && len(held) == 0
}

// remember hands a plan's claims, made from a snapshot, to the next plan, and what carries the
// traffic as far as the node holds the plan. A snapshot with a mistake changes nothing.
func (a *agent) remember(s role.Snapshot, plan role.Plan, out role.Outcome) {
	if p := mesh.PlanOf(plan); p.Mesh != nil {
		m := mesh.Remember(s.Memory, p, out)
		a.memory = &m
	}
}

// books keeps policies compiled until one of them changes: compiling reads the YAML in
// them, and the loop runs for every other change, too.
type books struct {
	makers   policy.Makers
	versions []string // of the policies
	book     *policy.Book
}

// of returns the policies compiled.
func (b *books) of(policies []*v1alpha1.CablePolicies, makers policy.Makers) *policy.Book {
	versions := make([]string, 0, 3*len(policies))
	for _, p := range policies {
		versions = append(versions, p.Name, string(p.UID), p.ResourceVersion)
	}
	if b.book == nil || b.makers != makers || !slices.Equal(b.versions, versions) {
		b.makers = makers
		b.versions = versions
		b.book = policy.Compile(policies, makers)
	}
	return b.book
}
