//go:build linux

package link

import (
	"fmt"
	"maps"
	"time"

	"subctl/dataplane"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// Restarts returns how often a process of wireguard-go took the place of one that had died, by the
// name of the program.
func (s *Devices) Restarts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.restarts)
}

// restarted counts a restart of a program that was found dead.
func (s *Devices) restarted(program string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restarts[program]++
}

// CableStates returns the states of the peers of the owner's WireGuard devices.
func (s *Devices) CableStates() (out []dataplane.CableState, err error) {
	s.mu.Lock()
	before := s.exchanged
	s.mu.Unlock()
	now := s.Clock()
	after := map[string]exchanged{}
	err = s.eachPeer(func(dev string, p wgtypes.Peer) {
		s := peerState(dev, p)
		x := before[s.Peer].next(s.Rx, s.Tx, now)
		after[s.Peer] = x
		if s.Up && x.isSilent(now) {
			s.Up = false
			s.Message = fmt.Sprintf(
				"the other side, last at %s, does not answer: nothing was received after what was sent until %s",
				where(p), x.silent.UTC().Format(time.RFC3339))
		}
		out = append(out, s)
	})
	s.mu.Lock()
	s.exchanged = after
	s.mu.Unlock()
	return out, err
}

// peerState returns the state of a peer, as far as one look tells: it is up if it has ever
// agreed on keys. The age of the keys tells nothing: a device that has nothing to send does
// not agree on new ones.
func peerState(dev string, p wgtypes.Peer) dataplane.CableState {
	s := dataplane.CableState{
		Device:    dev,
		Peer:      p.PublicKey.String(),
		Handshake: p.LastHandshakeTime,
		Rx:        uint64(p.ReceiveBytes),
		Tx:        uint64(p.TransmitBytes),
	}
	if s.Up = !p.LastHandshakeTime.IsZero(); !s.Up {
		s.Message = fmt.Sprintf(
			"no handshake yet: check that UDP packets reach the other side at %s, and that it has this gateway's public key and the same pre-shared key",
			where(p))
	}
	return s
}

// exchanged is the state derived from the counters of a peer so far.
//
// A working peer answers all data within KEEPALIVE_TIMEOUT, 10 s, if only by a keepalive
// packet, which is itself not answered (WireGuard paper, section 6.5). If it has lost its
// keys, the sender starts a handshake 5 s later, which the peer answers. A peer that has
// received more than keepalive packets and answered nothing for longer does not work.
type exchanged struct {
	rx, tx uint64    // when rx was last seen to grow, or at first
	silent time.Time // when more than keepalives was seen to be unanswered; zero if it is not
}

const (
	// unanswered is the number of bytes that a device may send without an answer: more than a
	// few keepalive packets (32 bytes each), less than the handshakes that it repeats for 90 s
	// (148 bytes each, every 5 s).
	unanswered = 1024
	// silentFor is the time that an answer may take: see exchanged.
	silentFor = 30 * time.Second
)

// next returns what the counters told, after another look. The zero exchanged is the first.
func (x exchanged) next(rx, tx uint64, now time.Time) exchanged {
	switch {
	case rx != x.rx || tx < x.tx || x == exchanged{}:
		return exchanged{rx: rx, tx: tx}
	case tx-x.tx > unanswered && x.silent.IsZero():
		x.silent = now
	}
	return x
}

// isSilent reports whether the peer has not answered for too long.
func (x exchanged) isSilent(now time.Time) bool {
	return !x.silent.IsZero() && now.Sub(x.silent) >= silentFor
}

// where returns the present endpoint of a peer, for people.
func where(p wgtypes.Peer) string {
	if p.Endpoint == nil {
		return "an unknown address"
	}
	return p.Endpoint.String()
}
