package exchange

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// This file has what Plan needs of objects, and makes no decision.

// split returns the objects of each kind, sorted by name and slot, and the objects whose kind is
// not in the table.
func (t Table) split(objects []client.Object) (byKind [][]client.Object, unknown []client.Object) {
	byKind = make([][]client.Object, len(t))
	for _, o := range objects {
		i := t.index(o)
		if i < 0 {
			unknown = append(unknown, o)
			continue
		}
		byKind[i] = append(byKind[i], o)
	}
	for _, objects := range byKind {
		slices.SortFunc(objects, func(a, b client.Object) int {
			return cmp.Or(cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(slotOf(a), slotOf(b)))
		})
	}
	return byKind, unknown
}

// New returns an empty object of the kind.
func (k *Kind) New() client.Object { return k.Object.DeepCopyObject().(client.Object) }

// newList returns an empty list of objects of the kind.
func (k *Kind) newList() client.ObjectList { return k.List.DeepCopyObject().(client.ObjectList) }

// setFields copies the fields of an object to another. The fields of both are then the
// same memory.
func (k *Kind) setFields(to, from client.Object) {
	source := k.Fields(from)
	for i, field := range k.Fields(to) {
		reflect.ValueOf(field).Elem().Set(reflect.ValueOf(source[i]).Elem())
	}
}

// setsOf returns the clustersets in an object: see Named.Sets.
func (k *Kind) setsOf(o client.Object) []string {
	if k.Named == nil || k.Named.Sets == nil {
		return nil
	}
	return *k.Named.Sets(o)
}

// setSets sets the clustersets in an object.
func (k *Kind) setSets(o client.Object, sets []string) {
	if k.Named != nil && k.Named.Sets != nil {
		*k.Named.Sets(o) = sets
	}
}

// sameFields reports whether two objects have the same fields.
func (k *Kind) sameFields(a, b client.Object) bool {
	return equality.Semantic.DeepEqual(k.Fields(a), k.Fields(b))
}

// same reports whether two objects are the same in everything that is copied.
func (k *Kind) same(a, b client.Object) bool {
	return maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetAnnotations(), b.GetAnnotations()) &&
		k.sameFields(a, b)
}

// size returns the bytes of JSON that is copied of an object, without its slot, and without the
// proofs as long as they are within their own bound. A stub has the size of the object that it
// stands for.
func (k *Kind) size(o client.Object) int {
	if n := k.stubSize(o); n > 0 {
		return n
	}
	annotations := maps.Clone(o.GetAnnotations())
	for _, a := range proofs {
		delete(annotations, a)
	}
	delete(annotations, slotAnnotation)
	b, err := json.Marshal(append([]any{o.GetLabels(), annotations}, k.Fields(o)...))
	if err != nil {
		return k.MaxSize + 1 // strings and numbers cannot fail to encode
	}
	return len(b) + tooLong(o)
}

// proofs are the annotations that prove who made an object. They are copied apart from the
// others.
var proofs = []string{
	submarinerv1.SignatureAnnotation, submarinerv1.GrantAnnotation, submarinerv1.RevocationAnnotation,
	submarinerv1.LeavingAnnotation,
}

// Proofs returns the annotations that prove who made an object.
func Proofs() []string { return slices.Clone(proofs) }

// MaxProof is the most bytes of the proofs of an object, together. A signature contains the
// object, of up to maxSize bytes, in base64.
const MaxProof = 24 << 10

// tooLong returns the bytes of the proofs if they are more than MaxProof, which is more than the
// MaxSize of any kind; otherwise 0.
func tooLong(o client.Object) int {
	bytes := 0
	for _, a := range proofs {
		bytes += len(o.GetAnnotations()[a])
	}
	if bytes <= MaxProof {
		return 0
	}
	return bytes
}

func (k *Kind) tooLarge(size int) string {
	return fmt.Sprintf("it has %d bytes, more than %d", size, k.MaxSize)
}

// sizeAnnotation is on stubs: the size of the object, in bytes.
const sizeAnnotation = "submariner.io/size"

// stub returns what it takes to report that an object is too large, and to replace or
// delete it.
func (k *Kind) stub(o client.Object, size int) client.Object {
	out := k.New()
	if k.Named != nil && k.Named.Stub != nil {
		k.Named.Stub(out, o)
	}
	out.SetName(o.GetName())
	out.SetNamespace(o.GetNamespace())
	out.SetUID(o.GetUID())
	out.SetResourceVersion(o.GetResourceVersion())
	out.SetOwnerReferences(o.GetOwnerReferences())
	if id, ok := submarinerv1.OwnerID(o); ok {
		out.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: id})
	}
	out.SetAnnotations(map[string]string{sizeAnnotation: strconv.Itoa(size)})
	setSlot(out, o.GetAnnotations()[slotAnnotation])
	return out
}

// stubSize returns the size of the object that a stub stands for, or 0 if o is no stub.
// An object whose owner has put the annotation on it is refused.
func (k *Kind) stubSize(o client.Object) int {
	if n, err := strconv.Atoi(o.GetAnnotations()[sizeAnnotation]); err == nil && n > k.MaxSize {
		return n
	}
	return 0
}

// namedMetadata returns the labels and annotations that are copied of an object of the Named
// way: the labels that users may set, the label of the cluster ID, and the annotations that the
// kind lists.
func (k *Kind) namedMetadata(o client.Object) (labels, annotations map[string]string) {
	labels = submarinerv1.SharedLabels(o.GetLabels())
	annotations = map[string]string{}
	if id, ok := submarinerv1.OwnerID(o); ok {
		labels[submarinerv1.ClusterIDLabel] = id
	}
	for _, name := range k.Named.Annotations {
		if text, ok := o.GetAnnotations()[name]; ok {
			annotations[name] = text
		}
	}
	return labels, annotations
}

// MadeBy reports whether o, found in cluster id, was made there, and is no copy of an object of
// another cluster or of the broker. Copies carry the label of the cluster ID; somebody may have put
// it on other objects too. Such an object was made in the cluster if it has one of the names of the
// cluster's objects, or a status, which copies do not have.
func (k *Kind) MadeBy(id string, o client.Object) bool {
	owner, labelled := submarinerv1.OwnerID(o)
	switch {
	case !labelled || owner == id:
		return true
	case k.Named != nil:
		return k.Named.Names.Owns(id, o.GetName())
	case k.Status == nil:
		return false
	}
	status := k.Status(o)
	return len(status.Sets)+len(status.Conditions) > 0
}

// flaw returns the reason why o cannot be an object of cluster id, or "". The kind is
// Named.
func (k *Kind) flaw(o client.Object, id string) string {
	if submarinerv1.CheckClusterID(id) != nil {
		return fmt.Sprintf("%.70q is not a cluster ID", id)
	}
	if own := k.claimed(o); k.Named.ClusterID != nil && own != id {
		return fmt.Sprintf("spec.%s is %.70q, not %q", k.Named.IDField, own, id)
	}
	if !k.Named.Names.Owns(id, o.GetName()) {
		return fmt.Sprintf("its name is not one of the names that cluster %q may give its %s", id, k.Resource)
	}
	if k.Named.Check != nil {
		if reason := k.Named.Check(o); reason != "" {
			return reason
		}
	}
	if n := k.size(o); n > k.MaxSize {
		return k.tooLarge(n)
	}
	return ""
}

// claimed returns the owner that o's fields state, or "". The kind is Named.
func (k *Kind) claimed(o client.Object) string {
	if k.Named.ClusterID == nil {
		return ""
	}
	return k.Named.ClusterID(o)
}

// namedCopy returns the copy of an object of the Named way: its name and fields, with
// other labels and annotations.
func (k *Kind) namedCopy(o client.Object, namespace string, labels, annotations map[string]string) client.Object {
	out := k.New()
	k.setFields(out, o.DeepCopyObject().(client.Object))
	out.SetName(o.GetName())
	out.SetNamespace(namespace)
	out.SetLabels(labels)
	out.SetAnnotations(annotations)
	return out
}

// freeCopy returns what is copied of an object of the Free way: its fields, in canonical
// form.
func (k *Kind) freeCopy(o client.Object, namespace, name string, labels map[string]string) client.Object {
	out := k.New()
	k.setFields(out, o.DeepCopyObject().(client.Object))
	out.SetName(name)
	out.SetNamespace(namespace)
	out.SetLabels(labels)
	if k.Free.Canonical != nil {
		k.Free.Canonical(out)
	}
	return out
}

// boundedSize returns the size that MaxSize bounds. For the Free way that is the size
// without labels, which differ from copy to copy.
func (k *Kind) boundedSize(o client.Object) int {
	if k.Free != nil {
		return k.size(k.freeCopy(o, "", "", nil)) + tooLong(o)
	}
	return k.size(o)
}

// ownerOf returns the ID of the cluster that made the object of a copy, or BrokerID.
func ownerOf(copy client.Object) string {
	id, _ := submarinerv1.OwnerID(copy)
	return id
}

// sequenceOf returns the sequence number of a copy; 0 if it has none. It was verified when it was
// copied.
func sequenceOf(copy client.Object) int64 {
	s, err := trust.ReadStatement(copy.GetAnnotations()[submarinerv1.SignatureAnnotation])
	if err != nil {
		return 0
	}
	return s.Sequence
}

// sameSignature reports whether two objects have the same signature.
func sameSignature(a, b client.Object) bool {
	return a.GetAnnotations()[submarinerv1.SignatureAnnotation] == b.GetAnnotations()[submarinerv1.SignatureAnnotation]
}
