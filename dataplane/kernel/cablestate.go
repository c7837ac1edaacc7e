//go:build linux

package kernel

import (
	"fmt"
	"maps"
	"time"

	"subctl/dataplane"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

var _ dataplane.Cabler = (*Host)(nil)

// CableStates implements dataplane.Cabler.
func (h *Host) CableStates() ([]dataplane.CableState, error) {
	wireGuard, err := h.wireGuardStates()
	if err != nil {
		return nil, err
	}
	ipsec, err := h.ipsecStates()
	return append(wireGuard, ipsec...), err
}

// Restarts implements dataplane.Cabler.
func (h *Host) Restarts() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.restarts)
}

// restarted counts a restart of a program that was found dead.
func (h *Host) restarted(program string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.restarts[program]++
}

// wireGuardStates returns the states of the peers of the owner's WireGuard devices.
func (h *Host) wireGuardStates() (out []dataplane.CableState, err error) {
	err = h.eachPeer(func(dev string, p wgtypes.Peer) { out = append(out, peerState(dev, p, time.Now())) })
	return out, err
}

// peerState returns the state of a peer. A device that has nothing to send does not agree on
// keys, so an idle device looks the same as a device whose peer does not answer.
func peerState(dev string, p wgtypes.Peer, now time.Time) dataplane.CableState {
	s := dataplane.CableState{
		Device: dev, Peer: p.PublicKey.String(), Handshake: p.LastHandshakeTime, Rx: uint64(p.ReceiveBytes), Tx: uint64(p.TransmitBytes),
	}
	age := now.Sub(p.LastHandshakeTime)
	switch {
	case p.LastHandshakeTime.IsZero():
		s.Message = fmt.Sprintf("no handshake yet: check that UDP packets reach the other side at %s, and that it has this gateway's public key and the same pre-shared key", where(p))
	case age >= rejectAfter:
		s.Message = fmt.Sprintf("no handshake for %v: the other side, last at %s, does not answer, or there is nothing to send", age.Round(time.Second), where(p))
	default:
		s.Up = true
	}
	return s
}

// where returns the present endpoint of a peer, for people.
func where(p wgtypes.Peer) string {
	if p.Endpoint == nil {
		return "an unknown address"
	}
	return p.Endpoint.String()
}
