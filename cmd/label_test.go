package cmd

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/trust"
	"subctl/internal/cli"
)

// TestLabel prints what the command reports, of stderr behind a bar, and what it wrote. Two of
// west's labels are in the Submariner, and one of them and a further one in the Cluster object:
// a person has changed the other.
func TestLabel(t *testing.T) {
	var out strings.Builder
	for _, args := range []string{
		"label",
		"label west",
		"label west tier",
		"label West submariner-io/clusterID=east =x a b=_ c=1 c-",
		"label east site=one",
		"label nirvana site=one",
		"label east site=one --context west",
		"label west site=cloud",
		"label west env=cloud --dry-run",
		"label west env-",
		"label west env- --dry-run --force",
		"label west env- --force",
		"label west zone- tier=core",
		"label west env- tier- --force",
	} {
		w := world{"west": policyWorlds()["west"], "hub": policyWorlds()["hub"]}
		w["west"][0].(*v1alpha1.Submariner).Spec.ClusterLabels = map[string]string{"env": "production", "tier": "core"}
		g, stdout, stderr := testGlobals(t, w, "hub", "west", "gone")
		code := run(t.Context(), g, strings.Fields(args))
		fmt.Fprintf(&out, "# subctl %s\n%s", args, stdout)
		for l := range strings.Lines(stderr.String()) {
			fmt.Fprintf(&out, "| %s", l)
		}
		cfg, err := g.RestConfigFor("west")
		require.NoError(t, err)
		c, err := g.Connect(t.Context(), cfg)
		require.NoError(t, err)
		sub := &v1alpha1.Submariner{}
		self := &submarinerv1.Cluster{}
		require.NoError(t,
			c.Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: "submariner"}, sub))
		require.NoError(t,
			c.Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: "west"}, self))
		fmt.Fprintf(&out, "=> Submariner: %s; Cluster: %s\nexit code %d\n\n",
			submarinerv1.FormatLabels(sub.Spec.ClusterLabels), submarinerv1.FormatLabels(self.Labels), code)
	}
	goldenText(t, filepath.Join("testdata", "label.txt"), out.String())
}

// -o prints the Submariner with its new labels, and the policies that the broker adopts; the pairs
// that change are messages.
func TestStructuredChanges(t *testing.T) {
	t.Chdir(t.TempDir())
	writeKeys(t, broker.JoinFileName)
	for _, test := range []struct {
		args []string
		code int
		kind string
		text string
	}{
		{[]string{"label", "west", "zone=eu"}, cli.ExitDone, "Submariner", `"zone": "eu"`},
		{[]string{"label", "west", "zone=eu", "--dry-run"}, cli.ExitDone, "Submariner", `"zone": "eu"`},
		{[]string{"label", "west", "env-", "--dry-run"}, cli.ExitTrouble, "Submariner", `"clusterID": "west"`},
		{
			[]string{"cable-policy", "adopt", "secure", "--context", "hub", "--dry-run"},
			cli.ExitDone,
			"CablePolicies",
			`"name": "secure"`,
		},
		{
			[]string{"cable-policy", "adopt", "secure", "--context", "hub"},
			cli.ExitDone,
			"CablePolicies",
			`"submariner.io/signature"`,
		},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			w := world{"west": policyWorlds()["west"], "hub": policyWorlds()["hub"]}
			w["west"][0].(*v1alpha1.Submariner).Spec.ClusterLabels = map[string]string{"env": "production"}
			got := runIn(t, w, []string{"west", "hub"}, append(test.args, "-o", "json")...)
			require.Equal(t, test.code, got.code, got.stderr)
			var list struct {
				DryRun bool `json:"dryRun"`
				Items  []struct {
					Kind     string            `json:"kind"`
					Metadata metav1.ObjectMeta `json:"metadata"`
				} `json:"items"`
			}
			require.NoError(t, json.Unmarshal([]byte(got.stdout), &list), got.stdout)
			require.NotEmpty(t, list.Items)
			for _, item := range list.Items {
				require.Equal(t, test.kind, item.Kind)
				require.Empty(t, item.Metadata.Labels)
			}
			require.Equal(t, slices.Contains(test.args, "--dry-run"), list.DryRun)
			require.Contains(t, got.stdout, test.text)
			require.NotContains(t, got.stdout, "CLUSTERS")
		})
	}
}

// Without --context, clusters of all contexts complete.
func TestLabelCompletion(t *testing.T) {
	north := submariner("north")
	for line, want := range map[string]string{
		"": "north west", "west ": "env= env- tier= tier-", "north ": "zone= zone-", "nirvana ": "",
		"--context west ": "west", "--context west west ": "env= env- tier= tier-", "--context hub ": "",
	} {
		w := policyWorlds()
		w = world{
			"west": w["west"],
			"hub":  w["hub"],
			"north": append(
				[]client.Object{north},
				clusterObjects(submarinerv1.OperatorNamespace, "", "north", "zone=eu", "vxlan")...),
		}
		words := append([]string{"__complete", "label"}, strings.Split(line, " ")...)
		got := runIn(t, w, []string{"hub", "west", "gone", "north"}, words...)
		values, _, _ := strings.Cut(got.stdout, ":")
		require.Equal(t, want, strings.Join(strings.Fields(values), " "), line)
	}
}

// TestClusterSetCompletion completes the clustersets that the clusters of the kubeconfig know, or,
// for a cluster that was invited, those of its invitation.
func TestClusterSetCompletion(t *testing.T) {
	t.Chdir(t.TempDir())
	writeKeys(t, broker.JoinFileName)
	file, err := broker.ReadOldJoinFile(broker.JoinFileName, strings.NewReader(""))
	require.NoError(t, err)
	invited := trust.Invitation{Cluster: "north", Gateways: 1, Sets: []string{"green", "red"}}
	key := brokertest.Key("invitation")
	invited.Key = key.Public()
	file.Invitation, err = file.SigningKey.SignInvitation(invited)
	require.NoError(t, err)
	file.SigningKey = key
	_, err = file.WriteFile("north.subm", now)
	require.NoError(t, err)
	for line, want := range map[string]string{
		"invite north --clusterset ":          "blue default",
		"invite north --clusterset blue,":     "blue,default",
		"join broker-info.subm --clusterset ": "blue default",
		"join --clusterset ":                  "blue default",
		"join north.subm --clusterset ":       "green red",
		"join north.subm --clusterset red,":   "red,green",
	} {
		got := runIn(
			t,
			policyWorlds(),
			[]string{"hub", "west", "gone"},
			append([]string{"__complete"}, strings.Split(line, " ")...)...)
		values, _, _ := strings.Cut(got.stdout, ":")
		require.Equal(t, want, strings.Join(strings.Fields(values), " "), line)
	}
}
