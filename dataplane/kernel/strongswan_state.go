//go:build linux

package kernel

import (
	"time"

	"subctl/dataplane"
)

// sweep removes the keys that a charon before this one left in the kernel. They carry
// the traffic until each tunnel has new ones.
func (c *charon) sweep(conns map[string]loaded) error {
	if ipsecEngine().Name != dataplane.EngineKernel {
		return nil
	}
	_, started := c.pid()
	sas, err := c.sas()
	if err != nil {
		return nil // it has just ended
	}
	for name, conn := range conns {
		if !current(sas[name], conn.child) && time.Since(started) < sweepAfter {
			return nil
		}
	}
	return withXFRM(func(x xfrm) error { return x.flushStates(started) })
}

// cableStates says how the tunnels are.
func (c *charon) cableStates() (out []dataplane.CableState, err error) {
	if _, ok := c.running(); !c.owner || !ok {
		return nil, nil
	}
	conns, err := c.conns()
	if err != nil {
		return nil, err
	}
	sas, err := c.sas()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for name, conn := range conns {
		st := dataplane.CableState{Device: dataplane.IPsecDevice, Peer: name}
		if conn.transport {
			st.Device = dataplane.VXLANIPsecDevice
		}
		for _, sa := range sas[name] {
			for _, child := range sa.children {
				if at := now.Add(-child.age); child.up && at.After(st.Handshake) {
					st.Handshake = at
				}
				st.Up = st.Up || child.up
				st.Rx, st.Tx = st.Rx+child.in, st.Tx+child.out
			}
		}
		if !current(sas[name], conn.child) {
			st.Message = c.problem(name)
		}
		if st.Message == badKey {
			st.Message += ": " + conn.ids[0] + " and " + conn.ids[1] + " were given different ones: both clusters must be joined with the same join file, and know each other's present public key"
		}
		out = append(out, st)
	}
	return out, nil
}
