package connect

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"subctl/internal/progress"
)

// TestDial tries API servers that answer, and some that do not.
func TestDial(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string // with URL for the server
	}{
		"fine": {
			answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"gitVersion":"v1.36.0"}`)) },
		},
		"unauthorised": {
			answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
			want:   `the API server at URL (context "west") does not accept the credentials of the kubeconfig: log in again, or choose another user or context`,
		},
		"broken": {
			answer: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "out of order", http.StatusTeapot) },
			want:   `asking the API server at URL (context "west"): the server responded with the status code 418 but did not return more information`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.answer)
			defer server.Close()
			cfg := &rest.Config{Host: server.URL}
			_, err := dial(t.Context(), cfg)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, NoAnswer(cfg, "west", err), strings.ReplaceAll(test.want, "URL", server.URL))
		})
	}
}

// A side knows the time of its API server, whatever the clock of this machine says.
func TestClockOfASide(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", at.Format(http.TimeFormat))
		_, _ = w.Write([]byte(`{"gitVersion":"v1.36.0"}`))
	}))
	defer server.Close()
	k := &Kubeconfig{Connect: dial, Now: time.Now}
	side, err := k.side(t.Context(), &rest.Config{Host: server.URL})
	require.NoError(t, err)
	require.WithinDuration(t, at, side.Now(), time.Minute)
}

func TestWarnings(t *testing.T) {
	var out bytes.Buffer
	w := apiWarnings{progress.New(&out)}
	w.HandleWarningHeader(299, "-", `would violate PodSecurity "restricted:latest": host namespaces (hostNetwork=true)`)
	w.HandleWarningHeader(199, "-", "miscellaneous")
	w.HandleWarningHeader(299, "-", "v1 Endpoints is deprecated")
	require.Equal(t, " ⚠ v1 Endpoints is deprecated\n", out.String())
}
