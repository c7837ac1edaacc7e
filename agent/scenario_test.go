package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	"gotest.tools/v3/golden"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"subctl/internal/kube"
)

// A scenario is one file: the objects of a cluster in, what each node then holds
// out, as the commands a person would type, or just whom it connects to. What a node's
// kernel says is in its RouteAgent, as for "subctl show plan".
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("../testdata/scenarios/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			require.NoError(t, err)
			c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(decode(t, a)...).Build()
			for i, f := range a.Files {
				what, node, _ := strings.Cut(f.Name, " ")
				var got string
				switch what {
				case "node":
					got = planText(t, c, node)
				case "peers":
					got = peersText(t, c, node)
				default:
					continue
				}
				if golden.FlagUpdate() {
					a.Files[i].Data = []byte(got)
					continue
				}
				require.Equal(t, string(f.Data), got, "node %s (go test ./agent -update rewrites it)", node)
			}
			if golden.FlagUpdate() {
				require.NoError(t, os.WriteFile(file, txtar.Format(a), 0o644))
			}
		})
	}
}

func planText(t *testing.T, c client.Client, node string) string {
	t.Helper()
	s, err := ReadSnapshot(t.Context(), c, node)
	require.NoError(t, err)
	state, err := PlanNode(s)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var refused strings.Builder
	if v, err := newView(s); err == nil {
		for _, r := range v.refused {
			fmt.Fprintf(&refused, "# refused %s: %v\n", r.spec.CableName, strings.ReplaceAll(r.err.Error(), "\n", "; "))
		}
	}
	return refused.String() + state.String()
}

func peersText(t *testing.T, c client.Client, node string) string {
	t.Helper()
	s, err := ReadSnapshot(t.Context(), c, node)
	require.NoError(t, err)
	v, err := newView(s)
	require.NoError(t, err)
	var text strings.Builder
	for _, c := range v.peers {
		fmt.Fprintf(&text, "%s of %s over %s: %v\n", c.Name, c.Cluster, c.Driver.Name(), c.Subnets)
	}
	for _, r := range v.refused {
		fmt.Fprintf(&text, "refused %s of %s: %v\n", r.spec.CableName, r.spec.ClusterID, strings.ReplaceAll(r.err.Error(), "\n", "; "))
	}
	return text.String()
}

// decode reads the objects of a scenario: every file whose name ends in .yaml may
// hold several documents.
func decode(t testing.TB, a *txtar.Archive) []client.Object {
	t.Helper()
	d := serializer.NewCodecFactory(scheme(t), serializer.EnableStrict).UniversalDeserializer()
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

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s, err := kube.NewScheme()
	require.NoError(t, err)
	return s
}
