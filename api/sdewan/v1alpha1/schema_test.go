package v1alpha1_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"subctl/api/crds"
	"subctl/internal/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// manifests returns the objects of a file of testdata, in a namespace.
func manifests(t testing.TB, file, namespace string) []*unstructured.Unstructured {
	t.Helper()
	b, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	var out []*unstructured.Unstructured
	for doc := range strings.SplitSeq(string(b), "\n---\n") {
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(doc), &u.Object), doc)
		u.SetNamespace(namespace)
		out = append(out, u)
	}
	return out
}

// The manifests of the proposal and of upstream's clients, and objects of its clusters, are
// accepted, without a warning about a field that is not known.
func TestManifestsApply(t *testing.T) {
	s := kubetest.Shared(t)
	s.InstallSDEWAN(t)
	c := s.Client(t)
	for _, file := range []string{"seed.yaml", "upstream.yaml", "exported.yaml"} {
		ns := s.Namespace(t, "apply")
		for _, u := range manifests(t, file, ns) {
			want := u.DeepCopy()
			require.NoError(t, client.WithFieldValidation(c, "Strict").Create(t.Context(), u), "%s", u.GetName())
			require.NotContains(t, u.Object, "status", "users write no status")
			require.Equal(t, withoutNull(want.Object["spec"]), u.Object["spec"], "%s", u.GetName())
		}
	}
}

// withoutNull removes what the API server removes.
func withoutNull(v any) any {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(_ string, e any) bool { return e == nil })
		for k, e := range v {
			v[k] = withoutNull(e)
		}
	case []any:
		for i, e := range v {
			v[i] = withoutNull(e)
		}
	case float64:
		return int64(v)
	}
	return v
}

// with returns a copy of an object in which the field at a path has another value; "-" removes it.
func with(t testing.TB, u *unstructured.Unstructured, path string, value any) *unstructured.Unstructured {
	t.Helper()
	out := u.DeepCopy()
	parts := strings.Split(path, ".")
	at := any(out.Object)
	for _, p := range parts[:len(parts)-1] {
		if list, ok := at.([]any); ok {
			at = list[0]
		}
		next, ok := at.(map[string]any)[p]
		require.True(t, ok, "%s has no %s", u.GetKind(), path)
		at = next
	}
	if list, ok := at.([]any); ok {
		at = list[0]
	}
	if value == "-" {
		delete(at.(map[string]any), parts[len(parts)-1])
	} else {
		at.(map[string]any)[parts[len(parts)-1]] = value
	}
	return out
}

// Fields that accept any text.
var free = []string{
	"spec.name", "spec.extra", "spec.extra_src", "spec.etra_dest", "spec.type", "spec.pre_shared_key",
	"spec.local_public_cert", "spec.local_private_cert", "spec.shared_ca", "spec.local_identifier",
	"spec.remote_identifier", "spec.connections.local_updown", "spec.connections.remote_updown",
}

// Every field of every kind refuses a value of the wrong type and, unless it accepts any text, a
// value that makes no sense; the message names it.
func TestEveryFieldIsChecked(t *testing.T) {
	s := kubetest.Shared(t)
	s.InstallSDEWAN(t)
	c := client.WithFieldValidation(client.NewDryRunClient(s.Client(t)), "Strict")
	definitions, err := crds.SDEWAN()
	require.NoError(t, err)
	samples := map[string]*unstructured.Unstructured{}
	for _, u := range slices.Concat(manifests(t, "seed.yaml", "default"), manifests(t, "upstream.yaml", "default")) {
		samples[u.GetKind()] = u
	}
	for _, crd := range definitions {
		kind := crd.Spec.Names.Kind
		if kind == "CNFStatus" {
			continue
		}
		sample := samples[kind]
		sample.SetAPIVersion(crd.Spec.Group + "/v1alpha1")
		fields(
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"],
			"spec",
			func(path string, schema apiextensionsv1.JSONSchemaProps) {
				t.Run(crd.Spec.Group+"/"+kind+"/"+path, func(t *testing.T) {
					if schema.Type == "boolean" {
						err := c.Create(t.Context(), with(t, sample, path, "true"))
						require.ErrorContains(t, err, message(path), "wrong type")
						return
					}
					err := c.Create(t.Context(), with(t, sample, path, true))
					require.ErrorContains(t, err, message(path), "wrong type")
					require.ErrorContains(t, err, "must be")
					if schema.Type == "array" {
						err = c.Create(t.Context(), with(t, sample, path, []any{true}))
						require.ErrorContains(t, err, message(path)+"[0]", "wrong type")
					}
					if slices.Contains(free, path) {
						require.NoError(t, c.Create(t.Context(), with(t, sample, path, "any text: \"%&")))
						return
					}
					bad := any("?! nonsense")
					if schema.Type == "array" {
						bad = []any{bad}
					}
					err = c.Create(t.Context(), with(t, sample, path, bad))
					require.ErrorContains(t, err, message(path), "nonsense")
				})
			},
		)
	}
}

// message is a path as messages have it: with the index of the first element.
func message(path string) string {
	return strings.NewReplacer("spec.members.", "spec.members[0].", "spec.connections.",
		"spec.connections[0].").Replace(path)
}

// fields calls see for every field below a schema that is no object.
func fields(schema apiextensionsv1.JSONSchemaProps, path string, see func(string, apiextensionsv1.JSONSchemaProps)) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		p := schema.Properties[name]
		at := path + "." + name
		switch {
		case p.Type == "array" && p.Items.Schema.Type == "object":
			fields(*p.Items.Schema, at, see)
		default:
			see(at, p)
		}
	}
}

var update = flag.Bool("update", false, "write the messages to testdata/messages.txt")

// testdata/messages.txt has what users read about mistakes, word by word: a line with a kind, a
// field of the proposal's sample and its value, and below it the message.
func TestMessages(t *testing.T) {
	const file = "testdata/messages.txt"
	s := kubetest.Shared(t)
	s.InstallSDEWAN(t)
	c := client.WithFieldValidation(client.NewDryRunClient(s.Client(t)), "Strict")
	samples := map[string]*unstructured.Unstructured{}
	for _, u := range manifests(t, "seed.yaml", "default") {
		samples[u.GetKind()] = u
	}
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	var got strings.Builder
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if strings.HasPrefix(line, "\t") || len(parts) != 3 {
			continue
		}
		var value any
		require.NoError(t, json.Unmarshal([]byte(parts[2]), &value), line)
		err := c.Create(t.Context(), with(t, samples[parts[0]], parts[1], value))
		require.Error(t, err, line)
		_, message, _ := strings.Cut(err.Error(), " is invalid: ")
		fmt.Fprintf(&got, "%s\t%s\n", line, cmp.Or(message, err.Error()))
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got.String()), 0o600))
		return
	}
	require.Equal(t, string(b), got.String())
}

// What the schema accepts as a number or a string is read as both: one object that cannot be read
// would keep the controller from reading any of its kind.
func TestNumbersOrStringsAreRead(t *testing.T) {
	source, err := os.ReadFile("values.go")
	require.NoError(t, err)
	text := string(source)
	types := regexp.MustCompile(`XIntOrString\n(?://.*\n)*type (\w+) string`).FindAllStringSubmatch(text, -1)
	require.Greater(t, len(types), 10)
	for _, m := range types {
		require.Contains(t, text, "*"+m[1]+") UnmarshalJSON(", m[1])
	}
}
