package mesh_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	"gotest.tools/v3/golden"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "subctl/agent/mesh"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/kubetest"
)

// A scenario is one file: the objects of a cluster in, and out what each node then holds,
// as the commands that a person would type, or only the clusters that it connects to. The
// facts of a node's kernel are in its RouteAgent, as for "subctl show plan".
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("../../testdata/scenarios/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			require.NoError(t, err)
			objs := kubetest.Decode(t, a)
			for i, f := range a.Files {
				what, node, _ := strings.Cut(f.Name, " ")
				var got string
				switch what {
				case "node":
					got = planText(t, objs, node)
				case "peers":
					got = peersText(t, objs, node)
				default:
					continue
				}
				if golden.FlagUpdate() {
					a.Files[i].Data = []byte(got)
					continue
				}
				require.Equal(t, string(f.Data), got, "node %s (go test ./agent/mesh -update rewrites it)", node)
			}
			if golden.FlagUpdate() {
				require.NoError(t, os.WriteFile(file, txtar.Format(a), 0o644))
			}
		})
	}
}

// answering is how probes are where every cable answers.
func answering(s role.Snapshot) map[string]role.Health {
	health := map[string]role.Health{}
	if m, err := Of(s); err == nil {
		for _, c := range m.Cables.Wanted {
			health[role.ProbeName(c.Name, c.Device())] = role.Health{Status: submarinerv1.Connected}
		}
	}
	return health
}

func planText(t *testing.T, objs []client.Object, node string) string {
	t.Helper()
	s, err := FromReports(node, objs...)
	require.NoError(t, err)
	s.Health = answering(s)
	state, err := roles.PlanNode(s)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var refused strings.Builder
	if m, err := Of(s); err == nil {
		for _, r := range m.Cables.Pending {
			fmt.Fprintf(&refused, "# waiting %s: %v\n", r.Spec.CableName, r.Err)
		}
		for _, r := range m.Cables.Refused {
			fmt.Fprintf(&refused, "# refused %s: %v\n", r.Spec.CableName, strings.ReplaceAll(r.Err.Error(), "\n", "; "))
		}
	}
	return refused.String() + state.String()
}

func peersText(t *testing.T, objs []client.Object, node string) string {
	t.Helper()
	s, err := FromReports(node, objs...)
	require.NoError(t, err)
	m, err := Of(s)
	require.NoError(t, err)
	var text strings.Builder
	for _, c := range m.Cables.Wanted {
		fmt.Fprintf(&text, "%s of %s over %s: %v\n", c.Name, c.Cluster, c.Driver.Name(), c.Subnets)
	}
	for _, r := range m.Cables.Pending {
		fmt.Fprintf(&text, "waiting %s of %s: %v\n", r.Spec.CableName, r.Spec.ClusterID, r.Err)
	}
	for _, r := range m.Cables.Refused {
		fmt.Fprintf(&text, "refused %s of %s: %v\n", r.Spec.CableName, r.Spec.ClusterID,
			strings.ReplaceAll(r.Err.Error(), "\n", "; "))
	}
	return text.String()
}
