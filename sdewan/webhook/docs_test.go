package webhook

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The manifests of docs/sdewan.md can be applied in the order of their documents. Deleted in this
// order, as by kubectl delete -f, all goes that is not in use, and the rest the second time.
func TestManifestsOfDocs(t *testing.T) {
	e := env(t)
	page, err := os.ReadFile("../../docs/sdewan.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "kubectl delete -f edge.yaml || kubectl delete -f edge.yaml --ignore-not-found")
	ns := e.server.Namespace(t, "docs")
	files := []string{"uplinks.yaml", "firewall.yaml", "hub.yaml", "edge.yaml"}
	objects := map[string][]*unstructured.Unstructured{}
	for _, file := range files {
		_, text, found := strings.Cut(string(page), "```yaml\n# "+file+"\n")
		require.True(t, found, file)
		text, _, _ = strings.Cut(text, "```")
		for document := range strings.SplitSeq(text, "\n---\n") {
			o := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal([]byte(document), &o.Object), file)
			o.SetNamespace(ns)
			require.NoError(t, e.admin.Create(t.Context(), o), "%s: %s %s", file, o.GetKind(), o.GetName())
			objects[file] = append(objects[file], o)
		}
	}
	for _, file := range []string{"edge.yaml", "hub.yaml", "firewall.yaml", "uplinks.yaml"} {
		var refused []string
		for _, o := range objects[file] {
			if err := e.admin.Delete(t.Context(), o); err != nil {
				denied(t, err, "delete or change what uses it first")
				refused = append(refused, o.GetKind())
			}
		}
		for _, kind := range refused {
			require.Contains(t, []string{"Mwan3Policy", "FirewallZone", "IpsecProposal"}, kind)
		}
		require.NotEmpty(t, refused, "%s: if one command suffices, say so in the documentation", file)
		for _, o := range objects[file] {
			if err := e.admin.Delete(t.Context(), o); !apierrors.IsNotFound(err) {
				require.NoError(t, err, "%s: %s %s", file, o.GetKind(), o.GetName())
			}
		}
	}
}
