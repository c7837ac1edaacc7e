//go:build linux

package ike

import (
	"errors"
	"fmt"

	"subctl/dataplane"
	"subctl/dataplane/kernel/link"
	"subctl/dataplane/kernel/strongswan"
)

// daemons are the one IKE daemon, as a store.
type daemons struct{ *IPsec }

func (daemons) Kinds() []dataplane.Kind { return []dataplane.Kind{dataplane.KindDaemon} }

// List returns a daemon that does not answer, that has lost its device, or whose settings are
// unknown, with its settings blank. A daemon that has ended is not returned: see remains.
func (s daemons) List() ([]dataplane.Object, error) {
	if !s.owned {
		return nil, nil
	}
	have, err := s.look()
	if err != nil || have.pid == 0 {
		return nil, err
	}
	if have.conns == nil {
		return []dataplane.Object{dataplane.IKEDaemon{}}, nil
	}
	set, _ := s.charon.Running()
	return []dataplane.Object{dataplane.IKEDaemon{
		Port:       set.NATPort,
		Debug:      set.Debug,
		Unattended: !s.charon.Negotiating(),
		IKEPort:    set.Port,
		Device:     set.Device,
		Mark:       set.Mark,
	}}, nil
}

// Put starts the daemon, unless one runs that can be adopted, or can change its settings
// while it runs.
func (s daemons) Put(old, want dataplane.Object) error {
	w := want.(dataplane.IKEDaemon)
	if had, ok := old.(dataplane.IKEDaemon); ok && sameExceptDebug(had, w) && s.adopt(had, w) == nil {
		return nil
	}
	died, err := s.died(old)
	if err == nil {
		err = s.start(w)
	}
	if err != nil {
		return fmt.Errorf("starting IPsec: %w", err)
	}
	s.charon.Negotiate()
	if died {
		s.restarted("charon")
	}
	return nil
}

// sameExceptDebug reports whether one daemon can become the other while it runs.
func sameExceptDebug(had, want dataplane.IKEDaemon) bool {
	had.Debug = want.Debug
	return had.Attended() == want.Attended()
}

// adopt makes the daemon that runs the wanted one.
func (s daemons) adopt(had, want dataplane.IKEDaemon) error {
	if had.Debug != want.Debug {
		if err := s.charon.Reload(settings(want)); err != nil {
			return err
		}
	}
	if !s.charon.Negotiating() {
		s.charon.Negotiate()
	}
	return nil
}

// died reports whether the daemon that is to be started takes the place of a daemon that
// has ended by itself, or does not answer.
func (s daemons) died(old dataplane.Object) (bool, error) {
	if old != nil {
		return old == dataplane.IKEDaemon{}, nil
	}
	left, err := remains(s).all()
	return len(left) > 0, err
}

// start starts the daemon, in place of the daemon that runs.
func (s daemons) start(d dataplane.IKEDaemon) error {
	if err := s.home.Check(); err != nil {
		return err
	}
	if err := s.stop(); err != nil {
		return err
	}
	return s.devices.ExplainPort(s.charon.Start(settings(d)), d.Port, "ipsecPort")
}

// settings returns what strongSwan is started with. Between gateways IKE takes any free port
// instead of 500: it begins on the port where it would end up behind a translator anyway.
func settings(d dataplane.IKEDaemon) strongswan.Settings {
	return strongswan.Settings{
		Port:      d.IKEPort,
		NATPort:   d.Port,
		Debug:     d.Debug,
		Device:    d.Device,
		Mark:      d.Mark,
		Userspace: link.IPsecEngine().Name == strongswan.Engine,
		Table:     dataplane.CharonTable,
		Priority:  dataplane.CharonPriority,
	}
}

func (s daemons) Delete(dataplane.Object) error {
	if err := s.stop(); err != nil {
		return fmt.Errorf("stopping IPsec: %w", err)
	}
	return nil
}

// stop ends the daemon, if it runs. Its files, and the rule and devices of its ESP in
// userspace, are removed in any case.
func (s *IPsec) stop() error { return errors.Join(s.charon.Stop(), s.sweepStandIns()) }
