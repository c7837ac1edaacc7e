package controller

import (
	"context"
	"fmt"
	"strings"

	"subctl/sdewan/rest"
)

// maxMwan3Name is the maximum length of the names of policies and rules on OpenWrt, in characters: mwan3 2.10 skips longer ones, and only logs it
// (mwan3.sh), while the API accepts them. It refuses names of zones that are too long.
const maxMwan3Name = 15

// look reads what the CNF makes of its objects, if it reports that.
func (s *session) look(ctx context.Context) error {
	if !s.silent {
		effect, err := s.api.Effect(ctx)
		if err != nil {
			return fmt.Errorf("reading its status: %w", err)
		}
		s.silent, s.reports = !effect.Reports, effect.Reports
		s.unapplied, s.ineffective, s.unlisted = effect.Reports && !effect.Applied, map[id]string{}, effect.Unlisted
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
			name, policy := w.object.GetName(), ""
			if r, ok := w.object.(*rest.Rule); ok {
				policy = r.Policy
			}
			switch {
			case d.collection != rest.Policies && d.collection != rest.Rules:
			case len(name) > maxMwan3Name:
				out[id{d.collection, name}] = fmt.Sprintf("mwan3 on OpenWrt skips names of more than %d characters: create it again with a shorter name", maxMwan3Name)
			case len(policy) > maxMwan3Name:
				out[id{d.collection, name}] = fmt.Sprintf("mwan3 on OpenWrt skips its policy %s, whose name has more than %d characters", policy, maxMwan3Name)
			}
		}
	}
	return out
}
