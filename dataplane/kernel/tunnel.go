//go:build linux

package kernel

import (
	"fmt"

	"subctl/dataplane"
)

// tunnels are the tunnels that our strongSwan has loaded, and the policies that keep
// packets that belong in a tunnel from leaving in clear.
type tunnels struct{ *Host }

func (s tunnels) list() (out []dataplane.Object, err error) {
	if !s.ownsIPsec {
		return nil, nil
	}
	have, err := s.ipsec()
	if err != nil {
		return nil, err
	}
	out = blocks(have.policies)
	for name, c := range have.conns {
		out = append(out, dataplane.Tunnel{Name: name, Seen: c.Child})
	}
	return out, nil
}

func (s tunnels) put(_, want dataplane.Object) error {
	if b, ok := want.(dataplane.IPsecBlock); ok {
		return s.xfrm.block(b)
	}
	t := want.(dataplane.Tunnel)
	if t.PSK == (dataplane.Secret{}) {
		return fmt.Errorf("adding tunnel %s: it has no key", t.Name)
	}
	var ifID uint32
	if t.Mode == dataplane.TunnelMode && ipsecEngine().Name == dataplane.EngineKernel {
		ifID = dataplane.IPsecIfID
	}
	if err := s.charon.Load(t, ifID); err != nil {
		return fmt.Errorf("adding tunnel %s: %w", t.Name, err)
	}
	return nil
}

func (s tunnels) del(old dataplane.Object) error {
	if b, ok := old.(dataplane.IPsecBlock); ok {
		return s.xfrm.unblock(b)
	}
	if err := s.charon.Unload(old.Key().Name); err != nil {
		return fmt.Errorf("removing tunnel %s: %w", old.Key().Name, err)
	}
	return nil
}
