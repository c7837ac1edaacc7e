package controller

import (
	"context"
	"fmt"
	"net/http"

	"subctl/sdewan/rest"
	restclient "subctl/sdewan/rest/client"
)

// On OpenWrt, a restart of the firewall flushes the whole of iptables: also the chains of mwan3,
// which only its own restart makes again, and the rules of NATs, which are made when an object is
// written. The CNF returns all these objects as before. So what the restart has flushed is owed. A
// controller that follows one which ended in between owes the restart of the firewall (see owes),
// and so all of this again.

// restartOrder is rest.ServiceNames, with the firewall before mwan3.
var restartOrder = []string{"firewall", "mwan3", "ipsec"}

// flushes reports whether a restart of the firewall drops what other modules have in effect: not on
// a CNF that reports, which is ours.
func (s *session) flushes(ctx context.Context) (bool, error) {
	err := s.meet(ctx)
	return s.silent, err
}

// meet finds out whether the CNF is ours, unless that is known.
func (s *session) meet(ctx context.Context) error {
	if s.silent || s.reports {
		return nil
	}
	effect, err := s.api.Effect(ctx)
	if err != nil {
		return fmt.Errorf("reading its status: %w", err)
	}
	s.silent = !effect.Reports
	s.reports = effect.Reports
	return nil
}

// flushed records what the firewall's restart has dropped.
func (s *session) flushed() {
	if len(s.have[rest.Policies].items)+len(s.have[rest.Rules].items) > 0 {
		s.owed["mwan3"] = true
	}
	for _, item := range s.have[rest.NATs].items {
		s.dropped[item.Name] = true
	}
}

// rewrite writes again the NATs that were dropped, in their order. Each moves to the end, so the
// order stays. What fails is owed on.
func (s *session) rewrite(ctx context.Context) error {
	if len(s.dropped) == 0 {
		return nil
	}
	left := map[string]bool{}
	for _, d := range s.desires {
		if d.collection != rest.NATs {
			continue
		}
		for _, w := range d.objects {
			name := w.object.GetName()
			key := id{d.collection, name}
			if !s.dropped[name] || !s.have[d.collection].has(name) {
				continue
			}
			_, err := s.api.Update(ctx, d.collection, w.object)
			switch {
			case err == nil:
			case restclient.ClassOf(err) == restclient.Rejected ||
				restclient.CodeOf(err) >= http.StatusInternalServerError:
				left[name] = true
				s.refused[key] = fmt.Errorf(
					"the restart of the firewall has dropped it, and writing it again failed: %w", err)
			default:
				return fmt.Errorf("writing %s/%s again: %w", d.collection, name, err)
			}
		}
	}
	s.dropped = left
	return nil
}
