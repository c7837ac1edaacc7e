package agent

import (
	"errors"
	"reflect"
	"slices"

	"subctl/dataplane"
	"subctl/sdewan/cnf"
	"subctl/sdewan/rest"
)

// choice is what the uplink of a connection depends on.
type choice struct {
	online   []string // uplinks
	bad      []string // uplinks that exceed a limit of a policy, after its name
	policies []rest.Policy
	rules    []rest.Rule
}

// choiceOf returns the choice: none, which is never better than another one, if mwan3 is stopped.
func choiceOf(c rest.Config, w cnf.World) choice {
	if slices.Contains(c.Stopped, "mwan3") {
		return choice{}
	}
	out := choice{policies: c.Policies, rules: c.Rules}
	for _, f := range w.Interfaces {
		if f.Online {
			out.online = append(out.online, f.Name)
		}
		for _, p := range exceeded(c.Policies, f) {
			out.bad = append(out.bad, p+" "+f.Name)
		}
	}
	return out
}

// anew returns the bits that unanswered connections get in their marks because there may be a
// better uplink for them than before: none if there is none. When an uplink has come online, it may
// be the only one through which somebody answers. Other policies or rules, or an uplink that
// exceeds a limit now, are no reason to leave an uplink that they allow.
func (c choice) anew(before choice) uint32 {
	switch {
	case slices.ContainsFunc(c.online, func(name string) bool { return !slices.Contains(before.online, name) }):
		return dataplane.UplinkAnew | dataplane.UplinkSpread
	case len(c.online) > 0 && (!slices.Equal(c.bad, before.bad) ||
		!reflect.DeepEqual(c.policies, before.policies) || !reflect.DeepEqual(c.rules, before.rules)):
		return dataplane.UplinkAnew
	}
	return 0
}

// steers reports whether the kernel holds the part of a plan on which the uplinks of connections
// depend. err is the error of Sync.
func steers(plan dataplane.State, err error) bool {
	var drift *dataplane.DriftError
	if !errors.As(err, &drift) {
		return err == nil
	}
	for k := range drift.Affected {
		switch o := plan[k].(type) {
		case dataplane.Ruleset, dataplane.Arrival:
			return false
		case dataplane.MarkRule:
			if o.Mask == dataplane.UplinkMask {
				return false
			}
		case dataplane.PolicyRule:
			if o.Mask == dataplane.UplinkMask {
				return false
			}
		case dataplane.Multipath:
			if o.Table > dataplane.CNFTable && o.Dst.Bits() == 0 {
				return false
			}
		}
	}
	return true
}

// chooseAnew makes connections without a reply choose again if there may be a better uplink for
// them. The kernel holds what leads to it: see steers.
func (a *Agent) chooseAnew(now choice) error {
	if bits := now.anew(a.choice); bits != 0 {
		if err := a.Kernel.MarkConnections(dataplane.UplinkUnanswered, bits); err != nil {
			return err
		}
	}
	a.choice = now
	return nil
}
