package cmd

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"subctl/cluster/join"
	"subctl/internal/cli"
)

// An API server, or a webhook in it, does not control the terminal by what it answers.
func TestHostileMessageOfAnAPIServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write(
			[]byte(
				`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no\u001b[2J\u001b]0;owned\u0007"}`),
		)
	}))
	defer server.Close()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, args := range [][]string{{"uninvite", "north"}, {"show", "gateways"}, {"deploy-broker"}} {
		var stdout, stderr bytes.Buffer
		io := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr}
		require.NotEqual(t, cli.ExitDone, Run(t.Context(), io, append(args, "--server", server.URL)), args)
		require.Contains(t, stderr.String(), "no?[2J?]0;owned?", args)
		require.NotContains(t, stdout.String()+stderr.String(), "\x1b", args)
	}
}

// A join file, or the broker, does not control the terminal of who looks at what joining would
// change.
func TestHostileDifference(t *testing.T) {
	d := &join.Difference{Cluster: []join.ObjectChange{{
		Object: "Submariner submariner",
		Fields: []join.Change{{Field: "brokerK8sTLSServerName", Was: "hub", Will: "hub\x1b[1A\x1b[2K"}},
	}}}
	var out bytes.Buffer
	require.NoError(t, printDifference(&out, d, &join.Operation{Plan: &join.Plan{}}))
	require.Contains(t, out.String(), "brokerK8sTLSServerName: hub → hub?[1A?[2K\n")
}
