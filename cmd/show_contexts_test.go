package cmd

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestEveryClusterOnce has several contexts for a cluster, and one for none.
func TestEveryClusterOnce(t *testing.T) {
	g, _, _ := testGlobals(t, nil, "west", "east")
	file := os.Getenv("KUBECONFIG")
	raw, err := clientcmd.LoadFromFile(file)
	require.NoError(t, err)
	raw.Contexts["a-west"] = &clientcmdapi.Context{Cluster: "kube-west", AuthInfo: "west"}
	raw.Contexts["a-east"] = &clientcmdapi.Context{Cluster: "kube-east", AuthInfo: "east"}
	raw.Contexts["broken"] = &clientcmdapi.Context{Cluster: "not-there"}
	require.NoError(t, clientcmd.WriteToFile(*raw, file))

	targets, err := g.Targets(nil)
	require.NoError(t, err)
	names := map[string]bool{} // whether it can be reached
	for _, target := range targets {
		names[target.Context] = target.Err == nil
	}
	require.Equal(t, map[string]bool{"west": true, "a-east": true, "broken": false}, names,
		"west is the current context, a-east the first of its cluster")
}

// A context that is named twice is shown once, however it is repeated.
func TestContextsOnce(t *testing.T) {
	w := worlds()["two"]
	want := runIn(t, w, []string{"west", "east"}, "show", "connections", "--contexts", "east,west")
	for _, args := range []string{
		"--contexts east,west,east", "--contexts east --contexts west", "--contexts east,west --contexts west",
	} {
		require.Equal(t, want,
			runIn(t, w, []string{"west", "east"}, append([]string{"show", "connections"}, strings.Fields(args)...)...),
			args)
	}
}
