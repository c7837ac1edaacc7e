//go:build linux

package kernel

import (
	"context"
	"maps"
	"net/netip"

	"subctl/dataplane"
)

var (
	_ dataplane.Cabler         = (*Host)(nil)
	_ dataplane.Remoter        = (*Host)(nil)
	_ dataplane.FlowCounter    = (*Host)(nil)
	_ dataplane.FlowTolerator  = (*Host)(nil)
	_ dataplane.ConflictFinder = (*Host)(nil)
	_ dataplane.Checker        = (*Host)(nil)
)

// CableStates implements dataplane.Cabler.
func (h *Host) CableStates() ([]dataplane.CableState, error) {
	wireGuard, err := h.devices.CableStates()
	if err != nil {
		return nil, err
	}
	ipsec, err := h.ipsec.CableStates()
	return append(wireGuard, ipsec...), err
}

// Restarts implements dataplane.Cabler.
func (h *Host) Restarts() map[string]int {
	restarts := h.devices.Restarts()
	maps.Copy(restarts, h.ipsec.Restarts())
	return restarts
}

// RemoteStates implements dataplane.Remoter.
func (h *Host) RemoteStates() ([]dataplane.RemoteState, error) { return h.ipsec.RemoteStates() }

// Conflicts implements dataplane.ConflictFinder.
func (h *Host) Conflicts() []string { return h.routing.Conflicts() }

// Flows implements dataplane.FlowCounter.
func (h *Host) Flows(q dataplane.FlowQuery) (dataplane.Flows, error) { return h.flows.Flows(q) }

// TolerateNew implements dataplane.FlowTolerator.
func (h *Host) TolerateNew(ctx context.Context, in func(netip.Addr) bool) (<-chan error, error) {
	return h.flows.TolerateNew(ctx, in)
}

// Check implements dataplane.Checker. It knows tables of nftables only.
func (h *Host) Check(_ context.Context, o dataplane.Object) error {
	if w, is := o.(dataplane.Ruleset); is {
		return h.nft.Check(w)
	}
	return nil
}
