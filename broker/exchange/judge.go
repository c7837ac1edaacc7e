package exchange

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// This file decides which objects on the broker count. The broker and the members are not
// trusted: an object counts if its cluster has a grant from the administrator whose key is
// pinned here, if it is as that cluster signed it, and if the grant covers what it announces.
//
// What is refused stays as it is here: an object of a broker that was damaged, or is attacked,
// leaves the last valid copy in place. Only the administrator's word removes a copy: a
// revocation, or a grant that does not cover the copy any more; or that its cluster has left,
// which the cluster signs. A broker can withhold objects, which looks the same as if their
// clusters had deleted them.

// judge knows the grants of all clusters.
type judge struct {
	Identity
	*memos
	own     trust.Grant // zero if it is not valid
	left    bool        // this cluster has left with its grant: it publishes nothing
	members map[string]*member
	memory  Memory // of the past, and what this pass adds
}

// member is what is known of another cluster.
type member struct {
	grant trust.Grant       // that counts; zero if there is none
	void  string            // why its grant is void: it is revoked, or the cluster has left; "" if it is not
	in    map[string]string // by clusterset that has its Cluster: why that carries no valid grant; "" if it does
}

// newJudge reads the grants and revocations.
func newJudge(kinds Table, s Snapshot, local [][]client.Object, sets [][][]client.Object) *judge {
	j := &judge{Identity: s.Identity, memos: s.memos, members: map[string]*member{}, memory: s.Memory}
	j.memory.changed = false
	if j.memos == nil {
		j.memos = &memos{}
	}
	if j.memory.Administrator != s.Administrator {
		j.memory = Memory{Administrator: s.Administrator}
	}
	if g, err := s.check(s.ClusterID); err == nil {
		j.own = g
	}
	for i, k := range kinds {
		if k.Named == nil || !k.Named.HasGrant {
			continue
		}
		for at, set := range s.Sets {
			if set.Known {
				j.readGrants(&kinds[i], set.Name, sets[at][i], s.ClusterID)
			}
		}
		j.readCopies(&kinds[i], local[i], s.ClusterID)
	}
	return j
}

// readGrants finds the newest grant of each cluster in a clusterset.
func (j *judge) readGrants(k *Kind, set string, objects []client.Object, own string) {
	for _, o := range objects {
		id := o.GetName()
		if !k.Named.Names.Owns(id, o.GetName()) || submarinerv1.CheckClusterID(id) != nil {
			continue
		}
		if id == own {
			l := j.memos.leaving(o, j.Administrator)
			j.left = j.left || l.Grant.Cluster == own && j.own.Compare(l.Grant) <= 0
			continue
		}
		m := j.members[id]
		if m == nil {
			m = &member{in: map[string]string{}}
			j.members[id] = m
		}
		j.readRemoval(o, id)
		g, why := j.grantOf(o, id)
		if m.in[set] = why; why == "" && g.Compare(m.grant) > 0 {
			m.grant = g
		}
	}
}

// readRemoval remembers the revocation of a cluster, or that it has left, if its Cluster states that.
func (j *judge) readRemoval(o client.Object, id string) {
	known := j.memory.Clusters[id]
	if r := j.memos.revocation(o, j.Administrator); r.Cluster == id && r.Serial > known.Revoked {
		j.memory.change(id, func(known *Record) { known.Revoked = r.Serial })
	}
	l := j.memos.leaving(o, j.Administrator)
	if later := l.Grant.Compare(known.grant()); l.Grant.Cluster == id && (later > 0 || later == 0 && known.Left == 0) {
		j.memory.change(id, func(known *Record) { known.leave(l) })
	}
}

// grantOf returns the grant that a Cluster carries, or why that is not valid.
func (j *judge) grantOf(o client.Object, id string) (g trust.Grant, why string) {
	if o.GetAnnotations()[submarinerv1.GrantAnnotation] == "" {
		return g, fmt.Sprintf("its Cluster carries no grant: cluster %s must join again with subctl join", id)
	}
	g, err := j.memos.grant(o, j.Administrator)
	switch {
	case err != nil:
		return g, err.Error()
	case g.Cluster != id:
		return g, fmt.Sprintf("its grant is not valid: it is of cluster %.70q", g.Cluster)
	}
	return g, ""
}

// readCopies compares the grants with the grants of the copies, and with the remembered ones.
func (j *judge) readCopies(k *Kind, local []client.Object, own string) {
	for _, o := range local {
		id, ok := submarinerv1.OwnerID(o)
		if !ok || id == own || !k.Named.Names.Owns(id, o.GetName()) {
			continue
		}
		if g, why := j.grantOf(o, id); why == "" {
			if j.members[id] == nil {
				j.members[id] = &member{in: map[string]string{}}
			}
			j.settle(id, g, g)
		}
	}
	for id, r := range j.memory.Clusters {
		if (r.Revoked > 0 || r.Left > 0) && j.members[id] == nil {
			j.members[id] = &member{in: map[string]string{}}
		}
	}
	for id, m := range j.members {
		j.settle(id, j.memory.Clusters[id].grant(), trust.Grant{})
		m.void = j.memory.Clusters[id].whyVoid(id, m.grant)
		if r, known := j.memory.Clusters[id]; known && m.grant.Serial > 0 && r.Key != m.grant.Key {
			j.memory.change(id, func(r *Record) { r.atLeast(m.grant) })
		}
	}
}

// settle refuses the grants of a cluster on the broker if they are older than one seen before,
// least. The earlier grant counts instead; it may be zero.
func (j *judge) settle(id string, least, before trust.Grant) {
	m := j.members[id]
	if m.grant.Compare(least) >= 0 {
		return
	}
	if m.grant.Serial > 0 {
		for set, why := range m.in {
			if why == "" {
				m.in[set] = olderGrant(m.grant, least)
			}
		}
	}
	m.grant = before
}

// olderGrant is the reason to refuse a grant that is older than one seen before.
func olderGrant(g, before trust.Grant) string {
	if g.Authority() == before.Authority() {
		return fmt.Sprintf("its grant is of %s, and a later one, of %s, was seen before", trust.Stamp(g.Serial), trust.Stamp(before.Serial))
	}
	return fmt.Sprintf("the administrator signed its grant, or its invitation, at %s, and a later one, at %s, was seen before", trust.Stamp(g.Authority()), trust.Stamp(before.Authority()))
}

// verdict is what a judge decides about an object on the broker.
type verdict struct {
	sequence int64
	reason   string // why it is refused; "" if it counts
	early    bool   // its Cluster may be on its way
	gone     bool   // the administrator refuses it: it keeps no copy here
}

// of judges an object on the broker that its cluster, or the broker's administrator, is said to
// have made.
func (j *judge) of(k *Kind, set, maker string, o client.Object) verdict {
	if maker == submarinerv1.BrokerID {
		r := j.statement(k, o, o.GetName(), j.Administrator)
		switch {
		case r.err != nil:
			return verdict{reason: r.err.Error() + ": objects of the broker are made with subctl and the administrator's key"}
		case r.set != set:
			return verdict{reason: fmt.Sprintf("it is signed for clusterset %.70q", r.set)}
		}
		return verdict{sequence: r.sequence}
	}
	m := j.members[maker]
	if m == nil {
		return verdict{reason: noCluster(set, maker), early: true}
	}
	if m.void != "" {
		// The cluster may still be deleting its objects.
		return verdict{reason: m.void, gone: true, early: j.memory.Clusters[maker].Left > 0}
	}
	switch why, ok := m.in[set]; {
	case !ok:
		return verdict{reason: noCluster(set, maker), early: true}
	case why != "":
		return verdict{reason: why}
	case !m.grant.IsIn(set):
		return verdict{reason: fmt.Sprintf("the grant of cluster %s does not include clusterset %s", maker, set), gone: true}
	}
	r := j.statement(k, o, o.GetName(), m.grant.Key)
	switch {
	case r.err != nil:
		return verdict{reason: r.err.Error()}
	case r.set != "" && r.set != set:
		return verdict{reason: fmt.Sprintf("it is signed for clusterset %.70q", r.set)}
	}
	return verdict{sequence: r.sequence, reason: k.exceeds(o, m.grant)}
}

func noCluster(set, id string) string {
	return fmt.Sprintf("clusterset %s has no Cluster object of cluster %s, which carries its grant", set, id)
}

// keeps reports whether a copy stays although the broker's version in a clusterset is refused.
func (j *judge) keeps(k *Kind, set, maker string, copy client.Object, name string) bool {
	key := j.Administrator
	if maker != submarinerv1.BrokerID {
		m := j.members[maker]
		switch {
		case m == nil:
			return true // it counted when it was copied
		case m.void != "":
			return false
		case m.grant.Serial == 0:
			return true
		case !m.grant.IsIn(set) || k.exceeds(copy, m.grant) != "":
			return false
		}
		key = m.grant.Key
	}
	return j.statement(k, copy, name, key).err == nil
}

// removed reports whether a cluster's grant is void.
func (j *judge) removed(id string) bool { return j.members[id] != nil && j.members[id].void != "" }

// most returns how many objects of a cluster are copied.
func (j *judge) most(k *Kind, id string) int {
	if k.Named.Most == nil || j.members[id] == nil || j.members[id].grant.Serial == 0 {
		return k.PerCluster
	}
	return min(k.PerCluster, k.Named.Most(j.members[id].grant))
}

// remember records what a copy says of its cluster, before the copy is deleted. least is the least
// acceptable sequence number of a version that comes in its place.
func (j *judge) remember(k *Kind, copy client.Object, place string, least int64) {
	id := ownerOf(copy)
	if g, why := j.grantOf(copy, id); k.Named != nil && k.Named.HasGrant && why == "" {
		j.memory.change(id, func(r *Record) { r.atLeast(g) })
	}
	if m := j.members[id]; m != nil && m.grant.Serial > 0 {
		if !j.signedBy(copy, m.grant.Key) {
			return // nobody accepts what that key has signed
		}
		j.memory.change(id, func(r *Record) { r.atLeast(m.grant) })
	}
	if least > 1 { // it was signed
		j.memory.forget(id, place, least)
	}
}

// least returns the least acceptable sequence number of a version of an object that is signed with
// its maker's key of now. have is the copy of the object, or nil. A copy that is signed with an
// earlier key sets no bound: who had that key may have chosen any number.
func (j *judge) least(maker, place string, have client.Object) int64 {
	key := j.Administrator
	if maker != submarinerv1.BrokerID {
		key = j.members[maker].grant.Key
	}
	if have != nil && j.signedBy(have, key) {
		return sequenceOf(have)
	}
	return j.memory.least(maker, place)
}

// older is the reason to refuse an object of a sequence number that is too low.
func older(sequence, least int64) string {
	if sequence == least-1 {
		return fmt.Sprintf("its version of %s was deleted before", trust.Stamp(sequence))
	}
	return fmt.Sprintf("its version is of %s, and a later one, of %s, was seen before", trust.Stamp(sequence), trust.Stamp(least))
}
