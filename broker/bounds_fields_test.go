package broker_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/kubetest"
)

// huge is longer than the signatures of an object may be.
var huge = strings.Repeat("x", 100<<10)

// A member cannot store a long text in any field of an object, whether the schema knows the field
// or not.
func TestHostileFields(t *testing.T) {
	d := deploy(t, kubetest.Shared(t))
	east := d.Join(t, "east", "uid-east")
	for _, o := range []client.Object{
		cluster(d.NS, "east"),
		brokertest.InSlot(endpoint(d.NS, "east", "192-0-2-1"), "east", 0),
		brokertest.InSlot(shared(d.NS, "east", "p"), "east", 0),
		brokertest.InSlot(brokertest.Page(d.NS, "east", 0), "east", 0),
	} {
		require.NoError(t, east.Create(t.Context(), o))
		patches := hugeTexts(reflect.TypeOf(o))
		require.Contains(t, patches, "metadata.generateName")
		require.Contains(t, patches, "metadata.ownerReferences.uid")
		for _, field := range []string{"unknown", "metadata.unknown", "spec.unknown", "status.unknown"} {
			patches[field] = inside(field, huge)
		}
		for _, annotation := range append(exchange.Proofs(), submarinerv1.NameAnnotation, exchangeSlot, exchangeSize,
			exchangeExcess) {
			patches["annotation "+annotation] = inside("metadata.annotations", map[string]any{annotation: huge})
		}
		for field, patch := range patches {
			t.Run(fmt.Sprintf("%T %s", o, field), func(t *testing.T) {
				text, err := json.Marshal(patch)
				require.NoError(t, err)
				err = east.Patch(t.Context(), o.DeepCopyObject().(client.Object),
					client.RawPatch(types.MergePatchType, text))
				t.Logf("%.200v", err)
				stored := d.stored(t, o)
				if err == nil {
					require.NoError(
						t,
						d.Admin.Update(
							t.Context(),
							with(o.DeepCopyObject().(client.Object),
								func(o client.Object) { o.SetResourceVersion(current(t, east, o)) }),
						),
					)
				}
				require.Less(t, len(stored), len(huge), "it is stored")
			})
		}
	}
}

// Annotations that gateways have on objects of a broker in memory.
const (
	exchangeSlot   = "submariner.io/slot"
	exchangeSize   = "submariner.io/size"
	exchangeExcess = "submariner.io/excess"
)

// stored returns an object as the API server has it, as JSON.
func (d *deployed) stored(t *testing.T, o client.Object) []byte {
	t.Helper()
	gvk, err := d.Admin.GroupVersionKindFor(o)
	require.NoError(t, err)
	now := &unstructured.Unstructured{}
	now.SetGroupVersionKind(gvk)
	require.NoError(t, d.Admin.Get(t.Context(), client.ObjectKeyFromObject(o), now))
	text, err := now.MarshalJSON()
	require.NoError(t, err)
	return text
}

// inside returns the JSON object in which a field, given by its path, has a value.
func inside(path string, value any) map[string]any {
	field, rest, nested := strings.Cut(path, ".")
	if nested {
		value = inside(rest, value)
	}
	return map[string]any{field: value}
}

// completed adds to an object of a list, of a type, the texts without which it is invalid.
func completed(of reflect.Type, object any) any {
	fields, ok := object.(map[string]any)
	for i := 0; ok && i < of.NumField(); i++ {
		name, options, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		if _, set := fields[name]; !set && of.Field(i).Type.Kind() == reflect.String && options == "" {
			fields[name] = "vxlan"
		}
	}
	return object
}

// hugeTexts returns values of a type in their JSON form, each with a huge text in one of the places
// for texts, by the path of that place.
func hugeTexts(of reflect.Type) map[string]any {
	out := map[string]any{}
	within := func(of reflect.Type, path string, wrap func(any) any) {
		for rest, value := range hugeTexts(of) {
			out[strings.Trim(path+"."+rest, ".")] = wrap(value)
		}
	}
	switch {
	case of == reflect.TypeFor[metav1.Time]():
	case of == reflect.TypeFor[metav1.FieldsV1]():
		out["f"] = map[string]any{"f:" + huge: map[string]any{}}
	case of.Kind() == reflect.String:
		out[""] = huge
	case of.Kind() == reflect.Pointer:
		return hugeTexts(of.Elem())
	case of.Kind() == reflect.Slice:
		within(of.Elem(), "", func(v any) any { return []any{completed(of.Elem(), v)} })
	case of.Kind() == reflect.Map:
		within(of.Elem(), "value", func(v any) any { return map[string]any{"k": v} })
		out["key"] = map[string]any{huge: ""}
	case of.Kind() == reflect.Struct:
		for i := range of.NumField() {
			f := of.Field(i)
			switch name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name {
			case "-":
			case "":
				within(f.Type, "", func(v any) any { return v })
			default:
				within(f.Type, name, func(v any) any { return map[string]any{name: v} })
			}
		}
	}
	return out
}
