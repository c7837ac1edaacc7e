package exchange

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	submarinerv1 "subctl/api/submariner/v1"
)

// Of a broker without the admission policy, a gateway keeps no long text that a member has put in
// the metadata of an object.
func TestHostileMetadata(t *testing.T) {
	bounded := []string{"Name", "Namespace", "UID", "ResourceVersion"} // by every API server
	for _, k := range Kinds() {
		for i := range reflect.TypeFor[metav1.ObjectMeta]().NumField() {
			field := reflect.TypeFor[metav1.ObjectMeta]().Field(i).Name
			if slices.Contains(bounded, field) {
				continue
			}
			t.Run(k.Name+" "+field, func(t *testing.T) {
				o := k.New()
				meta := reflect.ValueOf(o).Elem().FieldByName("ObjectMeta")
				meta.Set(
					reflect.ValueOf(
						metav1.ObjectMeta{
							Name:   "west.0",
							Labels: map[string]string{submarinerv1.ClusterIDLabel: "west"},
						},
					),
				)
				fill(meta.Field(i))
				m := testMirror(t, o, 10)
				require.NoError(t, m.Update(o))
				kept, err := json.Marshal(m.objects)
				require.NoError(t, err)
				require.Less(t, len(kept), k.MaxSize)
			})
		}
	}

	t.Log("an empty object, of which the owner is kept")
	m := testMirror(t, &submarinerv1.Endpoint{}, 10)
	kind := m.kind
	o := kind.Empty("hub", "west", 0)
	o.SetOwnerReferences([]metav1.OwnerReference{{UID: types.UID(strings.Repeat("x", 1<<20))}})
	require.NoError(t, m.Update(o))
	require.Len(t, m.empty["west.0"], maxUID)

	t.Log("what others have put there for a purpose stays")
	o = westEndpoint(t, 1, "")
	owners := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ServiceAccount", Name: "cluster-west", UID: "u"}}
	o.SetOwnerReferences(owners)
	o.SetFinalizers([]string{"example.com/kept"})
	require.NoError(t, m.Update(o))
	kept := m.objects[o.GetName()]
	require.Equal(t, owners, kept.GetOwnerReferences())
	require.Equal(t, []string{"example.com/kept"}, kept.GetFinalizers())
}

// fill gives a value texts of 1 MiB together.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.Repeat("x", 1<<20))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		for i := range 1 << 16 {
			v.SetMapIndex(reflect.ValueOf(fmt.Sprintf("%08d", i)), reflect.ValueOf("12345678"))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i))
			}
		}
	}
}
