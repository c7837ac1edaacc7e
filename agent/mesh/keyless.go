package mesh

import "subctl/cable"

// This file is about cables of WireGuard whose two ends have not agreed on keys since the device was made. wireguard-go ends with the agent
// of its gateway, and its keys with it. The next agent takes over the cables of the one before, which had answered, but these
// carry nothing before the first handshake, which takes some seconds if a packet of it is lost; wireguard-go drops what does not fit its queues
// until then. So they count as down: while there is another way to the cluster, packets take that way. The kernel's WireGuard keeps its keys.

// handshakes are the cables whose ends have agreed on keys, by device and peer; nil if that is unknown.
type handshakes map[[2]string]bool

// handshakes returns what the kernel says about the keys of cables.
func (s Snapshot) handshakes() handshakes {
	if s.Cables == nil {
		return nil
	}
	out := handshakes{}
	for _, c := range s.Cables {
		if !c.Handshake.IsZero() {
			out[[2]string{c.Device, c.Peer}] = true
		}
	}
	return out
}

// lack reports whether the two ends of a cable have not agreed on keys yet. Pings that were answered before count for nothing, as
// they may have passed through an earlier device.
func (h handshakes) lack(c cable.Cable) bool {
	d, shakes := c.Driver.(cable.Handshaker)
	if h == nil || !shakes {
		return false
	}
	device, peer := d.StateOf(c.Gateway)
	return !h[[2]string{device, peer}]
}
