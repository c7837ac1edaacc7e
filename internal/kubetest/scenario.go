package kubetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
func Decode(t testing.TB, a *txtar.Archive) []client.Object {
	t.Helper()
	d := serializer.NewCodecFactory(Scheme(t), serializer.EnableStrict).UniversalDeserializer()
	var out []client.Object
	for _, f := range a.Files {
		if !strings.HasSuffix(f.Name, ".yaml") {
			continue
		}
		for doc := range strings.SplitSeq(string(f.Data), "\n---\n") {
			o, _, err := d.Decode([]byte(doc), nil, nil)
			require.NoError(t, err, "%s:\n%s", f.Name, doc)
			out = append(out, o.(client.Object))
		}
	}
	return out
}

// Scheme returns the scheme of all kinds that subctl reads or writes.
func Scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s, err := kube.NewScheme()
	require.NoError(t, err)
	return s
}
