package mesh

import (
	"maps"
	"net/netip"
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// slimMeta is the metadata of kinds of which the globalnet agent caches many thousands of objects:
// a metav1.ObjectMeta has ten times its size.
type slimMeta struct {
	unused
	namespace unique.Handle[string]
	name      string
	uid       types.UID
	created   int64 // Unix time, in seconds, as the API server has it
	ending    bool
}

func newSlimMeta(m *metav1.ObjectMeta) slimMeta {
	return slimMeta{
		namespace: unique.Make(m.Namespace),
		name:      m.Name,
		uid:       m.UID,
		created:   m.CreationTimestamp.Unix(),
		ending:    m.DeletionTimestamp != nil,
	}
}

func (m *slimMeta) GetNamespace() string              { return m.namespace.Value() }
func (m *slimMeta) GetName() string                   { return m.name }
func (m *slimMeta) GetUID() types.UID                 { return m.uid }
func (m *slimMeta) GetCreationTimestamp() metav1.Time { return metav1.Unix(m.created, 0) }

// objectMeta returns the metadata of the object of the API that is written.
func (m *slimMeta) objectMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:         m.GetNamespace(),
		Name:              m.name,
		UID:               m.uid,
		CreationTimestamp: m.GetCreationTimestamp(),
	}
}

// compareTo orders objects by namespace and name.
func (m *slimMeta) compareTo(key types.NamespacedName) int {
	return compareKeys(m.GetNamespace(), m.name, key)
}

// unused has the methods of Object that slim objects have no use for.
type unused struct{}

func (unused) GetObjectKind() schema.ObjectKind              { return schema.EmptyObjectKind }
func (unused) SetNamespace(string)                           {}
func (unused) SetName(string)                                {}
func (unused) GetGenerateName() string                       { return "" }
func (unused) SetGenerateName(string)                        {}
func (unused) SetUID(types.UID)                              {}
func (unused) GetResourceVersion() string                    { return "" }
func (unused) SetResourceVersion(string)                     {}
func (unused) GetGeneration() int64                          { return 0 }
func (unused) SetGeneration(int64)                           {}
func (unused) GetSelfLink() string                           { return "" }
func (unused) SetSelfLink(string)                            {}
func (unused) SetCreationTimestamp(metav1.Time)              {}
func (unused) GetDeletionTimestamp() *metav1.Time            { return nil }
func (unused) SetDeletionTimestamp(*metav1.Time)             {}
func (unused) GetDeletionGracePeriodSeconds() *int64         { return nil }
func (unused) SetDeletionGracePeriodSeconds(*int64)          {}
func (unused) GetLabels() map[string]string                  { return nil }
func (unused) SetLabels(map[string]string)                   {}
func (unused) GetAnnotations() map[string]string             { return nil }
func (unused) SetAnnotations(map[string]string)              {}
func (unused) GetFinalizers() []string                       { return nil }
func (unused) SetFinalizers([]string)                        {}
func (unused) GetOwnerReferences() []metav1.OwnerReference   { return nil }
func (unused) SetOwnerReferences([]metav1.OwnerReference)    {}
func (unused) GetManagedFields() []metav1.ManagedFieldsEntry { return nil }
func (unused) SetManagedFields([]metav1.ManagedFieldsEntry)  {}

// ipv4 is an IPv4 address; the zero value is none. It has a fifth of the size of a netip.Addr.
type ipv4 struct {
	is    bool
	bytes [4]byte
}

func newIPv4(a netip.Addr) ipv4 {
	if !a.Is4() {
		return ipv4{}
	}
	return ipv4{true, a.As4()}
}

// parseIPv4 parses an address; none if the text is something else.
func parseIPv4(text string) ipv4 {
	a, _ := netip.ParseAddr(text) // the zero Addr: none
	return newIPv4(a)
}

// addr returns the zero Addr for none.
func (a ipv4) addr() netip.Addr {
	if !a.is {
		return netip.Addr{}
	}
	return netip.AddrFrom4(a.bytes)
}

// String returns an empty text for none.
func (a ipv4) String() string {
	if !a.is {
		return ""
	}
	return a.addr().String()
}

// slimLabels are the labels of a pod. Most pods share theirs with others, so their text is kept
// once.
type slimLabels [][2]unique.Handle[string]

var _ labels.Labels = slimLabels{}

func newSlimLabels(of map[string]string) slimLabels {
	if len(of) == 0 {
		return nil
	}
	out := make(slimLabels, 0, len(of))
	for _, k := range slices.Sorted(maps.Keys(of)) { // the same labels are equal
		out = append(out, [2]unique.Handle[string]{unique.Make(k), unique.Make(of[k])})
	}
	return out
}

// Lookup implements labels.Labels.
func (l slimLabels) Lookup(label string) (string, bool) {
	for _, pair := range l {
		if pair[0].Value() == label {
			return pair[1].Value(), true
		}
	}
	return "", false
}

// Has implements labels.Labels.
func (l slimLabels) Has(label string) bool { _, has := l.Lookup(label); return has }

// Get implements labels.Labels.
func (l slimLabels) Get(label string) string { v, _ := l.Lookup(label); return v }
