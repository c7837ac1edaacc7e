package exchange

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// This file keeps one member from using up what the others need. A quota counts the objects of all
// members together, and the API server charges it for requests that it refuses later, or that the
// client gives up. So members have no right to create objects: whoever joins a cluster creates its
// objects, empty, one in each slot (see slots.go). The cluster changes them, and empties an object
// instead of deleting it. A quota does not count changes.
//
// An empty object has the label of its cluster, and no signature: every reader ignores it, as it
// ignores an object that is not there. Its fields are the least that the schema accepts.

// maxEmpty is the maximum size, in bytes, of the spec of an empty object.
const maxEmpty = 512

// Empty returns the empty object in slot n of cluster id; n is 0 for kinds without slots.
func (k *Kind) Empty(namespace, id string, n int) client.Object {
	o := k.New()
	if k.Blank != nil {
		o = k.Blank(id)
	}
	o.SetNamespace(namespace)
	o.SetName(id)
	if k.Slotted() {
		o.SetName(SlotName(id, n))
	}
	o.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: id})
	return o
}

// IsEmpty reports whether an object, as it is on a broker, is reserved for a cluster, and empty.
func (k *Kind) IsEmpty(o client.Object) bool {
	id, ok := submarinerv1.OwnerID(o)
	if !ok {
		return false
	}
	for _, a := range append(Proofs(), submarinerv1.NameAnnotation) {
		if _, ok := o.GetAnnotations()[a]; ok {
			return false
		}
	}
	if slot, ok := cutSlot(o.GetName()); k.Slotted() && (!ok || slot != id) || !k.Slotted() && o.GetName() != id {
		return false
	}
	return k.sameFields(o, k.Empty("", id, 0)) // else somebody has written it by hand
}

// IsEmpty is like Kind.IsEmpty, for an object of any kind of the table.
func (t Table) IsEmpty(o client.Object) bool {
	i := t.index(o)
	return i >= 0 && t[i].IsEmpty(o)
}

// EmptyExpression returns a CEL expression that reports whether object is an empty one of any of
// the kinds. It uses variables.resource and variables.annotations.
func (t Table) EmptyExpression() string {
	return "object != null && size(variables.annotations) == 0 && " + t.blankExpression(
		func(*Kind) bool { return true })
}

// LeavingExpression is like EmptyExpression, for a Cluster that states that its cluster has left,
// and nothing else.
func (t Table) LeavingExpression() string {
	return fmt.Sprintf("object != null && size(variables.annotations) == 1 && %s in variables.annotations && ",
		Quote(submarinerv1.LeavingAnnotation)) +
		t.blankExpression((*Kind).hasGrant)
}

// blankExpression returns a CEL expression that reports whether object is of one of some kinds, and
// has no more fields than an empty one.
func (t Table) blankExpression(of func(*Kind) bool) string {
	blank := ""
	for _, k := range t {
		if of(&k) {
			blank += fmt.Sprintf("variables.resource == %s ? %s : ", Quote(k.Resource), cmp.Or(k.BlankRule, "true"))
		}
	}
	return fmt.Sprintf("has(object.spec) && size(bytes('%%s'.format([object.spec]))) <= %d && (%sfalse)", maxEmpty,
		blank)
}

// shares is the number of parts of what is free of a quota, one of which a cluster gets when it
// joins, so that 1,000 clusters fit: of 2,000 cable policies, the first 32 clusters get eight each
// (see share), the next 200 four or three, and the last 550 one each. Of 4,000 pages of exported
// Services, the first 32 clusters get 16 each.
const shares = 550

// share returns how many objects a cluster gets that joins while the clusterset holds stored of
// them. A member exports policies and Services without joining again, as many as it has slots for:
// while few clusters have joined, each gets twice as many. Gateways are few, and join knows how
// many there are.
func (k *Kind) share(stored int) int {
	if k.Counted() && stored < k.Quota/8 {
		return min(k.PerCluster, 2*k.Reserved)
	}
	return min(k.Reserved, (k.Quota-stored+shares-1)/shares)
}

// ReservedFor returns how many objects of the kind a cluster gets when it joins, within its grant,
// and how many of them it needs at once: it has that many to publish. stored is how many objects
// the clusterset holds.
func (k *Kind) ReservedFor(toPublish, stored int, g trust.Grant) (n, needed int) {
	most := k.most(g)
	if k.Free != nil && k.Free.BrokerOnly {
		most = 0
	}
	needed = min(most, max(1, toPublish))
	return min(most, max(needed, k.share(stored))), needed
}

// Counted reports whether join counts the objects of the kind that the cluster has made, to reserve
// as many on the broker. There is one Cluster, and an Endpoint for each gateway node.
func (k *Kind) Counted() bool { return k.Named == nil || k.Slotted() && !k.Named.PerGateway }

// reservation returns the name by which SetSnapshot.Reserved knows an empty object.
func (k *Kind) reservation(name string) string { return k.Resource + "/" + name }

// fill makes an empty object of the broker, in the slot of obj, the same as obj, unless it is not
// empty any more.
func (k *Kind) fill(ctx context.Context, c client.Client, obj client.Object) error {
	there := k.New()
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), there); err != nil {
		return err
	}
	if !k.IsEmpty(there) {
		return apierrors.NewConflict(schema.GroupResource{Group: k.GroupVersion.Group, Resource: k.Resource},
			obj.GetName(), fmt.Errorf("it is in use"))
	}
	keepIdentity(obj, there)
	return c.Update(ctx, obj, client.FieldOwner(fieldOwner))
}

// Vacate empties the slot of an object that was read from a broker, and has the name that it has in
// clusters. It is a conflict if the object has changed since.
func (t Table) Vacate(ctx context.Context, c client.Client, obj client.Object) error {
	k, err := t.Of(obj)
	if err != nil {
		return err
	}
	obj = obj.DeepCopyObject().(client.Object)
	k.toBroker(obj)
	_, err = k.empty(ctx, c, obj)
	return err
}

// empty empties an object on the broker, and returns the empty one. obj has its name there. An
// object without a slot, which an administrator has made, is deleted.
func (k *Kind) empty(ctx context.Context, c client.Client, obj client.Object) (client.Object, error) {
	id, ok := cutSlot(obj.GetName())
	if k.Slotted() && !ok {
		uid := obj.GetUID()
		version := obj.GetResourceVersion()
		return nil, c.Delete(ctx, obj, client.Preconditions{UID: &uid, ResourceVersion: &version})
	}
	if !k.Slotted() {
		id = obj.GetName()
	}
	blank := k.Empty(obj.GetNamespace(), id, 0)
	blank.SetName(obj.GetName())
	keepIdentity(blank, obj)
	return blank, c.Update(ctx, blank, client.FieldOwner(fieldOwner))
}

// keepIdentity gives an object what makes it another version of one that exists.
func keepIdentity(o, there client.Object) {
	o.SetUID(there.GetUID())
	o.SetResourceVersion(there.GetResourceVersion())
	o.SetOwnerReferences(there.GetOwnerReferences())
	o.SetFinalizers(there.GetFinalizers())
}
