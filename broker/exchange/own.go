package exchange

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// This file signs what this cluster publishes. A signature that still fits is kept, so that an
// object which has not changed is not written for a long time. The Cluster is signed again about
// once an hour: its age tells the others how old the last data of this cluster is, which a broker
// that withholds objects cannot hide. All other objects are signed again about once a day. A broker
// that hides an object from some clusters makes them refuse this version for ever, even if the
// broker is honest later, or was restored from a backup: they cannot tell it from a version that was
// deleted. The next signature ends that.

const (
	// clusterRenewal is the age at which the signature of the Cluster is renewed, and otherRenewal that
	// of all others. Up to 40 % is added, so that 1,000 clusters do not do so at once.
	clusterRenewal = 50 * time.Minute
	otherRenewal   = 20 * time.Hour
)

// renewAt returns the age in milliseconds at which a cluster renews its signatures of a kind.
func (k *Kind) renewAt(id string) int64 {
	age := otherRenewal
	if k.Named != nil && k.Named.HasGrant {
		age = clusterRenewal
	}
	h := fnv.New32a()
	h.Write([]byte(id)) // never fails
	return (age + age*2/5*time.Duration(h.Sum32()%1000)/1000).Milliseconds()
}

// publish makes the objects of this cluster on the broker the same as here. If there are more
// objects than the grant allows, it first refuses objects that are not on the broker yet.
func (p *namedPlan) publish() {
	there := map[string]map[string]client.Object{} // by clusterset and name
	spare := map[string][]client.Object{}          // by clusterset: what is in a slot without need
	onBroker := map[string]bool{}
	for _, set := range p.sets {
		there[set.Name] = map[string]client.Object{}
		for _, o := range set.Objects {
			if !p.isOwn(o) {
				continue
			}
			name, later := o.GetName(), o
			if !p.kind.Named.Names.Owns(p.ClusterID, name) || p.isStray(set, o) {
				spare[set.Name] = append(spare[set.Name], o)
				continue
			}
			if other := there[set.Name][name]; other != nil {
				if !countsOver(o, other) {
					later, other = other, o
				}
				spare[set.Name] = append(spare[set.Name], other)
			}
			there[set.Name][name], onBroker[name] = later, true
		}
	}
	wants := map[string]client.Object{}
	for _, name := range p.allowed(onBroker) {
		labels, annotations := p.kind.namedMetadata(p.ours[name])
		labels[submarinerv1.ClusterIDLabel] = p.ClusterID
		wants[name] = p.kind.namedCopy(p.ours[name], "", labels, annotations)
	}
	for _, set := range p.sets {
		if set.Known {
			p.publishIn(set, wants, there[set.Name], len(spare[set.Name]) > 0)
			for _, o := range spare[set.Name] {
				p.delete(set.Name, o)
			}
		}
	}
}

// publishIn makes what a clusterset has of this cluster the same as what it should have. What
// became invalid here stays as it was. emptying reports whether slots will be empty that are not yet.
func (p *namedPlan) publishIn(set SetSnapshot, wants, there map[string]client.Object, emptying bool) {
	slots := p.slots(set)
	for _, name := range slices.Sorted(maps.Keys(wants)) {
		want := wants[name]
		slot, ok := slots.of(there[name])
		if !ok {
			if !emptying {
				p.refuse(p.ours[name], true, "%s", slots.none())
			}
			continue
		}
		annotations, err := p.signed(want, "", there[name])
		if err != nil {
			p.refuse(p.ours[name], true, "%v", err)
			continue
		}
		if p.kind.Named.HasGrant {
			annotations[submarinerv1.GrantAnnotation] = p.judge.published(set.Name)
		}
		if slot != "" {
			annotations[slotAnnotation] = slot
		}
		p.copy(set.Name, set.Namespace, want, []string{set.Name}, want.GetLabels(), annotations, there[name])
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if have := p.here[name]; p.ours[name] == nil && (have == nil || p.isCopy(have)) {
			p.delete(set.Name, there[name])
		}
	}
}

// allowed returns the names of the objects of this cluster that its grant and its slots allow,
// sorted. The others are refused.
func (p *namedPlan) allowed(onBroker map[string]bool) []string {
	names := slices.Sorted(maps.Keys(p.ours))
	most, why := p.kind.PerCluster, fmt.Sprintf("a clusterset takes %d %s of one cluster", p.kind.PerCluster, p.kind.Resource)
	if p.kind.Named.Most != nil && p.judge.own.Serial > 0 && p.kind.Named.Most(p.judge.own) < most {
		most = p.kind.Named.Most(p.judge.own)
		why = fmt.Sprintf("the grant of this cluster allows %d %s: join again with subctl join, which renews it", most, p.kind.Resource)
	}
	if len(names) <= most {
		return names
	}
	first, over := slices.Clone(names), []string{}
	incumbentsFirst(first, func(name string) bool { return onBroker[name] })
	over = append(over, first[most:]...)
	for _, name := range over {
		p.refuse(p.ours[name], true, "%s", why)
	}
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(over, name) })
}

// incumbentsFirst sorts names: those that are in place already, then the others, each by name.
func incumbentsFirst(names []string, isIn func(name string) bool) {
	slices.Sort(names)
	slices.SortStableFunc(names, func(a, b string) int {
		switch in := isIn(a); {
		case in == isIn(b):
			return 0
		case in:
			return -1
		}
		return 1
	})
}

// signature is a new signature of this plan, for all clustersets that need one.
type signature struct {
	object client.Object // what it is of
	limit  string        // the clusterset that the object is limited to; may be empty
	token  string
}

// signed returns the annotations of an object of this cluster as a clusterset should hold it: with
// its signature. there is the object as the clusterset holds it, or nil. Its signature is kept if it
// fits. Otherwise the object gets a new one, later than all before: the other clusters may have
// seen that it was deleted, and do not accept its earlier versions. limit is the clusterset that
// the object is limited to, or empty.
func (p *kindPlan) signed(want client.Object, limit string, there client.Object) (map[string]string, error) {
	token, now := "", p.Now.UnixMilli()
	if there != nil && p.sameStatement(want, there) {
		r := p.judge.statement(p.kind, there, want.GetName(), p.Key.Public())
		if r.err == nil && r.set == limit && now-r.sequence < p.kind.renewAt(p.ClusterID) {
			token = there.GetAnnotations()[submarinerv1.SignatureAnnotation]
		}
	}
	for _, s := range p.fresh {
		if token == "" && s.object.GetName() == want.GetName() && s.limit == limit && p.sameStatement(want, s.object) {
			token = s.token
		}
	}
	if token == "" {
		s, err := p.kind.statement(want, limit)
		if err != nil {
			return nil, err
		}
		s.Sequence = max(now, p.judge.memory.Last+1)
		p.judge.memory.own()
		p.judge.memory.Last = s.Sequence
		if token, err = p.Key.SignStatement(s); err != nil {
			return nil, err
		}
		p.fresh = append(p.fresh, signature{want, limit, token})
	}
	annotations := maps.Clone(want.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[submarinerv1.SignatureAnnotation] = token
	return annotations, nil
}

// sameStatement reports whether two objects of this cluster state the same.
func (p *kindPlan) sameStatement(a, b client.Object) bool {
	aLabels, aAnnotations := p.kind.statedMetadata(a)
	bLabels, bAnnotations := p.kind.statedMetadata(b)
	return maps.Equal(aLabels, bLabels) && maps.Equal(aAnnotations, bAnnotations) && p.kind.sameFields(a, b)
}
