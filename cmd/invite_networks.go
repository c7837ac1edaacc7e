package cmd

import (
	"context"
	"slices"

	"subctl/policy/impact"
)

// warnOfNetworks warns if the networks of the invitation conflict with the networks of a cluster,
// in a clusterset of the invitation or in another clusterset of one of its members. The invited
// cluster cannot see the other clustersets. A conflict is no error: a cluster may announce fewer
// networks than its invitation permits.
func (o *inviteCluster) warnOfNetworks(ctx context.Context, g *globals) {
	s, err := (&setsFlags{globals: g, namespace: o.invite.namespace}).read(ctx)
	if err == nil {
		var networks map[string]impact.Networks
		if networks, err = s.networks(ctx); err == nil {
			for _, c := range o.conflicts(s, networks) {
				g.progress().Warn("if cluster %s announces what --networks permits: %s", o.bounds.Cluster, c)
			}
			return
		}
	}
	g.progress().Warn("it is not known whether --networks conflicts with the networks of other clusters: %v", err)
}

// conflicts returns the first conflicts that there would be if the cluster joined all clustersets
// of the invitation with all its networks.
func (o *inviteCluster) conflicts(s *sets, networks map[string]impact.Networks) []impact.Conflict {
	id := o.bounds.Cluster
	now := s.catalog.InSets(id, nil)
	then := s.catalog.InSets(id, slices.Concat(s.of(id), o.bounds.Sets))
	networks[id] = impact.Networks{Announced: o.bounds.Networks}
	all := impact.NewConflicts(now, then, networks)
	return all[:min(len(all), mostNamed)]
}
