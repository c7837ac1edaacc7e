package clusterdns_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"subctl/api/submariner/v1alpha1"
	"subctl/cluster/clusterdns"
	"subctl/internal/kubetest"
)

var update = flag.Bool("update", false, "write the results to testdata")

const ip = "10.96.0.53"

// Each file of testdata is a cluster: its objects, and what subctl does at join and at uninstall.
func TestPlatforms(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			require.NoError(t, err)
			in := readScenario(t, a)
			got := &txtar.Archive{Comment: a.Comment}
			for _, f := range a.Files {
				if f.Name != "join" && f.Name != "uninstall" {
					got.Files = append(got.Files, f)
				}
			}
			join, uninstall := in.run(t)
			got.Files = append(got.Files, txtar.File{Name: "join", Data: []byte(join)},
				txtar.File{Name: "uninstall", Data: []byte(uninstall)})
			if *update {
				require.NoError(t, os.WriteFile(file, txtar.Format(got), 0o600))
				return
			}
			require.Equal(t, string(txtar.Format(a)), string(txtar.Format(got)), "run with -update")
		})
	}
}

// scenario is a cluster in a file.
type scenario struct {
	Version string
	Ref     *v1alpha1.ConfigMapRef
	c       client.Client
	objects []*unstructured.Unstructured
}

func readScenario(t *testing.T, a *txtar.Archive) *scenario {
	t.Helper()
	s := &scenario{Version: "v1.34.1"}
	for _, f := range a.Files {
		switch f.Name {
		case "settings":
			require.NoError(t, yaml.UnmarshalStrict(f.Data, s))
		case "objects":
			for doc := range bytes.SplitSeq(f.Data, []byte("\n---\n")) {
				u := &unstructured.Unstructured{}
				require.NoError(t, yaml.Unmarshal(append(bytes.TrimSuffix(doc, []byte("\n")), '\n'), &u.Object), "%s",
					doc)
				s.objects = append(s.objects, u)
			}
		}
	}
	s.c = fakeCluster(t, s.objects)
	return s
}

// fakeCluster returns an API server with objects, which serves the kinds of OpenShift and RKE2,
// too.
func fakeCluster(t *testing.T, objects []*unstructured.Unstructured) client.Client {
	t.Helper()
	scheme := kubetest.Scheme(t)
	for _, gvk := range []schema.GroupVersionKind{
		{Group: "operator.openshift.io", Version: "v1", Kind: "DNS"},
		{Group: "helm.cattle.io", Version: "v1", Kind: "HelmChartConfig"},
	} {
		scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(gvk.GroupVersion().WithKind(gvk.Kind+"List"), &unstructured.UnstructuredList{})
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields()
	for _, o := range objects {
		b = b.WithObjects(o.DeepCopy())
	}
	return b.Build()
}

func (s *scenario) read(t *testing.T) clusterdns.Facts {
	t.Helper()
	f, err := clusterdns.Read(t.Context(), s.c, s.Version, s.Ref)
	require.NoError(t, err)
	return f
}

// run joins, joins again, and uninstalls. The second join changes nothing, and at the end the
// cluster is as before.
func (s *scenario) run(t *testing.T) (join, uninstall string) {
	t.Helper()
	before := s.dump(t)
	h := clusterdns.Plan(s.read(t), ip)
	join = text(t, h)
	s.write(t, h)
	again := clusterdns.Plan(s.read(t), ip)
	require.Empty(t, again.Changes, "joining again")
	if len(h.Changes) > 0 {
		require.Equal(t, clusterdns.Current, again.State)
		require.True(t, again.Ours)
	}
	undo := clusterdns.Undo(s.read(t))
	uninstall = text(t, undo)
	s.write(t, undo)
	if !strings.Contains(before, "# submariner-begin") {
		require.Equal(t, before, s.dump(t), "uninstall restores every object")
	}
	require.Empty(t, clusterdns.Undo(s.read(t)).Changes, "uninstalling again")
	return join, uninstall
}

func (s *scenario) write(t *testing.T, h clusterdns.Hook) {
	t.Helper()
	for _, c := range h.Changes {
		switch {
		case c.Before == nil:
			require.NoError(t, s.c.Create(t.Context(), c.After))
		case c.After == nil:
			require.NoError(t, s.c.Delete(t.Context(), c.Before))
		default:
			require.NoError(t, s.c.Update(t.Context(), c.After))
		}
	}
}

// dump returns all objects that a plan may change, without what the API server sets.
func (s *scenario) dump(t *testing.T) (out string) {
	t.Helper()
	for _, o := range append(s.objects, object("v1", "ConfigMap", "kube-system", "coredns-custom"),
		object("v1", "ConfigMap", "kube-system", "kube-dns")) {
		u := object(o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName())
		if err := s.c.Get(t.Context(), client.ObjectKeyFromObject(u), u); client.IgnoreNotFound(err) == nil &&
			err != nil {
			continue
		}
		out += asText(t, u)
	}
	return out
}

func object(version, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(version)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func asText(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	u = u.DeepCopy()
	u.SetResourceVersion("")
	u.SetManagedFields(nil)
	b, err := yaml.Marshal(u.Object)
	require.NoError(t, err)
	return "---\n" + string(b)
}

// text returns a plan for people.
func text(t *testing.T, h clusterdns.Hook) string {
	t.Helper()
	var out strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&out, "%s: %s\n", name, value)
		}
	}
	line("kind", string(h.Kind))
	line("manager", h.Manager)
	line("where", h.Where)
	line("state", string(h.State))
	line("reason", h.Reason)
	line("commands", h.Commands)
	for _, n := range h.Notes {
		line("note", n)
	}
	for _, c := range h.Changes {
		switch {
		case c.Before == nil:
			out.WriteString("create\n")
		case c.After == nil:
			line("delete", c.Before.GetName())
			continue
		default:
			out.WriteString("update\n")
		}
		b, err := yaml.Marshal(c.After)
		require.NoError(t, err)
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(b, &u.Object))
		out.WriteString(asText(t, u))
	}
	return out.String()
}
