package cmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kubetest"
	"subctl/policy"
)

// TestCablePolicyLive makes, changes and deletes policies on a real API server, whose
// schema has a word to say too.
func TestCablePolicyLive(t *testing.T) {
	server := kubetest.Start(t)
	server.InstallCRDs(t)
	t.Setenv("KUBECONFIG", server.Kubeconfig())
	t.Setenv("HOME", t.TempDir())
	c := server.Client(t)
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.OperatorNamespace}}))
	require.NoError(t, c.Create(t.Context(), submariner("west")))
	east := clusterObjects(submarinerv1.OperatorNamespace, "east", "east", "env=production", "vxlan,wireguard", "default")[0].(*submarinerv1.Cluster)
	east.Spec.ServiceCIDR, east.Spec.ClusterCIDR, east.Spec.GlobalCIDR = []string{}, []string{}, []string{}
	require.NoError(t, c.Create(t.Context(), east))

	subctl := func(stdin string, args ...string) (stdout, stderr string) {
		var out, errOut bytes.Buffer
		g := newGlobals(genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &errOut})
		run(t.Context(), g, append([]string{"cable-policy"}, args...))
		return out.String(), errOut.String()
	}
	read := func() *v1alpha1.CablePolicies {
		var p v1alpha1.CablePolicies
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: "cloud"}, &p))
		return &p
	}
	const file = "kind: CablePolicies\nmetadata: {name: cloud}\nspec:\n  leftClusterSelector:\n    env: !test\n  cableDriver:\n    name: wireguard\n"

	stdout, stderr := subctl(file, "add", "-f", "-")
	require.Contains(t, stderr, "made cable policy cloud on cluster west, for clusterset default")
	require.Contains(t, stdout, "east - west   vxlan (the clusters' own default)   wireguard (cloud)")
	require.Equal(t, "env!=test", policy.SelectorText(read().ConnectionPolicies[0].LeftClusterSelector))

	_, stderr = subctl(file, "add", "-f", "-")
	require.Contains(t, stderr, "there is a cable policy cloud already, made here")

	// The gateway says that it is shared; a tool of the user's has put a label on it.
	p := read()
	p.Labels = map[string]string{"tool": "x"}
	require.NoError(t, c.Update(t.Context(), p))
	p.Status.ClusterSets = []string{"default"}
	require.NoError(t, c.Status().Update(t.Context(), p))
	stdout, stderr = subctl("", "add", "--replace", "--name", "cloud", "--cable-driver", "vxlan")
	require.Contains(t, stderr, "changed cable policy cloud on cluster west")
	require.Contains(t, stdout, "east - west   wireguard (cloud)   vxlan (cloud)")
	require.Equal(t, "vxlan", read().ConnectionPolicies[0].CableDriver)
	require.Equal(t, map[string]string{"tool": "x"}, read().Labels)

	_, stderr = subctl("", "delete", "--name", "cloud")
	require.Contains(t, stderr, "1 pair: the clusters' own default decides instead of cloud")
	require.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(p), p)))

	for name, rules := range map[string][]v1alpha1.CablePolicySpec{"no rule": {}, "no driver": {{}}, "a long one": {{CableDriver: strings.Repeat("x", 64)}}} {
		err := c.Create(t.Context(), &v1alpha1.CablePolicies{ObjectMeta: named("nonsense"), ConnectionPolicies: rules})
		require.ErrorContains(t, err, "is invalid: spec", name)
	}
}
