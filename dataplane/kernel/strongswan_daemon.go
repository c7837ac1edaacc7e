//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"os"

	"subctl/dataplane"
)

// daemons is the one daemon, as a store.
type daemons struct{ *Host }

func (s daemons) list() ([]dataplane.Object, error) {
	if !s.charon.owner {
		return nil, nil
	}
	d, ok := s.charon.running()
	if !ok {
		s.charon.stopKeeper()
		left, err := s.left()
		if err != nil || !left {
			return nil, err
		}
		return []dataplane.Object{dataplane.IKEDaemon{}}, nil // blank: it has died
	}
	if _, err := s.charon.version(); err != nil {
		return []dataplane.Object{dataplane.IKEDaemon{}}, nil // blank: it does not answer
	}
	s.charon.startKeeper()
	return []dataplane.Object{d}, nil
}

// left says whether there is something of a daemon that ended without clearing up: a
// file, a rule, or something in the kernel's IPsec. Its files go with the pod that it was
// in, and what it did to the node stays.
func (s daemons) left() (left bool, err error) {
	if _, err := os.Stat(s.charon.dir); err == nil {
		return true, nil
	}
	if rules, err := charonRules(s.nl); err != nil || len(rules) > 0 {
		return len(rules) > 0, err
	}
	err = withXFRM(func(x xfrm) error {
		ps, sas, err := x.ours()
		left = len(ps)+len(sas) > 0
		return err
	})
	return left, err
}

// put starts the daemon, unless one runs that can be told what to do otherwise.
func (s daemons) put(old, want dataplane.Object) error {
	w := want.(dataplane.IKEDaemon)
	if had, ok := old.(dataplane.IKEDaemon); ok && had.Port == w.Port && s.charon.reload(w) == nil {
		return nil
	}
	if err := s.charon.start(w); err != nil {
		return fmt.Errorf("starting IPsec: %w", err)
	}
	s.charon.startKeeper()
	if old == (dataplane.IKEDaemon{}) { // what list says of one that has died
		s.restarted("charon")
	}
	return nil
}

// del ends the daemon, and removes what one before it may have left in the kernel.
func (s daemons) del(dataplane.Object) error {
	s.charon.stopKeeper()
	if err := errors.Join(s.charon.stop(), withXFRM(xfrm.flush)); err != nil {
		return fmt.Errorf("stopping IPsec: %w", err)
	}
	return nil
}
