package exchange

import (
	"hash/fnv"
	"maps"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// This file signs what this cluster publishes. A signature that still fits is kept, so that an
// object which has not changed is not written for a long time. The Cluster is signed again about
// once an hour: its age tells the others how old the last data of this cluster is, which a broker
// that withholds objects cannot hide. All other objects are signed again about once a day. A broker
// that hides an object from some clusters makes them refuse this version for ever, even if the
// broker is honest later, or was restored from a backup: they cannot tell it from a version that
// was deleted. The next signature ends that.

const (
	// clusterRenewal is the age at which the signature of the Cluster is renewed, and otherRenewal
	// that of all others. Up to 40 % is added, so that 1,000 clusters do not do so at once.
	clusterRenewal = 50 * time.Minute
	otherRenewal   = 20 * time.Hour
)

// renewAt returns the age in milliseconds at which a cluster renews its signatures of a kind.
func (k *Kind) renewAt(id string) int64 {
	age := otherRenewal
	if k.hasGrant() {
		age = clusterRenewal
	}
	h := fnv.New32a()
	h.Write([]byte(id)) // never fails
	return (age + age*2/5*time.Duration(h.Sum32()%1000)/1000).Milliseconds()
}

// signature is a new signature of this plan, for all clustersets that need one.
type signature struct {
	object client.Object // what it is of
	limit  string        // the clusterset that the object is limited to; may be empty
	token  string
}

// signed returns the annotations of an object of this cluster as a clusterset should hold it: with
// its signature. there is the object as the clusterset, or another one, holds it, or nil. Its
// signature is kept if it fits. Otherwise the object gets a new one, later than all before: the
// other clusters may have seen that it was deleted, and do not accept its earlier versions. limit
// is the clusterset that the object is limited to, or empty.
func (p *kindPlan) signed(want client.Object, limit string, there client.Object) (map[string]string, error) {
	token := ""
	now := p.Now.UnixMilli()
	if there != nil {
		if sequence, ok := p.states(want, limit, there); ok && now-sequence < p.kind.renewAt(p.ClusterID) {
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

// states reports whether an object on the broker has a signature of this cluster that fits an
// object, however old, and returns its sequence number.
func (p *kindPlan) states(want client.Object, limit string, there client.Object) (sequence int64, ok bool) {
	if !p.sameStatement(want, there) {
		return 0, false
	}
	r := p.judge.statement(p.kind, there, want.GetName(), p.Key.Public())
	return r.sequence, r.err == nil && r.set == limit
}

// sameStatement reports whether two objects of this cluster state the same.
func (p *kindPlan) sameStatement(a, b client.Object) bool {
	aLabels, aAnnotations := p.kind.statedMetadata(a)
	bLabels, bAnnotations := p.kind.statedMetadata(b)
	return maps.Equal(aLabels, bLabels) && maps.Equal(aAnnotations, bAnnotations) && p.kind.sameFields(a, b)
}
