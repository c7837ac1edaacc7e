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
	own       trust.Grant       // zero if it is not valid
	disclosed map[string]string // what this cluster publishes of it, by clusterset
	// when this cluster has left with its grant, so that it publishes nothing; 0 if it has not
	left    int64
	members map[string]*member
	memory  Memory // of the past, and what this pass adds
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
		j.own, j.disclosed = g, j.memos.published(s.Grant)
		// it has joined again
		if known := j.memory.Clusters[s.ClusterID]; known.Left > 0 && g.Compare(known.grant()) > 0 {
			j.memory.change(s.ClusterID, func(known *Record) { known.atLeast(g) })
		}
	}
	for i, k := range kinds {
		if !k.hasGrant() {
			continue
		}
		for at, set := range s.Sets {
			if set.Known {
				j.readGrants(&kinds[i], set.Name, sets[at][i], s.ClusterID)
			}
		}
		j.readCopies(&kinds[i], local[i], s.ClusterID)
		j.decideMembers(s.ClusterID)
	}
	return j
}

// verdict is the decision of a judge about an object on the broker.
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
			return verdict{
				reason: r.err.Error() + ": objects of the broker are made with subctl and the administrator's key",
			}
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
	switch s, ok := m.in[set]; {
	case !ok:
		return verdict{reason: noCluster(set, maker), early: true}
	case s.reason != "":
		return s.verdict
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

func notInSet(set, id string) string {
	return fmt.Sprintf("the grant of cluster %s does not show that it is in clusterset %s", id, set)
}

// keeps reports whether a copy stays although the broker's version in a clusterset is refused.
func (j *judge) keeps(k *Kind, set, maker string, copy client.Object, name string) bool {
	key := j.Administrator
	if maker != submarinerv1.BrokerID {
		m := j.members[maker]
		switch {
		case m == nil:
			return true // it counted when it was copied
		case m.void != "" || m.in[set].gone:
			return false
		case m.grant.Serial == 0:
			return true
		case k.exceeds(copy, m.grant) != "":
			return false
		}
		key = m.grant.Key
	}
	return j.statement(k, copy, name, key).err == nil
}

// hasLeft returns why this cluster publishes nothing; "" if it publishes its objects. Somebody has
// interrupted subctl uninstall, or the broker shows the statement of an uninstall that was undone:
// the other clusters refuse the grant for good.
func (j *judge) hasLeft() string {
	if j.left == 0 {
		return ""
	}
	return fmt.Sprintf(
		"the broker has a statement, signed with the key of this cluster at %s, that this cluster has left with the grant that it has, "+
			"so the other clusters disconnect it, and it publishes nothing: join again with subctl join, which renews the grant, or finish subctl uninstall",
		trust.Stamp(j.left),
	)
}

// published returns the grant of this cluster as it publishes it in a clusterset.
func (j *judge) published(set string) string {
	if token, ok := j.disclosed[set]; ok {
		return token
	}
	return trust.Bare(j.Grant) // which proves nothing
}

// isVoid reports whether a cluster's grant is void.
func (j *judge) isVoid(id string) bool { return j.members[id] != nil && j.members[id].void != "" }

// most returns how many objects of a cluster are copied.
func (j *judge) most(k *Kind, id string) int {
	if j.members[id] == nil || j.members[id].grant.Serial == 0 {
		return k.PerCluster
	}
	return k.most(j.members[id].grant)
}

// remember records what a copy says of its cluster, before the copy is deleted. least is the least
// acceptable sequence number of a version that comes in its place.
func (j *judge) remember(k *Kind, copy client.Object, place string, least int64) {
	id := ownerOf(copy)
	if g, why := j.grantOf(copy, id); k.hasGrant() && why == "" {
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
	return fmt.Sprintf("its version is of %s, and a later one, of %s, was seen before", trust.Stamp(sequence),
		trust.Stamp(least))
}
