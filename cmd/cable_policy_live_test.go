package cmd

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/cli"
	"subctl/internal/kubetest"
	"subctl/policy"
)

// liveWest starts an API server where cluster west has joined, as the current context.
func liveWest(t *testing.T) client.Client {
	t.Helper()
	server := kubetest.Start(t)
	server.InstallCRDs(t)
	t.Setenv("KUBECONFIG", server.Kubeconfig())
	t.Setenv("HOME", t.TempDir())
	c := server.Client(t)
	require.NoError(t,
		c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.OperatorNamespace}}))
	west := submariner("west")
	west.Spec.GlobalCIDR = "" // the CRD refuses it
	require.NoError(t, c.Create(t.Context(), west))
	return c
}

// TestCablePolicyLive makes, changes and deletes policies on a real API server, whose
// schema has a word to say too.
func TestCablePolicyLive(t *testing.T) {
	c := liveWest(t)
	east := clusterObjects(submarinerv1.OperatorNamespace, "east", "east", "env=production", "vxlan,wireguard",
		"default")[0].(*submarinerv1.Cluster)
	east.Spec.ServiceCIDR = []string{}
	east.Spec.ClusterCIDR = []string{}
	east.Spec.GlobalCIDR = []string{}
	require.NoError(t, c.Create(t.Context(), east))

	subctl := func(stdin string, args ...string) (stdout, stderr string) {
		var out, errOut bytes.Buffer
		g := newGlobals(genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &errOut})
		run(t.Context(), g, append([]string{"cable-policy"}, args...))
		return out.String(), errOut.String()
	}
	read := func() *v1alpha1.CablePolicies {
		var p v1alpha1.CablePolicies
		require.NoError(t,
			c.Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: "cloud"}, &p))
		return &p
	}
	const file = "kind: CablePolicies\nmetadata: {name: cloud}\nspec:\n  leftClusterSelector:\n    env: !test\n  cableDriver:\n    name: wireguard\n"

	stdout, stderr := subctl(file, "add", "-f", "-")
	require.Contains(t, stderr, "created cable policy cloud on cluster west, for clusterset default")
	require.Contains(t, stdout, "east - west   vxlan (the clusters' own default)   wireguard (cloud)")
	require.Equal(t, "env!=test", policy.SelectorText(read().ConnectionPolicies[0].LeftClusterSelector))

	_, stderr = subctl(file, "add", "-f", "-")
	require.Contains(t, stderr, "cable policy cloud already exists: change it with --replace")

	// The gateway says that it is shared; a tool of the user's has put a label on it.
	p := read()
	p.Labels = map[string]string{"tool": "x"}
	require.NoError(t, c.Update(t.Context(), p))
	p.Status.ClusterSets = []string{"default"}
	require.NoError(t, c.Status().Update(t.Context(), p))
	_, stderr = subctl("", "add", "--replace", "--name", "cloud", "--cable-driver", "vxlan")
	require.Contains(t, stderr,
		"Error: 1 pair of clusters would lose encryption:\n  east - west: wireguard (cloud) → vxlan (cloud), not encrypted\n")
	require.Equal(t, "wireguard", read().ConnectionPolicies[0].CableDriver, "nothing was changed")
	stdout, stderr = subctl("", "add", "--replace", "--name", "cloud", "--cable-driver", "vxlan", "--force")
	require.Contains(t, stderr, "changed cable policy cloud on cluster west")
	require.Contains(t, stdout, "east - west   wireguard (cloud)   vxlan (cloud)")
	require.Equal(t, "vxlan", read().ConnectionPolicies[0].CableDriver)
	require.Equal(t, map[string]string{"tool": "x"}, read().Labels)

	_, stderr = subctl("", "delete", "--name", "cloud")
	require.Contains(t, stderr, "1 pair: the clusters' own default decides instead of cloud")
	require.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(p), p)))

	selecting := func(s v1alpha1.ClusterSelector) []v1alpha1.CablePolicySpec {
		return []v1alpha1.CablePolicySpec{{RightClusterSelector: s, CableDriver: "vxlan"}}
	}
	requiring := func(key string, operator metav1.LabelSelectorOperator, values ...string) []v1alpha1.CablePolicySpec {
		return selecting(
			v1alpha1.ClusterSelector{
				MatchExpressions: []v1alpha1.ClusterRequirement{{Key: key, Operator: operator, Values: values}},
			},
		)
	}
	exists := v1alpha1.ClusterRequirement{Key: "a", Operator: metav1.LabelSelectorOpExists}
	for _, test := range []struct {
		want  string
		rules []v1alpha1.CablePolicySpec
	}{
		{"spec in body should have at least 1 items", []v1alpha1.CablePolicySpec{}},
		{"spec: Too many: 65", slices.Repeat([]v1alpha1.CablePolicySpec{{CableDriver: "vxlan"}}, 65)},
		{`spec[0].name: Unsupported value: ""`, []v1alpha1.CablePolicySpec{{}}},
		{
			`spec[0].name: Unsupported value: "gre": supported values: "vxlan"`,
			[]v1alpha1.CablePolicySpec{{CableDriver: "gre"}},
		},
		{`matchExpressions[0].operator: Unsupported value: "Equals"`, requiring("env", "Equals", "a")},
		{"operators In and NotIn need values, Exists and DoesNotExist take none", requiring("env", "In")},
		{"operators In and NotIn need values, Exists and DoesNotExist take none", requiring("env", "Exists", "a")},
		{"matchExpressions[0].key in body should match", requiring("env!", "Exists")},
		{"matchExpressions[0].values[0] in body should match", requiring("env", "NotIn", "a b")},
		{"matchExpressions[0].values: Too many: 257", requiring("env", "In", make([]string, 257)...)},
		{
			"matchExpressions: Too many: 33",
			selecting(v1alpha1.ClusterSelector{
				MatchExpressions: slices.Repeat([]v1alpha1.ClusterRequirement{exists}, 33),
			}),
		},
	} {
		p := &v1alpha1.CablePolicies{ObjectMeta: named("nonsense"), ConnectionPolicies: test.rules}
		require.ErrorContains(t, c.Create(t.Context(), p), test.want)
		require.Error(t, policy.Check(p), "%s: members refuse it too, whatever the broker lets through", test.want)
	}
}

// TestSeedPoliciesLive applies the manifests of the proposal that cable policies come from. -f
// accepts them, and prints what kubectl apply accepts; the API server does not accept their
// short form, rather than read it as something else.
func TestSeedPoliciesLive(t *testing.T) {
	c := liveWest(t)
	const seeds = `kind: CablePolicies
metadata:
  name: default
spec:
  cableDriver:
    name:  "vxlan"
---
kind: CablePolicies
metadata:
  name: on-prem-to-cloud
spec:
  leftClusterSelector:
    env: production
  rightClusterSelector:
    env: production
  cableDriver:
    name:  "ipsec"
`
	for document := range strings.SplitSeq(seeds, "---\n") {
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &u.Object))
		u.SetNamespace(submarinerv1.OperatorNamespace)
		require.Error(t, c.Create(t.Context(), u), "it has no apiVersion")
		u.SetAPIVersion(v1alpha1.GroupVersion.String())
		require.ErrorContains(t, c.Create(t.Context(), u),
			"spec: Invalid value: \"object\": spec in body must be of type array")
	}

	guide, err := os.ReadFile("../docs/cable-policies.md")
	require.NoError(t, err)
	for spec, refusal := range map[string]string{
		"{}": "spec in body must be of type array",
		"{leftClusterSelector: {env: a}, cableDriver: {name: ipsec}}":                  `unknown field "spec.cableDriver"`,
		"[{leftClusterSelector: {matchLabels: {env: a}}, cableDriver: {name: ipsec}}]": `unknown field "spec[0].cableDriver"`,
		"[{leftClusterSelector: {env: a}, name: ipsec}]":                               `unknown field "spec[0].leftClusterSelector.env"`,
		"[{leftClusterSelector: {matchLabels: {env: a}}, name: ipsec}]":                "",
	} {
		u := &unstructured.Unstructured{}
		require.NoError(
			t,
			yaml.Unmarshal(
				[]byte(
					"{apiVersion: submariner.io/v1alpha1, kind: CablePolicies, metadata: {name: short}, spec: "+spec+
						"}",
				),
				&u.Object,
			),
		)
		u.SetNamespace(submarinerv1.OperatorNamespace)
		err := c.Create(t.Context(), u, client.FieldValidation("Strict"), client.DryRunAll)
		if refusal == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, refusal)
		require.Contains(t, string(guide), "`"+refusal+"`")
	}

	subctl := func(stdin string, args ...string) result {
		var out, errOut bytes.Buffer
		g := newGlobals(genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &errOut})
		code := run(t.Context(), g, append([]string{"cable-policy"}, args...))
		return result{code, out.String(), errOut.String()}
	}
	got := subctl(seeds, "add", "-f", "-", "--dry-run", "-o", "yaml")
	require.Equal(t, cli.ExitDone, got.code, got.stderr)
	applied := 0
	for document := range strings.SplitSeq(got.stdout, "---\n") {
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &u.Object))
		if len(u.Object) > 0 { // not the comment
			require.NoError(t, c.Create(t.Context(), u, client.FieldValidation("Strict")))
			applied++
		}
	}
	require.Equal(t, 2, applied)
	got = subctl(seeds, "add", "-f", "-", "--replace")
	require.Equal(t, cli.ExitDone, got.code, got.stderr)
	require.Contains(t, got.stderr, "changed cable policy on-prem-to-cloud on cluster west")
}
