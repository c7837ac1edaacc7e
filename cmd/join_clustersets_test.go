package cmd

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cluster"
	"subctl/internal/cli"
)

// createsSets joins clustersets that do not exist yet. They need an administrator of the broker's
// cluster.
func (w *joinWorld) createsSets(t *testing.T) {
	both := w.bothContexts(t)
	before := w.state(t)
	join := func(args ...string) result {
		return w.run(
			t,
			append(
				[]string{
					"join", w.file, "--clusterid", "west", "--wait=false", "--kubeconfig", both, "--context", "member",
				},
				args...)...)
	}
	for _, test := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no clusterset", []string{"--create-clusterset"}, cli.ExitUsage, "--create-clusterset requires --clusterset"},
		{
			"a context for nothing",
			[]string{"--broker-context", "hub"},
			cli.ExitUsage,
			"--broker-context requires --create-clusterset",
		},
		{
			"not the broker's cluster",
			[]string{"--clusterset", "new-a", "--create-clusterset"},
			cli.ExitFailed,
			"the cluster that joins has not the broker of this join file, and the file itself gives no right to create clustersets: " +
				"specify the context of the broker's cluster with --broker-context, or run there: subctl clusterset create new-a",
		},
		{
			"unknown context",
			[]string{"--clusterset", "new-a", "--create-clusterset", "--broker-context", "nirvana"},
			cli.ExitUsage,
			`context "nirvana"`,
		},
		{
			"invalid name",
			[]string{"--clusterset", "New_A", "--create-clusterset", "--broker-context", "hub"},
			cli.ExitUsage,
			"New_A",
		},
		{
			"not asked for",
			[]string{"--clusterset", "new-a"},
			cli.ExitFailed,
			"subctl clusterset create or by joining with --create-clusterset",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := join(test.args...)
			require.Equal(t, test.code, r.code, r.stderr)
			require.Contains(t, r.stderr, test.says)
			require.Equal(t, before, w.state(t))
		})
	}
	create := []string{"--clusterset", "prod,new-a,new-b", "--create-clusterset", "--broker-context", "hub"}
	r := join(append(create, "--dry-run")...)
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "+ Namespace submariner-k8s-broker-new-a")
	require.Contains(t, r.stdout, "submariner-k8s-broker-new-b/west")
	require.Equal(t, before, w.state(t), "a dry run changed something")

	r = join(create...)
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stderr, "created clusterset new-a")
	require.NotContains(t, r.stderr, "created clusterset prod")
	sub := &v1alpha1.Submariner{}
	require.NoError(t,
		w.memberC.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: v1alpha1.SubmarinerName}, sub))
	require.Equal(t, []string{"new-a", "new-b", "prod"}, sub.Spec.ClusterSets)
	sets, err := broker.ClusterSets(t.Context(), w.hubC, submarinerv1.BrokerNamespace)
	require.NoError(t, err)
	for _, s := range sets {
		require.Equal(t, s.Name != submarinerv1.DefaultClusterSet, slices.Contains(s.Members, "west"), s.Name)
	}
	r = join(create...)
	require.Equal(t, cli.ExitDone, r.code, "joining again creates nothing: %s", r.stderr)
	require.NotContains(t, r.stderr, "created clusterset")

	require.Equal(t, cli.ExitDone, w.run(t, "uninstall", "--yes").code)
	for range 2 { // a name can be used again at once
		require.Equal(t, cli.ExitDone,
			w.run(t, "clusterset", "delete", "new-a", "--kubeconfig", both, "--context", "hub").code)
		require.Equal(t, cli.ExitDone,
			w.run(t, "clusterset", "create", "new-a", "--kubeconfig", both, "--context", "hub").code)
	}
	for _, set := range []string{"new-a", "new-b"} {
		require.NoError(t, broker.DeleteSet(t.Context(), w.hubC, submarinerv1.BrokerNamespace, set))
	}
}

// bothContexts writes a kubeconfig with the contexts "hub" and "member".
func (w *joinWorld) bothContexts(t *testing.T) string {
	t.Helper()
	both := clientcmdapi.NewConfig()
	for name, file := range map[string]string{"hub": w.hub.Kubeconfig(), "member": w.member.Kubeconfig()} {
		one, err := clientcmd.LoadFromFile(file)
		require.NoError(t, err)
		context := one.Contexts[one.CurrentContext]
		both.Clusters[name] = one.Clusters[context.Cluster]
		both.AuthInfos[name] = one.AuthInfos[context.AuthInfo]
		both.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	out, err := clientcmd.Write(*both)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "both.kubeconfig")
	require.NoError(t, os.WriteFile(path, out, 0o600))
	return path
}
