package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
)

// This file says how a gateway's cables are, for Gateway.status.

// connections says how the cable to each remote gateway is.
func (v *view) connections(p Plan, o Outcome) []submarinerv1.Connection {
	out := []submarinerv1.Connection{}
	for i, c := range p.cables {
		if c.Idle {
			continue
		}
		conn := submarinerv1.Connection{
			Endpoint: bounded(v.specs[c.Name]), UsingIP: c.Address.String(), UsingNAT: c.NATed,
			Driver: c.Driver.Name(), Device: c.Device(), Policy: c.Policy, Implementation: v.local().Engine(c.Driver.Properties().Engine).Name, MTU: c.MTU(v.local()),
			PathMTU: c.Peer.MTU, Attempts: v.snap.Paths[c.Name].Attempts,
			Settings: settingsReported(c.Config), PolicySettings: settingsReported(c.Shared), Before: p.Using[c.Name].Before.reported(),
		}
		conn.Status, conn.StatusMessage, conn.LatencyRTT = v.status(p, o, c, p.links[i])
		if why := v.kept[c.Name]; why != "" && conn.StatusMessage == "" {
			conn.StatusMessage = clip(why)
		}
		if next := p.next(c); next != nil && conn.Status == submarinerv1.Connected {
			conn.Status = submarinerv1.Connecting
			conn.StatusMessage = fmt.Sprintf("changing to %s, which does not answer yet: traffic stays with %s until it does", next.Driver.Name(), c.Driver.Name())
		}
		out = append(out, conn)
	}
	for _, f := range v.refused[:min(len(v.refused), maxRefused)] {
		var wanted noCable
		errors.As(f.err, &wanted)
		out = append(out, submarinerv1.Connection{
			Driver: wanted.driver, Policy: wanted.policy,
			Status: submarinerv1.ConnectionError, StatusMessage: clip("refused: " + f.err.Error()), Endpoint: bounded(f.spec),
			Attempts: v.snap.Paths[f.spec.CableName].Attempts,
		})
	}
	return out
}

// status says how one cable is. What a ping says counts most: it goes the way of the
// traffic. Where none is answered, the cable's own state tells why.
func (v *view) status(p Plan, o Outcome, c cable.Cable, l cable.Link) (submarinerv1.ConnectionStatus, string, *submarinerv1.LatencyRTT) {
	state, stateful := v.stateOf(l)
	_, probed := p.Probes.Targets[c.Name]
	h, answered := o.Health[c.Name]
	switch {
	case o.Err != nil:
		return submarinerv1.ConnectionError, clip(o.Err.Error()), nil
	case probed && answered && h.Status == submarinerv1.Connected:
		if state.Up && state.Message != "" { // keys of before carry the traffic
			return h.Status, clip("still under the settings of before: " + state.Message), h.RTT.strings()
		}
		return h.Status, h.Message, h.RTT.strings()
	case stateful && !state.Up:
		status := submarinerv1.Connecting
		if answered && h.Status == submarinerv1.ConnectionError {
			status = submarinerv1.ConnectionError
		}
		return status, clip(cmp.Or(state.Message, "no keys were agreed on with the other side yet")), h.RTT.strings()
	case !probed:
		return submarinerv1.Connected, "not probed: the health check is off, or one of the gateways has no address in its pod network", nil
	case !answered:
		return submarinerv1.Connecting, "waiting for the first answer to a ping", nil
	}
	return h.Status, h.Message, h.RTT.strings()
}

// stateOf is what the kernel says of a cable; false if its driver keeps no state.
func (v *view) stateOf(l cable.Link) (dataplane.CableState, bool) {
	for _, s := range v.snap.Cables {
		if s.Device == l.StateDevice && s.Peer == l.State {
			return s, true
		}
	}
	return dataplane.CableState{}, l.State != ""
}

// maxRefused is how many refused endpoints a report lists; the condition Refused
// counts all.
const maxRefused = 50

// How much of an endpoint's backend_config a report repeats.
const (
	maxConfig  = 100 // bytes of a key or a value
	maxConfigs = 20
)

// bounded cuts what another cluster says about its endpoint down to what a report
// may repeat: a Gateway must stay small enough to be written, whoever wants it not
// to be.
func bounded(s submarinerv1.EndpointSpec) submarinerv1.EndpointSpec {
	config := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(s.BackendConfig)) {
		if v := s.BackendConfig[k]; len(k) <= maxConfig && len(v) <= maxConfig && len(config) < maxConfigs {
			config[k] = v
		}
	}
	s.BackendConfig = config
	if len(s.Subnets) > cable.MaxSubnets {
		s.Subnets = s.Subnets[:cable.MaxSubnets]
	}
	if s.Subnets == nil {
		s.Subnets = []string{}
	}
	return s
}
