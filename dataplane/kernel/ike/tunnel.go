//go:build linux

package ike

import (
	"fmt"

	"subctl/dataplane"
	"subctl/dataplane/kernel/link"
)

// tunnels are the tunnels that our strongSwan has loaded, and the policies that keep
// packets that belong in a tunnel from leaving in clear.
type tunnels struct{ *IPsec }

func (tunnels) Kinds() []dataplane.Kind { return []dataplane.Kind{dataplane.KindTunnel} }

func (s tunnels) List() (out []dataplane.Object, err error) {
	if !s.owned {
		return nil, nil
	}
	have, err := s.look()
	if err != nil {
		return nil, err
	}
	out = blocks(have.policies)
	for name, c := range have.conns {
		if s.owner.OwnsDevice(dataplane.IPsecDevice) {
			out = append(out, dataplane.Tunnel{Name: name, Seen: c.Child})
		}
	}
	for _, r := range s.charon.Remotes(have.conns) {
		out = append(out, r)
	}
	return out, nil
}

// putRemote loads a connection of a CNF.
func (s tunnels) putRemote(r dataplane.IKERemote) error {
	var ifID uint32
	userspace := link.IPsecEngine().Name != dataplane.EngineKernel
	if !userspace {
		ifID = dataplane.IPsecIfID
	}
	if userspace {
		if err := s.standInAddrs(r); err != nil {
			return fmt.Errorf("adding the IPsec connection %s: %w", r.Name, err)
		}
	}
	set, _ := s.charon.Running()
	if err := s.charon.LoadRemote(r, ifID, set.Mark, userspace); err != nil {
		return fmt.Errorf("adding the IPsec connection %s: %w", r.Name, err)
	}
	return nil
}

func (s tunnels) Put(_, want dataplane.Object) error {
	if b, ok := want.(dataplane.IPsecBlock); ok {
		return s.xfrm.block(b)
	}
	if r, ok := want.(dataplane.IKERemote); ok {
		return s.putRemote(r)
	}
	t := want.(dataplane.Tunnel)
	if t.PSK == (dataplane.Secret{}) {
		return fmt.Errorf("adding tunnel %s: it has no key", t.Name)
	}
	var ifID uint32
	if t.Mode == dataplane.TunnelMode && link.IPsecEngine().Name == dataplane.EngineKernel {
		ifID = dataplane.IPsecIfID
	}
	if err := s.charon.Load(t, ifID); err != nil {
		return fmt.Errorf("adding tunnel %s: %w", t.Name, err)
	}
	return nil
}

func (s tunnels) Delete(old dataplane.Object) error {
	if b, ok := old.(dataplane.IPsecBlock); ok {
		return s.xfrm.unblock(b)
	}
	if r, ok := old.(dataplane.IKERemote); ok {
		if err := s.charon.UnloadRemote(r.Name, ""); err != nil {
			return fmt.Errorf("removing the IPsec connection %s: %w", r.Name, err)
		}
		return nil
	}
	if err := s.charon.Unload(old.Key().Name); err != nil {
		return fmt.Errorf("removing tunnel %s: %w", old.Key().Name, err)
	}
	return nil
}
