package cmd

import (
	"bytes"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/cli"
	"subctl/internal/kubetest"
)

// TestLive runs subctl against a real API server, as it is built for users.
func TestLive(t *testing.T) {
	server := kubetest.Start(t)
	gate := kubetest.NewGate(t, server)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	raw, err := clientcmd.LoadFromFile(server.Kubeconfig())
	require.NoError(t, err)
	for _, c := range raw.Clusters {
		c.Server = "https://" + gate.Address()
	}
	good := raw.Contexts[raw.CurrentContext]
	raw.AuthInfos["stranger"] = &clientcmdapi.AuthInfo{Token: "sesame"}
	raw.Contexts["stranger"] = &clientcmdapi.Context{Cluster: good.Cluster, AuthInfo: "stranger"}
	raw.Contexts["good"] = good
	raw.CurrentContext = "good"
	require.NoError(t, clientcmd.WriteToFile(*raw, file))
	t.Setenv("KUBECONFIG", file)
	t.Setenv("HOME", t.TempDir())

	subctl := func(args ...string) result {
		var stdout, stderr bytes.Buffer
		g := newGlobals(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
		g.Now = func() time.Time { return time.Now().Add(time.Hour) } // a wrong clock must not matter
		code := run(t.Context(), g, args)
		return result{code, stdout.String(), stderr.String()}
	}
	url := "https://" + gate.Address()

	require.Equal(
		t,
		result{
			code:   cli.ExitFailed,
			stderr: "Error: Submariner is not installed on cluster \"" + good.Cluster + "\": run \"subctl join\"\n",
		},
		subctl("show", "connections"),
	)
	require.Equal(
		t,
		result{
			code: cli.ExitFailed,
			stderr: "Error: cluster \"" + good.Cluster +
				"\" has not joined, so its nodes have no plan: run \"subctl join\"\n",
		},
		subctl("show", "plan", "gw-1"),
	)
	require.Equal(
		t,
		result{
			code: cli.ExitFailed,
			stderr: "Error: the API server at " + url +
				" (context \"stranger\") does not accept the credentials of the kubeconfig: log in again, or choose another user or context\n",
		},
		subctl("show", "connections", "--context", "stranger"),
	)

	server.InstallCRDs(t)
	c := server.Client(t)
	gw := gateway("west", "gw-1", 0, connection(submarinerv1.Connected, endpoint("east", "gw-e", "172.18.0.9")))
	gw.Annotations[submarinerv1.TimestampAnnotation] = strconv.FormatInt(time.Now().Unix(), 10)
	require.NoError(t,
		c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.OperatorNamespace}}))
	sub := submariner("west")
	sub.Spec.GlobalCIDR = "" // the API server refuses what this version does not have
	require.NoError(t, c.Create(t.Context(), sub))
	require.NoError(t, c.Create(t.Context(), gw))
	got := subctl("show", "connections", "-o", "json")
	require.Equal(t, cli.ExitDone, got.code, got.stderr)
	require.Contains(t, got.stdout, `"remoteGateway": "gw-e"`)
	require.Empty(t, got.stderr)

	got = subctl("show", "connections", "--as", "nobody")
	require.Equal(t, cli.ExitFailed, got.code)
	require.Contains(t, got.stderr,
		`Error: reading the Submariner: submariners.submariner.io is forbidden: User "nobody" cannot list resource`)
	require.Contains(t, got.stderr,
		`: ask an administrator for the ClusterRole view in namespace submariner-operator, or choose another user or context (docs/permissions.md)`)
	got = subctl("show", "gateways", "--as", "system:anonymous")
	require.Equal(t, cli.ExitFailed, got.code)
	require.Equal(t,
		"Error: reading the Submariner: the API server does not let this user read which kinds it serves, which every user who has logged in may do: log in, or choose another user or context\n",
		got.stderr)

	gate.Shut()
	got = subctl("show", "connections", "--request-timeout", "1s")
	require.Equal(t, cli.ExitFailed, got.code)
	require.Contains(t, got.stderr, "Error: reaching the API server at "+url+` (context "good"): `)
	require.Equal(t, 1, strings.Count(got.stderr, "\n"), "one line: %s", got.stderr)
}
