package discoverer

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	"sigs.k8s.io/yaml"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kubetest"
	servicesdns "subctl/services/dns"
)

// discoveryCluster has the objects of a cluster with service discovery, as its API server does.
type discoveryCluster struct {
	id   string
	objs []role.Object
}

// The scenario of service discovery: the objects of two clusters in, and out what one of them
// publishes, and what the other one makes of it and answers.
func TestServicesScenario(t *testing.T) {
	const file = "../../testdata/scenarios/services.txtar"
	a, err := txtar.ParseFile(file)
	require.NoError(t, err)
	clusters := map[string]*discoveryCluster{}
	for _, f := range a.Files {
		if id, is := strings.CutSuffix(f.Name, ".yaml"); is {
			objs := kubetest.Decode(t, &txtar.Archive{Files: []txtar.File{f}})
			clusters[id] = &discoveryCluster{id: id, objs: asObjects(objs)}
		}
	}
	for id, from := range clusters {
		for _, page := range from.discover(t).Paced {
			from.put(published(page.Object.(*v1alpha1.ExportedServices)))
			for _, to := range clusters {
				if to != from {
					shared := page.Object.DeepCopyObject().(role.Object)
					shared.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: id})
					to.put(shared)
				}
			}
		}
	}
	for i, f := range a.Files {
		what, id, _ := strings.Cut(f.Name, " ")
		var got string
		switch what {
		case "pages":
			got = yamlOf(t, asObjects(ownPages(clusters[id].snapshot(), id)))
		case "objects":
			got = yamlOf(t, clusters[id].settle(t))
		case "dns":
			got = clusters[id].answers(string(f.Data))
		default:
			continue
		}
		if golden.FlagUpdate() {
			a.Files[i].Data = []byte(got)
			continue
		}
		require.Equal(t, string(f.Data), got, "%s (go test ./agent/mesh -update rewrites it)", f.Name)
	}
	if golden.FlagUpdate() {
		require.NoError(t, os.WriteFile(file, txtar.Format(a), 0o644))
	}
}

// published returns a page as it is once the speaker has published it.
func published(page *v1alpha1.ExportedServices) *v1alpha1.ExportedServices {
	page = page.DeepCopy()
	page.Status.ClusterSets = []string{"default"}
	page.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionShared, Status: metav1.ConditionTrue, Reason: "Shared",
		Message: "it is on the broker in clusterset default", ObservedGeneration: page.Generation,
	}}
	return page
}

func (c *discoveryCluster) snapshot() role.Snapshot {
	s := role.NewSnapshot("", c.objs...)
	s.Now = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	return s
}

// discover returns what the agent of service discovery writes.
func (c *discoveryCluster) discover(t *testing.T) role.Report {
	t.Helper()
	return discovered(t, c.snapshot())
}

// settle writes what the agent plans until it plans nothing more, and returns all that it has
// written, by kind and name.
func (c *discoveryCluster) settle(t *testing.T) (written []role.Object) {
	t.Helper()
	for rounds := 0; ; rounds++ {
		require.Less(t, rounds, 10, "the agent never ends")
		r := c.discover(t)
		require.Empty(t, r.Delete)
		require.Empty(t, r.Paced)
		if len(r.Apply)+len(r.UpdateStatus) == 0 {
			break
		}
		for _, o := range append(r.Apply, r.UpdateStatus...) {
			c.put(o)
		}
	}
	s := c.snapshot()
	written = append(written, asObjects(role.List[*mcsv1alpha1.ServiceExport](s))...)
	written = append(written, asObjects(role.List[*mcsv1alpha1.ServiceImport](s))...)
	written = append(written, asObjects(role.List[*corev1.Service](s))...)
	written = append(written, asObjects(role.List[*discoveryv1.EndpointSlice](s))...)
	return slices.DeleteFunc(written, func(o role.Object) bool { return o.GetUID() == "" })
}

// put writes an object, and sets what an API server does: UIDs and cluster IPs. The status remains.
func (c *discoveryCluster) put(o role.Object) {
	at := slices.IndexFunc(c.objs, func(have role.Object) bool {
		return reflect.TypeOf(have) == reflect.TypeOf(o) && role.KeyOf(have) == role.KeyOf(o)
	})
	o.SetUID(types.UID("uid-of-" + o.GetName()))
	switch o := o.(type) {
	case *corev1.Service:
		o.Spec.ClusterIP = "10.102.0.200"
	case *mcsv1alpha1.ServiceImport:
		if at >= 0 && len(o.Status.Clusters) == 0 {
			o.Status = c.objs[at].(*mcsv1alpha1.ServiceImport).Status
		}
	}
	if at < 0 {
		c.objs = append(c.objs, o)
	} else {
		c.objs[at] = o
	}
}

// yamlOf returns objects as YAML.
func yamlOf(t *testing.T, objs []role.Object) string {
	t.Helper()
	var out []string
	for _, o := range objs {
		kinds, _, err := kubetest.Scheme(t).ObjectKinds(o)
		require.NoError(t, err)
		o.GetObjectKind().SetGroupVersionKind(kinds[0])
		b, err := yaml.Marshal(o)
		require.NoError(t, err)
		out = append(out, string(b))
	}
	return strings.Join(out, "---\n")
}

// answers returns questions with the answers of the cluster's DNS server below each. Lines that
// begin with a space are answers to replace.
func (c *discoveryCluster) answers(questions string) string {
	index := servicesdns.NewIndex(c.id, false)
	index.ReplaceImports(role.List[*mcsv1alpha1.ServiceImport](c.snapshot()))
	index.ReplaceSlices(role.List[*discoveryv1.EndpointSlice](c.snapshot()))
	var out strings.Builder
	for question := range strings.Lines(questions) {
		if strings.HasPrefix(question, " ") {
			continue
		}
		kind, name, _ := strings.Cut(strings.TrimSpace(question), " ")
		query := new(dns.Msg)
		query.SetQuestion(name, dns.StringToType[kind])
		response := index.Answer(query, true)
		out.WriteString(question)
		if len(response.Answer) == 0 {
			out.WriteString("  " + dns.RcodeToString[response.Rcode] + "\n")
		}
		for _, rr := range response.Answer {
			out.WriteString("  " + strings.Join(strings.Fields(rr.String()), " ") + "\n")
		}
	}
	return out.String()
}
