package exchange

import (
	"encoding/json"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// slim returns what is kept of an object. An object of the broker has the name then that it has
// in clusters.
func (m *mirror) slim(o client.Object) client.Object {
	o.SetManagedFields(nil)
	if m.most == 0 {
		return o
	}
	m.kind.dropMetadata(o)
	m.kind.fromBroker(o)
	delete(o.GetAnnotations(), excessAnnotation)
	if m.kind.Free != nil { // no other annotation is copied
		slot := o.GetAnnotations()[slotAnnotation]
		signature, signed := o.GetAnnotations()[submarinerv1.SignatureAnnotation]
		if o.SetAnnotations(nil); signed {
			o.SetAnnotations(map[string]string{submarinerv1.SignatureAnnotation: signature})
		}
		setSlot(o, slot)
	}
	if n := m.kind.boundedSize(o); n > m.kind.MaxSize {
		return m.kind.stub(o, n)
	}
	return o
}

// dropMetadata removes metadata from an object of the broker that boundedSize does not count: the
// admission policy of a broker bounds it, and a broker may have none. Owners and finalizers are
// kept, as an update must not change them, unless they, together with the labels of a Free kind,
// have more than MaxSize bytes: then all of these are removed.
func (k *Kind) dropMetadata(o client.Object) {
	o.SetGenerateName("")
	o.SetSelfLink("")
	rest := []any{o.GetFinalizers(), o.GetOwnerReferences()}
	if k.Free != nil {
		rest = append(rest, o.GetLabels())
	}
	if b, err := json.Marshal(rest); err == nil && len(b) <= k.MaxSize {
		return
	}
	o.SetFinalizers(nil)
	o.SetOwnerReferences(nil)
	if k.Free == nil { // boundedSize counts the labels
		return
	}
	id, ok := submarinerv1.OwnerID(o)
	if o.SetLabels(nil); ok {
		o.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: id})
	}
}
