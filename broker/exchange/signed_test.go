package exchange_test

import (
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
)

// now is when the tests plan: a second after everything was signed.
var now = time.UnixMilli(brokertest.Sequence + 1000)

// plan plans for a cluster with an identity. All clusters of which the broker has objects are
// members of those clustersets.
func plan(kinds exchange.Table, s exchange.Snapshot) ([]exchange.Write, []exchange.Refusal) {
	s.Identity = brokertest.Identity(s.ClusterID)
	s.Now = now
	s, added := withMembers(s)
	writes, refused, _ := exchange.Plan(kinds, s)
	return slices.DeleteFunc(writes, func(w exchange.Write) bool {
		return slices.ContainsFunc(added, func(id string) bool { return isCluster(id)(w.Object) })
	}), refused
}

// withMembers adds the Clusters that clustersets lack, and returns their IDs.
func withMembers(s exchange.Snapshot) (_ exchange.Snapshot, added []string) {
	s.Sets = slices.Clone(s.Sets)
	for i, set := range s.Sets {
		for _, o := range set.Objects {
			id, ok := submarinerv1.OwnerID(o)
			if !ok || id == s.ClusterID || submarinerv1.CheckClusterID(id) != nil ||
				slices.ContainsFunc(s.Sets[i].Objects, isCluster(id)) {
				continue
			}
			s.Sets[i].Objects = append(slices.Clone(s.Sets[i].Objects), memberOf(set.Namespace, id))
			added = append(added, id)
		}
	}
	return s, added
}

// memberOf returns the Cluster of a member, always the same object.
func memberOf(ns, id string) client.Object {
	c, ok := members.Load(ns + id)
	if !ok {
		c, _ = members.LoadOrStore(ns+id, cluster(ns, id))
	}
	return c.(client.Object)
}

var members sync.Map

func isCluster(id string) func(client.Object) bool {
	return func(o client.Object) bool {
		_, ok := o.(*submarinerv1.Cluster)
		return ok && o.GetName() == id
	}
}

// signed signs an object as its owner does, if its label names one. An object that is signed as
// it is keeps the signature.
func signed[T client.Object](set string, o T) T {
	id, ok := submarinerv1.OwnerID(o)
	if !ok {
		id = submarinerv1.BrokerID
	}
	if _, err := withToys().Verify(o, brokertest.KeyOf(id).Public()); err == nil {
		return o
	}
	if id != submarinerv1.BrokerID {
		set = ""
	}
	return brokertest.SignOf(withToys(), o, set)
}

// withoutProofs returns an object without its signature and grant.
func withoutProofs(o client.Object) client.Object {
	o = o.DeepCopyObject().(client.Object)
	annotations := o.GetAnnotations()
	delete(annotations, submarinerv1.SignatureAnnotation)
	delete(annotations, submarinerv1.GrantAnnotation)
	return o
}
