package agent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"subctl/dataplane"
	"subctl/sdewan/cnf"
	"subctl/sdewan/rest"
)

// The kernel, or charon, may refuse what a plan has for one object of the REST API. That object
// then has no effect, and the report says so. Everything else is in force.
//
// Sync finds out for itself which routes, policy rules and tunnels are refused (attribute). The
// table of nftables is one object, which the kernel takes as a whole or not at all: the objects
// whose rules it refuses are searched by trying parts of the configuration, without a change of the
// kernel, and are left out of the plan (culprits).

const (
	// refusedFor is the time after which an object that was left out is tried again, although it
	// has not changed: what the kernel refuses depends on its devices, for one.
	refusedFor = time.Minute
	// searchTime bounds the search for objects whose rules the kernel refuses. To try 10,000 rules
	// takes half a second.
	searchTime = 20 * time.Second
	// refusedAgain is the time after which a route, a policy rule or a tunnel that was refused is
	// tried again.
	refusedAgain = 5 * time.Second
)

// attribute returns which objects of the REST API have no effect because of the error of a Sync,
// and what of the error concerns none of them.
func attribute(err error, of map[dataplane.Key][]cnf.Origin) (cnf.Report, error) {
	var drift *dataplane.DriftError
	if !errors.As(err, &drift) {
		return nil, err
	}
	var report cnf.Report
	others := []error{dataplane.ErrDrift}
	for _, f := range drift.Failures {
		if len(of[f.Key]) == 0 {
			others = append(others, f)
		}
		for _, o := range of[f.Key] {
			line := cnf.Line{Collection: o.Collection.String(), Name: o.Name, Message: reason(f)}
			if !slices.Contains(report, line) { // a route is in several tables
				report = append(report, line)
			}
		}
	}
	if len(others) == 1 {
		return report, nil
	}
	return report, errors.Join(others...)
}

// reason says why an object has no effect. What charon says may quote a secret.
func reason(f *dataplane.Failure) string {
	var secret dataplane.SecretRefused
	switch {
	case errors.As(f.Err, &secret):
		return fmt.Sprintf("%s: correct it", string(secret))
	case f.Key.Kind == dataplane.KindTunnel || f.Key.Kind == dataplane.KindDaemon:
		return "charon does not accept it: see the log of the CNF for the reason"
	}
	return fmt.Sprintf("the kernel refuses it: %v", oneLine(f.Err))
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// culprits are the objects that are left out of plans, because the kernel refuses the table of
// nftables with their rules.
type culprits struct {
	known map[cnf.Origin]culprit
	// gaveUp is the configuration for which the search has found nothing, or has taken too long. It
	// is not repeated.
	gaveUp *rest.Config
}

type culprit struct {
	object rest.Object
	err    error
	until  time.Time
}

// without returns the configuration without what is to be left out, and a report of this.
func (c *culprits) without(config rest.Config, now time.Time) (rest.Config, cnf.Report) {
	var report cnf.Report
	if len(c.known) == 0 {
		return config, nil
	}
	return config.Filter(func(l *rest.Collection, o rest.Object) bool {
		key := cnf.Origin{Collection: l, Name: o.GetName()}
		found, is := c.known[key]
		if !is {
			return true
		}
		if !now.Before(found.until) || !reflect.DeepEqual(found.object, o) {
			delete(c.known, key)
			return true
		}
		report = append(report, cnf.Line{
			Collection: l.String(),
			Name:       o.GetName(),
			Message:    "the kernel refuses its rules: " + oneLine(found.err),
		})
		return false
	}), report
}

// refusesTable reports whether a Sync has failed to write the table of nftables.
func refusesTable(err error) bool {
	var drift *dataplane.DriftError
	if !errors.As(err, &drift) {
		return false
	}
	for _, f := range drift.Failures {
		if f.Key.Kind == dataplane.KindRuleset {
			return true
		}
	}
	return false
}

// search finds the objects whose rules a target refuses, and reports whether there are any. It
// changes nothing in the target.
func (c *culprits) search(
	ctx context.Context, target dataplane.Target, config rest.Config, world cnf.World, now time.Time,
) bool {
	checker, able := target.(dataplane.Checker)
	if !able || c.gaveUp != nil && reflect.DeepEqual(*c.gaveUp, config) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	found := suspects(config, func(part rest.Config) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		state, _ := cnf.Plan(part, world)
		return checker.Check(ctx, state[dataplane.RulesetKey(dataplane.CNFRules.Family, dataplane.CNFRules.Name)])
	})
	if len(found) == 0 || ctx.Err() != nil {
		c.gaveUp = &config
		return false
	}
	if c.gaveUp = nil; c.known == nil {
		c.known = map[cnf.Origin]culprit{}
	}
	for _, s := range found {
		s.until = now.Add(refusedFor)
		c.known[s.Origin] = s.culprit
	}
	return true
}

// suspect is an object of a configuration.
type suspect struct {
	cnf.Origin
	culprit
}

// tabled are the collections whose objects have rules in the table of nftables. IPsec has some,
// too, with nothing in them that somebody has written.
var tabled = map[*rest.Collection]bool{
	rest.Policies:      true,
	rest.Rules:         true,
	rest.Zones:         true,
	rest.Forwardings:   true,
	rest.FirewallRules: true,
	rest.Redirects:     true,
	rest.NetworkRules:  true,
	rest.NATs:          true,
	rest.Services:      true,
}

// suspects returns the objects without which a configuration is accepted: none if it is not
// accepted without all of them either. It adds parts of the configuration to what is accepted, in
// its order, and halves those that are refused.
func suspects(config rest.Config, check func(rest.Config) error) (found []suspect) {
	var all []suspect
	for _, l := range rest.Collections {
		if tabled[l] {
			for _, o := range config.List(l) {
				all = append(all, suspect{cnf.Origin{Collection: l, Name: o.GetName()}, culprit{object: o}})
			}
		}
	}
	in := map[cnf.Origin]bool{}
	try := func() error {
		return check(config.Filter(func(l *rest.Collection, o rest.Object) bool {
			return !tabled[l] || in[cnf.Origin{Collection: l, Name: o.GetName()}]
		}))
	}
	if try() != nil {
		return nil
	}
	var add func(part []suspect)
	add = func(part []suspect) {
		for _, s := range part {
			in[s.Origin] = true
		}
		err := try()
		if err == nil || len(part) == 0 {
			return
		}
		for _, s := range part {
			delete(in, s.Origin)
		}
		if len(part) == 1 {
			part[0].err = err
			found = append(found, part[0])
			return
		}
		add(part[:len(part)/2])
		add(part[len(part)/2:])
	}
	add(all)
	return found
}
