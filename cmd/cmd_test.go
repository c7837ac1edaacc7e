package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	file "gotest.tools/v3/golden"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"subctl/internal/kube"
)

// now is what the tests' clocks show.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is the clusters a command finds: by the name of their context what their
// API server holds. One without entry cannot be reached.
type world map[string][]client.Object

// result is what came out of a command.
type result struct {
	code           int
	stdout, stderr string
}

// testGlobals returns globals whose kubeconfig has the named contexts, the first
// of which is the current one, and that find the clusters of w behind them.
func testGlobals(t *testing.T, w world, contexts ...string) (g *globals, stdout, stderr *bytes.Buffer) {
	t.Helper()
	raw := clientcmdapi.NewConfig()
	for _, name := range contexts {
		raw.Clusters["kube-"+name] = &clientcmdapi.Cluster{Server: "https://" + name + ".test:6443"}
		raw.AuthInfos[name] = &clientcmdapi.AuthInfo{}
		raw.Contexts[name] = &clientcmdapi.Context{Cluster: "kube-" + name, AuthInfo: name}
	}
	if len(contexts) > 0 {
		raw.CurrentContext = contexts[0]
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*raw, file))
	t.Setenv("KUBECONFIG", file)
	t.Setenv("HOME", t.TempDir()) // no configuration file

	stdout = &bytes.Buffer{}
	stderr = &bytes.Buffer{}
	g = newGlobals(genericiooptions.IOStreams{In: strings.NewReader(""), Out: stdout, ErrOut: stderr})
	g.Now = func() time.Time { return now }
	clients := map[string]client.Client{}
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	for name, objs := range w {
		clients["https://"+name+".test:6443"] = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objs...).Build()
	}
	g.Connect = func(_ context.Context, cfg *rest.Config) (client.Client, error) {
		if c := clients[cfg.Host]; c != nil {
			return c, nil
		}
		return nil, &url.Error{Op: "Get", URL: cfg.Host + "/version", Err: errors.New("connection refused")}
	}
	return g, stdout, stderr
}

// runIn runs subctl with args in a world with the given contexts.
func runIn(t *testing.T, w world, contexts []string, args ...string) result {
	t.Helper()
	g, stdout, stderr := testGlobals(t, w, contexts...)
	code := run(t.Context(), g, args)
	return result{code, stdout.String(), stderr.String()}
}

// runAtOnce is like runIn, but no time passes while it runs: what waits has read everything when
// its time is up.
func runAtOnce(t *testing.T, w world, contexts []string, args ...string) result {
	t.Helper()
	g, stdout, stderr := testGlobals(t, w, contexts...)
	var code int
	synctest.Test(t, func(t *testing.T) { code = run(t.Context(), g, args) })
	return result{code, stdout.String(), stderr.String()}
}

// golden compares what came out of a command with testdata/<name>.txt.
func golden(t *testing.T, name string, r result) {
	t.Helper()
	file.Assert(t, fmt.Sprintf("exit code %d\n-- stdout --\n%s-- stderr --\n%s", r.code, r.stdout, r.stderr),
		name+".txt")
}
