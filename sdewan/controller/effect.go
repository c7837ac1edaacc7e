package controller

import (
	"context"
	"fmt"
	"strings"

	"subctl/dataplane"
	"subctl/sdewan/rest"
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
