package kubetest

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"subctl/internal/kube"
)

// Scenario reads a file of testdata/scenarios and returns its objects.
func Scenario(t testing.TB, file string) []client.Object {
	t.Helper()
	a, err := txtar.ParseFile(file)
	require.NoError(t, err)
	return Decode(t, a)
}

// Decode returns the objects in an archive. Every file of it whose name ends in .yaml may
// hold several documents. A field without a schema is an error.
//
// After a file "base NAME", the archive is an overlay on the scenario NAME. A document about an
// object of the base is merged into that, as by kubectl patch --type merge: null removes a field,
// and a list replaces a list. {$patch: delete} removes the object.
func Decode(t testing.TB, a *txtar.Archive) []client.Object {
	t.Helper()
	d := serializer.NewCodecFactory(Scheme(t), serializer.EnableStrict).UniversalDeserializer()
	var out []client.Object
	for _, o := range documents(t, a) {
		text, err := json.Marshal(o)
		require.NoError(t, err)
		obj, _, err := d.Decode(text, nil, nil)
		require.NoError(t, err, "%s", text)
		out = append(out, obj.(client.Object))
	}
	return out
}

// documents returns the objects in an archive as the API server would get them.
func documents(t testing.TB, a *txtar.Archive) (out []map[string]any) {
	t.Helper()
	for _, f := range a.Files {
		if base, is := strings.CutPrefix(f.Name, "base "); is {
			root, err := moduleRoot()
			require.NoError(t, err)
			file, err := txtar.ParseFile(filepath.Join(root, "testdata", "scenarios", base+".txtar"))
			require.NoError(t, err)
			out = documents(t, file)
		}
		if !strings.HasSuffix(f.Name, ".yaml") {
			continue
		}
		for doc := range strings.SplitSeq(string(f.Data), "\n---\n") {
			var o map[string]any
			require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &o), "%s:\n%s", f.Name, doc)
			i := slices.IndexFunc(out, func(other map[string]any) bool { return title(other) == title(o) })
			switch {
			case i < 0:
				out = append(out, o)
			case o["$patch"] == "delete":
				out = slices.Delete(out, i, i+1)
			default:
				merge(out[i], o)
			}
		}
	}
	return out
}

// title identifies an object.
func title(o map[string]any) string {
	u := unstructured.Unstructured{Object: o}
	return u.GroupVersionKind().String() + " " + u.GetNamespace() + "/" + u.GetName()
}

// merge applies a JSON merge patch.
func merge(o, patch map[string]any) {
	for k, v := range patch {
		below, isMap := v.(map[string]any)
		is, wasMap := o[k].(map[string]any)
		switch {
		case v == nil:
			delete(o, k)
		case isMap && wasMap:
			merge(is, below)
		default:
			o[k] = v
		}
	}
}

// Scheme returns the scheme of all kinds that subctl reads or writes.
func Scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s, err := kube.NewScheme()
	require.NoError(t, err)
	return s
}
