package controller

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"subctl/dataplane"
	"subctl/sdewan/rest"
	restclient "subctl/sdewan/rest/client"
)

// look reads what the CNF makes of its objects, if it reports that.
func (s *session) look(ctx context.Context) error {
	if !s.silent {
		effect, err := s.api.Effect(ctx)
		if err != nil {
			return fmt.Errorf("reading its status: %w", err)
		}
		s.silent = !effect.Reports
		s.reports = effect.Reports
		s.unapplied = effect.Reports && !effect.Applied
		s.ineffective = map[id]string{}
		s.unlisted = effect.Unlisted
		for _, o := range effect.Ineffective {
			if module, name, ok := strings.Cut(o.Collection, "/"); ok && !o.Minor {
				s.ineffective[id{rest.Lookup(module, name), o.Name}] = o.Reason
			}
		}
	}
	if s.silent {
		s.ineffective = skipped(s.desires)
	}
	return nil
}

// skipped returns the objects that mwan3 on OpenWrt accepts, but skips.
func skipped(desires []desire) map[id]string {
	out := map[id]string{}
	for _, d := range desires {
		for _, w := range d.objects {
			name := w.object.GetName()
			policy := ""
			if r, ok := w.object.(*rest.Rule); ok {
				policy = r.Policy
			}
			switch {
			case d.collection != rest.Policies && d.collection != rest.Rules:
			case len(name) > dataplane.OpenWrtMwan3Name:
				out[id{d.collection, name}] = fmt.Sprintf(
					"mwan3 on OpenWrt skips names of more than %d characters: create it again with a shorter name",
					dataplane.OpenWrtMwan3Name)
			case len(policy) > dataplane.OpenWrtMwan3Name:
				out[id{d.collection, name}] = fmt.Sprintf(
					"mwan3 on OpenWrt skips its policy %s, whose name has more than %d characters", policy,
					dataplane.OpenWrtMwan3Name)
			}
		}
	}
	return out
}

// hint adds to the refusal of an object the limit of OpenWrt that may be the reason: the answer
// need not say so.
func (s *session) hint(ctx context.Context, key id, err error) error {
	if key.collection != rest.Zones || len(key.name) <= dataplane.OpenWrtZoneName || s.meet(ctx) != nil || !s.silent {
		return err
	}
	return fmt.Errorf(
		"%w (OpenWrt limits names of zones to %d characters: if that is the reason, create it again with a shorter name)",
		err, dataplane.OpenWrtZoneName)
}

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
