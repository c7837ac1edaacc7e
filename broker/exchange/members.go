package exchange

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// This file finds out which clusters are members, and of which clustersets: from the Clusters on
// the broker, from their copies, and from what this cluster remembers. A Cluster discloses only the
// clusterset in which it is published, so a copy, which is the same from all clustersets, discloses
// none. renewal.go finds the clustersets of this cluster.

// member is the known state of another cluster.
type member struct {
	grant trust.Grant         // that counts; zero if there is none
	least trust.Grant         // the oldest acceptable one
	void  string              // why its grant is void: it is revoked, or the cluster has left; "" if it is not
	in    map[string]standing // by clusterset that has its Cluster, or from which it was removed
}

// standing is the proof that the Cluster of a member gives in a clusterset.
type standing struct {
	grant   trust.Grant // that the Cluster carries; zero if none is valid
	verdict             // zero if the member is in the clusterset
}

// readGrants finds the newest grant of each cluster in a clusterset.
func (j *judge) readGrants(k *Kind, set string, objects []client.Object, own string) {
	for _, o := range objects {
		id := o.GetName()
		if !k.Named.Names.Owns(id, o.GetName()) || submarinerv1.CheckClusterID(id) != nil {
			continue
		}
		if id == own {
			if l := j.memos.leaving(o, j.Administrator); l.Grant.Cluster == own && j.own.Compare(l.Grant) <= 0 &&
				l.Time > j.left {
				j.left = l.Time
				j.memory.noteLeft(own, l)
			}
			continue
		}
		m := j.member(id)
		if j.readRemoval(o, set, id) {
			m.in[set] = standing{verdict: removedFrom(id, set)}
			continue
		}
		g, why := j.grantOf(o, id)
		m.in[set] = standing{g, verdict{reason: why}}
		if g.Compare(m.grant) > 0 {
			m.grant = g
		}
	}
}

// member returns what is known of another cluster, nothing at first.
func (j *judge) member(id string) *member {
	if j.members[id] == nil {
		j.members[id] = &member{in: map[string]standing{}}
	}
	return j.members[id]
}

// readRemoval remembers the revocation of a cluster, everywhere or in a clusterset, or that it has
// left, if its Cluster in the clusterset states that. It reports whether the Cluster states that
// the cluster was removed from the clusterset, and nothing else.
func (j *judge) readRemoval(o client.Object, set, id string) bool {
	known := j.memory.Clusters[id]
	r := j.memos.revocation(o, j.Administrator)
	switch {
	case r.Cluster != id:
	case r.Set == "" && r.Serial > known.Revoked:
		j.memory.change(id, func(known *Record) { known.Revoked = r.Serial })
	case r.Set != "" && r.Set == set && r.Serial > known.Removed[set] && r.Serial >= known.grant().Authority():
		j.memory.change(id, func(known *Record) { known.remove(set, r.Serial) })
	}
	l := j.memos.leaving(o, j.Administrator)
	if l.Grant.Cluster == id {
		j.memory.noteLeft(id, l)
	}
	return r.Cluster == id && r.Set == set && isRemoved(o)
}

// grantOf returns the grant that a Cluster carries, or why that is not valid.
func (j *judge) grantOf(o client.Object, id string) (g trust.Grant, why string) {
	if o.GetAnnotations()[submarinerv1.GrantAnnotation] == "" {
		return g, fmt.Sprintf("its Cluster carries no grant: cluster %s must join again with subctl join", id)
	}
	g, err := j.memos.grant(o, j.Administrator)
	switch {
	case err != nil:
		return trust.Grant{}, err.Error()
	case g.Cluster != id:
		return trust.Grant{}, fmt.Sprintf("its grant is not valid: it is of cluster %.70q", g.Cluster)
	}
	return g, ""
}

// readCopies refuses the grants on the broker that are older than the grants of the copies.
func (j *judge) readCopies(k *Kind, local []client.Object, own string) {
	for _, o := range local {
		id, ok := submarinerv1.OwnerID(o)
		if !ok || id == own || !k.Named.Names.Owns(id, o.GetName()) {
			continue
		}
		if g, why := j.grantOf(o, id); why == "" {
			j.member(id).refuseOlder(g, g)
		}
	}
}

// decideMembers decides which grant of each cluster counts, and in which clustersets the cluster
// is. It adds what this cluster remembers, and remembers a new key.
func (j *judge) decideMembers(own string) {
	for id, r := range j.memory.Clusters {
		if id != own && (r.Revoked > 0 || r.Left > 0 || len(r.Removed) > 0) {
			j.member(id)
		}
	}
	for id, m := range j.members {
		m.refuseOlder(j.memory.Clusters[id].grant(), trust.Grant{})
		m.void = j.memory.Clusters[id].whyVoid(id, m.grant)
		m.decideSets(id, j.memory.Clusters[id].Removed)
		if r, known := j.memory.Clusters[id]; known && m.grant.Serial > 0 && r.Key != m.grant.Key {
			j.memory.change(id, func(r *Record) { r.atLeast(m.grant) })
		}
	}
}

// refuseOlder refuses the grant on the broker if it is older than one seen before, least. The grant
// fallback counts then; it may be zero.
func (m *member) refuseOlder(least, fallback trust.Grant) {
	if m.grant.Compare(least) < 0 {
		m.grant = fallback
		m.least = least
	}
}

// decideSets decides in which clustersets a member is. Its Cluster in a clusterset must carry the
// newest grant, and disclose that clusterset. A cluster publishes a new grant in one clusterset
// after the other: until then, its copies stay. removed are the clustersets from which the
// administrator has removed it, and when.
func (m *member) decideSets(id string, removed map[string]int64) {
	newest := m.least
	if m.grant.Compare(newest) > 0 {
		newest = m.grant
	}
	for set, s := range m.in {
		switch {
		case s.reason != "":
		case s.grant.Compare(newest) < 0:
			s.verdict = verdict{reason: olderGrant(s.grant, newest), early: true}
		case !s.grant.IsIn(set):
			s.verdict = verdict{reason: notInSet(set, id), gone: true}
		}
		m.in[set] = s
	}
	for set, at := range removed {
		s, ok := m.in[set]
		if !ok {
			s.grant = m.grant
		}
		if s.grant.Authority() <= at {
			m.in[set] = standing{verdict: removedFrom(id, set)}
		}
	}
}

// removedFrom is about a member that was removed from a clusterset. Its objects may still be there.
func removedFrom(id, set string) verdict {
	return verdict{reason: fmt.Sprintf("cluster %s was removed from clusterset %s", id, set), gone: true, early: true}
}

// olderGrant is the reason to refuse a grant that is older than one seen before.
func olderGrant(g, before trust.Grant) string {
	if g.Authority() == before.Authority() {
		return fmt.Sprintf("its grant is of %s, and a later one, of %s, was seen before", trust.Stamp(g.Serial),
			trust.Stamp(before.Serial))
	}
	return fmt.Sprintf(
		"the administrator signed its grant, or its invitation, at %s, and a later one, at %s, was seen before",
		trust.Stamp(g.Authority()), trust.Stamp(before.Authority()))
}
