package mesh

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"subctl/agent/role"
	"subctl/cable"
	"subctl/dataplane"
)

// NewOutcome returns the result of a plan. mistake is the error of making it, and fault the
// error of syncing it.
func NewOutcome(p role.Plan, now time.Time, mistake, fault error) role.Outcome {
	return PlanOf(p).Outcome(now, mistake, fault)
}

// Outcome returns the result of the plan: see NewOutcome.
func (p Plan) Outcome(now time.Time, mistake, fault error) role.Outcome {
	o := role.Outcome{Err: errors.Join(mistake, fault), Now: now, Broken: map[string]error{}}
	if o.Err == nil {
		o.Contained = true
		return o
	}
	var d *dataplane.DriftError
	if mistake != nil || !errors.As(fault, &d) {
		p.failAll(&o, o.Err)
		return o
	}
	broken, detours, others := cable.Broken(p.State, p.Installed, p.Links, d)
	if len(others) > 0 {
		p.failAll(&o, failures(others))
	}
	known := map[*dataplane.Failure]bool{}
	for _, f := range detours {
		known[f] = true
	}
	if len(detours) > 0 {
		o.Detours = failures(detours)
	}
	for i, fs := range broken {
		if len(fs) > 0 {
			o.Broken[p.OutcomeName(i)] = failures(fs)
		}
		for _, f := range fs {
			known[f] = true
		}
	}
	alone := fault == error(d) // an error joined to d is not of some cables only
	o.Contained = alone && !slices.ContainsFunc(d.Failures, func(f *dataplane.Failure) bool { return !known[f] })
	return o
}

// failAll breaks everything that the plan has.
func (p Plan) failAll(o *role.Outcome, why error) {
	for name := range p.Using {
		o.Broken[name] = why
	}
	for i := range p.Installed {
		o.Broken[p.OutcomeName(i)] = why
	}
}

// OutcomeName returns the name that Outcome.Broken has for a cable, by its number: the name of the
// cable or, if it is idle, of its probe.
func (p Plan) OutcomeName(i int) string {
	if c := p.Installed[i]; c.Idle {
		return role.ProbeName(c.Name, c.Device())
	}
	return p.Installed[i].Name
}

// failures returns one error, with a line for each reason.
func failures(fs []*dataplane.Failure) error {
	var lines []string
	for _, f := range fs {
		if text := f.Error(); !slices.Contains(lines, text) {
			lines = append(lines, text)
		}
	}
	return errors.New(strings.Join(lines, "\n"))
}

// Remember returns what a plan hands to the next: its claims, what carries the traffic, as far as
// the node holds the plan, how far the gateway has got on its way out of service, and what
// incumbents held. Former keeps the cables of all other pairs.
func Remember(m role.Memory, p Plan, o role.Outcome) role.Memory {
	m.Incumbents = append([]cable.Gateway{}, p.Mesh.Accepted.Incumbents...)
	m.Label = p.Label
	m.FreshBoot = p.FreshBoot
	m.Down = p.Probes.Known
	m.Using = withoutFailed(o, p, m.Using)
	m.First = p.First
	m.Retiring = p.Retiring
	m.Drain = p.Mesh.Offer.Local.Drain
	m.DrainingSince = p.Mesh.Offer.DrainingSince
	m.Claims = p.Mesh.Membership.Held
	m.Former = maps.Clone(m.Former) // snapshots share it
	maps.DeleteFunc(m.Former, func(name string, _ role.Using) bool {
		_, used := m.Using[name]
		return used
	})
	return m
}

// withoutFailed returns the cables that carry the traffic, given those before: cables that the
// node does not hold as planned have not taken over.
func withoutFailed(o role.Outcome, p Plan, before map[string]role.Using) map[string]role.Using {
	now := maps.Clone(p.Using)
	for name := range now {
		if o.Broken[name] == nil {
			continue
		}
		delete(now, name)
		if was, ok := before[name]; ok {
			was.Change = p.Using[name].Change
			now[name] = was
		}
	}
	return now
}
