// Package dataplanetest provides a kernel in memory, for tests of plans and agents that run
// without root.
//
// It refuses what Linux refuses, and when an object is removed, it removes what Linux
// removes with it, as far as plans are concerned (each case was tried on Linux 6.18). It is
// not exact: whether a plan works is decided by the tests on a real kernel.
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

// Fake is a dataplane.Target in memory. The zero value is a clean kernel. It is safe for
// concurrent use.
type Fake struct {
	// FailAt is the number, counted from 1, of the Apply that fails with ErrInjected; 0 for
	// none.
	FailAt int
	// ObserveErr is returned by Observe if it is not nil.
	ObserveErr error
	// Refuse returns the error with which an object is refused in addition to those that
	// Linux refuses; nil refuses none.
	Refuse func(dataplane.Object) error
	// Found is the result of Conflicts.
	Found []string

	mu      sync.Mutex
	state   dataplane.State
	applied int
}

var _ dataplane.Target = (*Fake)(nil)

// ErrInjected is the error of the Apply that FailAt specifies.
var ErrInjected = errors.New("injected failure")

// Observe implements dataplane.Target.
func (f *Fake) Observe(ctx context.Context, kinds ...dataplane.Kind) (dataplane.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := errors.Join(ctx.Err(), f.ObserveErr); err != nil {
		return nil, err
	}
	s := maps.Clone(f.state)
	if s == nil {
		s = dataplane.State{}
	}
	maps.DeleteFunc(s, func(k dataplane.Key, _ dataplane.Object) bool {
		return len(kinds) > 0 && !slices.Contains(kinds, k.Kind)
	})
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

// Remove removes an object, and what the kernel removes with it, as another program could.
func (f *Fake) Remove(k dataplane.Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.remove(k)
}

// Put adds or replaces an object, as another program could.
func (f *Fake) Put(o dataplane.Object) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.put(o)
}

func (f *Fake) put(o dataplane.Object) error {
	err := f.refuse(o)
	if err == nil && f.Refuse != nil {
		err = f.Refuse(o)
	}
	if err != nil {
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
			f.drop(o.Key()) // it is restarted
		}
	case dataplane.Group:
		if h, ok := old.(dataplane.Group); ok && h.Buckets != w.Buckets {
			f.drop(h.Key()) // a group is replaced by a group of the same type only
		}
	}
	f.state[o.Key()] = o
	return nil
}

// alter removes what depends on a device and does not survive a change of the device.
func (f *Fake) alter(old, want dataplane.VXLAN) {
	if old.Dev != want.Dev || old.VNI != want.VNI || old.Local != want.Local || old.Port != want.Port {
		f.drop(old.Key())
	} else if old.MAC != want.MAC {
		f.clearARP(old.Name)
	}
}

// takeAllowed removes the networks of a peer from the other peers of the device: a network
// leads to one peer only.
func (f *Fake) takeAllowed(p dataplane.WireGuardPeer) {
	for k, o := range f.state {
		other, ok := o.(dataplane.WireGuardPeer)
		if !ok || other.Dev != p.Dev || other.Public == p.Public {
			continue
		}
		other.Allowed = slices.DeleteFunc(slices.Clone(other.Allowed),
			func(n netip.Prefix) bool { return slices.Contains(p.Allowed, n) })
		f.state[k] = other
	}
}

func (f *Fake) remove(k dataplane.Key) error {
	o, ok := f.state[k]
	if !ok {
		return nil
	}
	if s, ok := o.(dataplane.Set); ok {
		if user := f.user(s); user != "" {
			return fmt.Errorf("removing set %s: in use by chain %s", s.Name, user)
		}
	}
	f.drop(k)
	if a, ok := o.(dataplane.Addr); ok && !f.hasAddr(a.Dev) {
		f.clearARP(a.Dev) // a device without addresses has no neighbours
	}
	return nil
}

// drop removes an object, and everything that depends on it.
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
		// A group loses the member, and is removed with its last member.
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

// Conflicts implements dataplane.ConflictFinder.
func (f *Fake) Conflicts() []string { return f.Found }
