package broker

import (
	"cmp"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// This file decides what the sync does with cable policies. Unlike Clusters and
// Endpoints they may have any name, and may be made on the broker too, so whose one
// is there follows from its label, which the admission policy of members guards.
//
// The broker decides: a policy counts, for every cluster alike, in the clustersets
// on whose broker it is. To create it there is to take the name, which the API server
// lets one cluster do. Who comes later is told so in the condition Shared.
//
// Each clusterset has its own copy here, since two may have policies of one name. A
// copy never takes the place of a policy that was made here: if that has its name,
// the copy gets another (see v1alpha1.CablePolicies.SharedName), and keeps it, so that
// there is no moment without.
//
// A mistake goes nowhere. A policy of ours that has one is not shared, and one on the
// broker, written by hand or to do harm, is not copied here. What was shared or copied
// before, without one, stays in force: to take it away could mean weaker cables than
// somebody asked for. Home works from what the broker holds, too: that is noted in the
// status (v1alpha1.CablePolicies.InForce).
//
// Labels and annotations are not copied: they are for tools of the cluster they were
// put on. Drivers are copied under their canonical names.

// maxPolicies bounds the policies of one cluster in a clusterset: see maxObjectSize.
const maxPolicies = 256

// policyPlan is the part of a syncPlan that is about cable policies.
type policyPlan struct {
	*syncPlan
	own    []*share
	copies map[place]client.Object // here, of what others made
	names  map[string]bool         // every name in use here
	found  map[place]bool          // what is on the broker and not ours
}

// place is where on the broker a policy is.
type place struct{ set, name string }

func (p place) compare(other place) int {
	return cmp.Or(cmp.Compare(p.set, other.set), cmp.Compare(p.name, other.name))
}

// planPolicies plans all that is about cable policies.
func (p *syncPlan) planPolicies() {
	q := &policyPlan{syncPlan: p, copies: map[place]client.Object{}, names: map[string]bool{}, found: map[place]bool{}}
	q.readLocal()
	for _, set := range p.Sets {
		if set.Known {
			q.copyHere(set)
		}
	}
	q.forget()
	for _, set := range p.Sets {
		q.publish(set)
	}
	for _, s := range q.own {
		q.report(s)
	}
}

func (q *policyPlan) readLocal() {
	shared := 0
	for _, o := range policiesOf(q.Local) {
		q.names[o.Name] = true
		id, labelled := o.Labels[submarinerv1.ClusterIDLabel]
		if labelled && id != q.ClusterID {
			q.readCopy(o)
			continue
		}
		s := &share{policy: o}
		q.own = append(q.own, s)
		if labelled {
			s.refuse(reasonLabelled, "label %s is this cluster's own ID, but only copies carry it: take it off", submarinerv1.ClusterIDLabel)
		} else if flaw := nameFlaw(o.Name); flaw != "" {
			s.refuse(reasonInvalidName, "%s", flaw)
		} else if set, limited := o.Labels[submarinerv1.ClusterSetLabel]; limited && !q.isIn(set) {
			s.refuse(reasonNoSet, "label %s says clusterset %q, which this cluster is not in", submarinerv1.ClusterSetLabel, set)
		} else if shared++; shared > maxPolicies {
			s.refuse(reasonTooMany, "the clusterset takes %d policies of one cluster, the first by name", maxPolicies)
		}
		s.barred = s.reason != ""
	}
}

// readCopy takes note of a copy. One that we would not have named so, and one too
// many, goes.
func (q *policyPlan) readCopy(o *v1alpha1.CablePolicies) {
	from := place{o.Labels[submarinerv1.ClusterSetLabel], o.SharedName()}
	if q.copies[from] != nil || o.Name != from.name && o.Name != from.name+"."+from.set {
		q.writes = append(q.writes, Write{Op: Delete, Object: o})
		return
	}
	q.copies[from] = o
}

func (q *policyPlan) isIn(set string) bool {
	return slices.ContainsFunc(q.Sets, func(s SetSnapshot) bool { return s.Name == set })
}

// copyHere makes the copies of a clusterset's policies what they should be.
func (q *policyPlan) copyHere(set SetSnapshot) {
	count := map[string]int{} // by cluster
	for _, o := range policiesOf(set.Objects) {
		id := makerOf(o)
		if id == q.ClusterID {
			continue
		}
		if id != submarinerv1.BrokerID && submarinerv1.CheckClusterID(id) != nil {
			q.refuse(o, false, "%.70q is not a cluster ID", id)
			continue
		}
		if flaw := nameFlaw(o.Name); flaw != "" {
			q.refuse(o, false, "%s", flaw)
			continue
		}
		if count[id]++; count[id] > maxPolicies && id != submarinerv1.BrokerID {
			q.refuse(o, false, "cluster %s has more than %d of them", id, maxPolicies)
			continue
		}
		from := place{set.Name, o.Name}
		have, name := q.copies[from], o.Name
		q.found[from] = have != nil
		switch {
		case have != nil:
			name = have.GetName()
		case set.Name != submarinerv1.DefaultClusterSet || q.names[name]:
			name += "." + set.Name
		}
		if have == nil && q.names[name] {
			q.refuse(o, false, "an object of this cluster is called %s", name)
			continue
		}
		if n := stubSize(o); n > 0 {
			q.refuse(o, false, "%s: %s", instead(have != nil), tooLarge(n))
			continue
		}
		want := policyCopy(o, q.Namespace, name, map[string]string{submarinerv1.ClusterIDLabel: id, submarinerv1.ClusterSetLabel: set.Name})
		if have == nil || !same(want, have) {
			if _, flaw := contentFlaw(want); flaw != "" {
				q.refuse(o, false, "%s: %s", instead(have != nil), flaw)
				continue
			}
		}
		q.write("", want, have)
	}
}

// forget deletes the copies of what is not there any more, and of clustersets that
// this cluster has left.
func (q *policyPlan) forget() {
	for _, from := range slices.SortedFunc(maps.Keys(q.copies), place.compare) {
		unread := slices.ContainsFunc(q.Sets, func(s SetSnapshot) bool { return s.Name == from.set && !s.Known })
		if !q.found[from] && !unread {
			q.writes = append(q.writes, Write{Op: Delete, Object: q.copies[from]})
		}
	}
}

// publish makes our policies in a clusterset those that we have, as far as their
// names are not taken.
func (q *policyPlan) publish(set SetSnapshot) {
	there, wanted := map[string]*v1alpha1.CablePolicies{}, map[string]bool{}
	for _, o := range policiesOf(set.Objects) {
		there[o.Name] = o
	}
	for _, s := range q.own {
		if only, limited := s.policy.Labels[submarinerv1.ClusterSetLabel]; s.barred || limited && only != set.Name {
			continue
		}
		have := there[s.policy.Name]
		if !set.Known {
			s.unread(set.Name)
			continue
		}
		if have != nil && makerOf(have) != q.ClusterID {
			s.refuse(reasonNameTaken, "%s has shared a policy of this name in clusterset %s before: make this one anew under another name",
				makerName(have), set.Name)
			continue
		}
		want := s.shareable(q.ClusterID, set.Namespace, have)
		if want == nil {
			continue
		}
		wanted[s.policy.Name] = true
		s.share(set.Name, want, have)
		if have == nil {
			q.write(set.Name, want, nil)
		} else {
			q.write(set.Name, want, have)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if set.Known && makerOf(there[name]) == q.ClusterID && !wanted[name] {
			q.writes = append(q.writes, Write{Op: Delete, Set: set.Name, Object: there[name]})
		}
	}
}
