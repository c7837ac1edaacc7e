package kubeapi

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// What exists is left alone. The API server does not report a second Service with the same fixed
// address as a duplicate.
func TestEnsure(t *testing.T) {
	var got []string
	exists := map[string]bool{"/services/kube-dns": true}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.Path)
		switch {
		case r.Method == http.MethodPost && exists["/services/kube-dns"] && r.URL.Path == "/services":
			http.Error(w, "provided IP is already allocated", http.StatusUnprocessableEntity)
		case r.Method == http.MethodPost, exists[r.URL.Path]:
			_, _ = w.Write([]byte("{}"))
		default:
			http.Error(w, "not found", http.StatusNotFound)
		}
	}))
	defer server.Close()
	c := &Client{server: server.URL, http: server.Client()}
	err := c.ensureAll(t.Context(), at{"/services", m{"metadata": m{"name": "kube-dns"}}},
		at{"/nodes", m{"metadata": m{"name": "n"}}})
	want := []string{"GET /services/kube-dns", "GET /nodes/n", "POST /nodes"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v: want %v", err, got, want)
	}
}
