// Package dataplanetest has a kernel that exists in memory, for tests of plans and
// agents that have no root.
//
// It refuses what Linux refuses and takes along what Linux takes along, as far as
// a plan can come across it (each case was tried on Linux 6.18). It is not exact:
// whether a plan works is decided by the tests on a real kernel.
package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"subctl/dataplane"
)

// Fake is a dataplane.Target in memory. The zero value is a clean kernel. It may
// be used by several goroutines.
type Fake struct {
	// FailAt makes the Nth Apply fail with ErrInjected, counted from 1; 0 for none.
	FailAt int
	// ObserveErr is what Observe fails with, if it is not nil.
	ObserveErr error

	mu      sync.Mutex
	state   dataplane.State
	applied int
}

var _ dataplane.Target = (*Fake)(nil)

// ErrInjected is what the Apply fails with that was told to.
var ErrInjected = errors.New("injected failure")

// Observe implements dataplane.Target.
func (f *Fake) Observe(ctx context.Context) (dataplane.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := errors.Join(ctx.Err(), f.ObserveErr); err != nil {
		return nil, err
	}
	s := maps.Clone(f.state)
	if s == nil {
		s = dataplane.State{}
	}
	return s, nil
}

// Apply implements dataplane.Target.
func (f *Fake) Apply(ctx context.Context, op dataplane.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.applied++; f.applied == f.FailAt {
		return ErrInjected
	}
	if op.New == nil {
		return f.remove(op.Old.Key())
	}
	return f.put(op.New)
}

// Applied returns how often Apply was called.
func (f *Fake) Applied() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.applied
}

// Remove takes an object away, and what the kernel would take along, as if
// somebody else had done it.
func (f *Fake) Remove(k dataplane.Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.remove(k)
}

// Put adds or replaces an object, as if somebody else had done it.
func (f *Fake) Put(o dataplane.Object) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.put(o)
}

func (f *Fake) put(o dataplane.Object) error {
	if err := f.refuse(o); err != nil {
		return fmt.Errorf("adding %v: %w", o.Key(), err)
	}
	if f.state == nil {
		f.state = dataplane.State{}
	}
	old := f.state[o.Key()]
	switch w := o.(type) {
	case dataplane.VXLAN:
		if h, ok := old.(dataplane.VXLAN); ok {
			f.alter(h, w)
		}
	case dataplane.WireGuardPeer:
		f.takeAllowed(w)
	case dataplane.IKEDaemon:
		if old != nil && !old.Equal(o) {
			f.drop(o.Key()) // and starts again
		}
	case dataplane.Group:
		if h, ok := old.(dataplane.Group); ok && h.Buckets != w.Buckets {
			f.drop(h.Key()) // like is replaced by like only
		}
	}
	f.state[o.Key()] = o
	return nil
}

// alter does what happens to all that stands on a device when that is changed.
func (f *Fake) alter(old, want dataplane.VXLAN) {
	if old.Dev != want.Dev || old.VNI != want.VNI || old.Local != want.Local || old.Port != want.Port {
		f.drop(old.Key())
	} else if old.MAC != want.MAC {
		f.clearARP(old.Name)
	}
}

// takeAllowed takes from the other peers of a device what a new one allows: a network
// leads to one of them only.
func (f *Fake) takeAllowed(p dataplane.WireGuardPeer) {
	for k, o := range f.state {
		other, ok := o.(dataplane.WireGuardPeer)
		if !ok || other.Dev != p.Dev || other.Public == p.Public {
			continue
		}
		other.Allowed = slices.DeleteFunc(slices.Clone(other.Allowed), func(n netip.Prefix) bool { return slices.Contains(p.Allowed, n) })
		f.state[k] = other
	}
}

func (f *Fake) remove(k dataplane.Key) error {
	o, ok := f.state[k]
	if !ok {
		return nil // gone already is fine
	}
	if s, ok := o.(dataplane.Set); ok {
		if user := f.user(s); user != "" {
			return fmt.Errorf("removing set %s: in use by chain %s", s.Name, user)
		}
	}
	f.drop(k)
	if a, ok := o.(dataplane.Addr); ok && !f.hasAddr(a.Dev) {
		f.clearARP(a.Dev) // without its last address, a device does not speak IP
	}
	return nil
}

// drop removes an object, and all that stands on it.
func (f *Fake) drop(k dataplane.Key) {
	delete(f.state, k)
	for key, o := range maps.Clone(f.state) {
		if _, still := f.state[key]; !still || !slices.Contains(o.Needs(), k) {
			continue
		}
		g, ok := o.(dataplane.Group)
		if !ok {
			f.drop(key)
			continue
		}
		// A group loses the member, and goes with its last.
		g.Members = slices.DeleteFunc(slices.Clone(g.Members), func(m dataplane.Member) bool {
			return dataplane.Nexthop{ID: m.ID}.Key() == k
		})
		if f.state[key] = g; len(g.Members) == 0 {
			f.drop(key)
		}
	}
}

func (f *Fake) clearARP(dev string) {
	maps.DeleteFunc(f.state, func(_ dataplane.Key, o dataplane.Object) bool {
		n, ok := o.(dataplane.Neigh)
		return ok && n.Dev == dev
	})
}

func (f *Fake) hasAddr(dev string) bool {
	for _, o := range f.state {
		if a, ok := o.(dataplane.Addr); ok && a.Dev == dev {
			return true
		}
	}
	return false
}

// user returns the name of a chain that matches on a set.
func (f *Fake) user(s dataplane.Set) string {
	for _, o := range f.state {
		if c, ok := o.(dataplane.Chain); ok && slices.Contains(c.Sets, s.Name) {
			return c.Name
		}
	}
	return ""
}
