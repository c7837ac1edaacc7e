package mesh

import (
	"time"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// This file is about cables of WireGuard whose two ends have not agreed on keys since the device
// was made. wireguard-go ends with the agent of its gateway, and its keys with it. The next agent
// takes over the cables of the one before, which had answered, but these carry nothing before the
// first handshake, which takes some seconds if a packet of it is lost; wireguard-go drops what does
// not fit its queues until then. So they count as down: while there is another way to the cluster,
// packets take that way. The kernel's WireGuard keeps its keys.

// keysAgain is the time after which to plan again while a cable has answered pings but had no keys
// when the kernel was asked before: it is about to carry packets. It is the time between two passes
// of the agent's loop.
const keysAgain = 200 * time.Millisecond

// agreedKeys are the cables whose ends have agreed on keys, by device and peer; nil if that is
// unknown.
type agreedKeys map[[2]string]bool

// agreedKeysOf returns what the kernel says about the keys of cables.
func agreedKeysOf(s role.Snapshot) agreedKeys {
	if s.Cables == nil {
		return nil
	}
	out := agreedKeys{}
	for _, c := range s.Cables {
		if !c.Handshake.IsZero() {
			out[[2]string{c.Device, c.Peer}] = true
		}
	}
	return out
}

// missing reports whether the two ends of a cable have not agreed on keys yet. Pings that were
// answered before count for nothing, as they may have passed through an earlier device.
func (keys agreedKeys) missing(c cable.Cable) bool {
	d, shakes := c.Driver.(cable.Handshaker)
	if keys == nil || !shakes {
		return false
	}
	device, peer := d.StateOf(c.Gateway)
	return !keys[[2]string{device, peer}]
}

// markDown marks the cables that are not to be used while there is another way to their cluster.
func (d *director) markDown() {
	health := d.Snapshot.Health
	keys := agreedKeysOf(d.Snapshot)
	for i, c := range d.out.Installed {
		missing := d.out.several[c.Cluster] && keys.missing(c)
		d.out.Installed[i].Down = missing || health.Down(c)
		d.out.Keyless = d.out.Keyless || missing
		if missing && health[role.ProbeName(c.Name, c.Device())].Status == submarinerv1.Connected {
			d.out.again = keysAgain
		}
	}
}
