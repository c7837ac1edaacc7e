package brokertest

import (
	"net/netip"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/broker/trust"
)

// Sequence is the sequence number of the signatures, and the serial of the grants, in this
// package.
const Sequence = 1000

// KeyOf returns the key with which an owner signs; submarinerv1.BrokerID stands for the
// administrator.
func KeyOf(owner string) trust.Key {
	if owner == submarinerv1.BrokerID {
		return Key(administrator)
	}
	return Key(owner)
}

// Administrator returns the administrator's key.
func Administrator() trust.Key { return Key(administrator) }

// Grant returns a generous grant for a cluster.
func Grant(id string) trust.Grant {
	return trust.Grant{
		Cluster:  id,
		Key:      Key(id).Public(),
		Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("242.0.0.0/8")},
		Gateways: 16,
		Sets:     []string{"default", "lab", "prod", "blue", "green"},
		Serial:   Sequence,
	}
}

// Granted returns a grant, signed.
func Granted(g trust.Grant) string { return must(Administrator().SignGrant(g)) }

// IdentityIn is like Identity, for a cluster that is in the clustersets.
func IdentityIn(id string, sets ...string) exchange.Identity {
	name := id + " " + strings.Join(sets, " ")
	i, ok := identities.Load(name)
	if !ok {
		g := Grant(id)
		g.Sets = sets
		i, _ = identities.LoadOrStore(name,
			exchange.Identity{Key: Key(id), Grant: Granted(g), Administrator: Administrator().Public()})
	}
	return i.(exchange.Identity)
}

// Identity returns what a cluster signs and verifies with.
func Identity(id string) exchange.Identity { return IdentityIn(id, Grant(id).Sets...) }

var identities sync.Map // by cluster ID and clustersets: each signature is another one

// Sign signs an object of the broker as its owner does, and returns it. set is the clusterset that
// it is limited to; an object of the broker's administrator must have one.
func Sign[T client.Object](o T, set string) T { return SignAt(o, set, Sequence) }

// SignAt is like Sign, with a sequence number.
func SignAt[T client.Object](o T, set string, sequence int64) T {
	return signWith(exchange.Kinds(), o, set, sequence)
}

// SignOf is like Sign, for kinds of another table.
func SignOf[T client.Object](kinds exchange.Table, o T, set string) T {
	return signWith(kinds, o, set, Sequence)
}

func signWith[T client.Object](kinds exchange.Table, o T, set string, sequence int64) T {
	id, ok := submarinerv1.OwnerID(o)
	if !ok {
		id = submarinerv1.BrokerID
	}
	if err := kinds.Sign(o, KeyOf(id), set, sequence); err != nil {
		panic(err)
	}
	if _, ok := any(o).(*submarinerv1.Cluster); ok && id != submarinerv1.BrokerID {
		Annotate(o, submarinerv1.GrantAnnotation, Identity(id).Grant)
	}
	return o
}

// PublishIn gives a Cluster the grant that it publishes in a clusterset. Sign gives it the whole
// one.
func PublishIn(o client.Object, set string) {
	if c, ok := o.(*submarinerv1.Cluster); ok && c.Annotations[submarinerv1.GrantAnnotation] == Identity(c.Name).Grant {
		Annotate(c, submarinerv1.GrantAnnotation, must(trust.Published(Identity(c.Name).Grant))[set])
	}
}

// Annotate sets an annotation.
func Annotate(o client.Object, key, value string) {
	annotations := map[string]string{}
	for k, v := range o.GetAnnotations() {
		annotations[k] = v
	}
	annotations[key] = value
	o.SetAnnotations(annotations)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// InSlot puts an object in a slot of a cluster, as the broker holds it, and returns it.
func InSlot[T client.Object](o T, id string, n int) T {
	Annotate(o, submarinerv1.NameAnnotation, o.GetName())
	o.SetName(exchange.SlotName(id, n))
	return o
}
