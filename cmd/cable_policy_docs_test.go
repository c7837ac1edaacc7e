package cmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/look"
)

// TestCablePolicyDocs runs what the user guide shows, one command after the other, on
// the three clusters that it is about, and compares with what it says comes out. A file
// that it shows with cat is made.
func TestCablePolicyDocs(t *testing.T) {
	guide, err := filepath.Abs("../docs/cable-policies.md")
	require.NoError(t, err)
	text, err := os.ReadFile(guide)
	require.NoError(t, err)
	t.Chdir(t.TempDir())

	const op, all = submarinerv1.OperatorNamespace, "vxlan,wireguard,ipsec"
	objects := []client.Object{
		submariner("onprem-1"),
		copied(cablePolicy("default", " |  | vxlan"), submarinerv1.BrokerID, "default"),
	}
	objects = append(objects, clusterObjects(op, "", "onprem-1", "env=production,site=one", all)...)
	objects = append(objects, clusterObjects(op, "onprem-2", "onprem-2", "env=production,site=two", all, "default")...)
	objects = append(objects, clusterObjects(op, "cloud", "cloud", "env=production,site=cloud", all, "default")...)
	objects = append(objects, configMap("long-way", op, map[string]string{v1alpha1.CableCustomConfig: "mtu: 1300\n"}))
	g, _, _ := testGlobals(t, world{"onprem-1": objects}, "onprem-1")
	cfg, err := g.RestConfigFor("onprem-1")
	require.NoError(t, err)
	c, err := g.Connect(t.Context(), cfg)
	require.NoError(t, err)

	var out strings.Builder
	obey(t, c)
	commands := 0
	skip := false
	console := false
	for line := range strings.Lines(string(text)) {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case strings.HasPrefix(line, "```"):
			console = line == "```console\n"
			skip = false
		case console && isCommand && strings.HasPrefix(command, "cat "):
			name := strings.TrimSpace(strings.TrimPrefix(command, "cat "))
			_, rest, _ := strings.Cut(string(text), line)
			content, _, _ := strings.Cut(rest, "```")
			content, _, _ = strings.Cut(content, "$ ")
			require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
			skip = false
		case console && isCommand:
			commands++
			var screen bytes.Buffer
			again := newGlobals(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &screen, ErrOut: &screen})
			again.Connect = g.Connect
			again.Now = g.Now
			run(t.Context(), again, shellWords(strings.TrimPrefix(command, "subctl ")))
			share(t, c)
			obey(t, c)
			out.WriteString(line + withoutHint.Replace(screen.String()))
			skip = true
			continue
		}
		if !skip {
			out.WriteString(line)
		}
	}
	require.Greater(t, commands, 5)
	goldenText(t, guide, out.String())
}

// withoutHint removes what only --wait=false prints.
var withoutHint = strings.NewReplacer(" • the gateways follow: to wait for them, run subctl show connections --wait\n",
	"")

// shellWords splits a command line, which has no quotes but single ones.
func shellWords(line string) []string {
	var words []string
	for i, part := range strings.Split(strings.TrimSpace(line), "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// obey makes the gateway of a member report the cables that the policies decide.
func obey(t *testing.T, c client.Client) {
	t.Helper()
	all, err := look.ReadPolicies(t.Context(), c, false)
	require.NoError(t, err)
	self, _ := all.Cluster(all.Keeper)
	gw := gateway(all.Keeper, "gw-1", 0)
	for _, other := range all.Clusters {
		if other.ID == all.Keeper {
			continue
		}
		r := all.Explain(self, other)
		remote := connection(submarinerv1.Connected, endpoint(other.ID, "gw-1", "172.18.0.9"))
		remote.Driver = r.CableDriver
		remote.Policy = r.Policy
		remote.Rule = r.Rule
		gw.Status.Connections = append(gw.Status.Connections, remote)
	}
	require.NoError(t, client.IgnoreNotFound(c.Delete(t.Context(), gw.DeepCopy())))
	require.NoError(t, c.Create(t.Context(), gw))
}

// share does what the gateway does with the policies made here.
func share(t *testing.T, c client.Client) {
	t.Helper()
	var list v1alpha1.CablePoliciesList
	require.NoError(t, c.List(t.Context(), &list))
	for _, p := range list.Items {
		if p.Labels[submarinerv1.ClusterIDLabel] == "" {
			p.Status = v1alpha1.CablePoliciesStatus{
				ClusterSets: []string{"default"},
				Conditions:  []metav1.Condition{{Type: v1alpha1.ConditionShared, Status: metav1.ConditionTrue}},
			}
			require.NoError(t, c.Update(t.Context(), &p))
		}
	}
}
