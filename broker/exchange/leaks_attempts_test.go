package exchange_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// request is one attempt. All writes are dry runs, which pass authorization and admission.
type request struct {
	verb, resource, ns, name string
	path                     string
	header                   http.Header
	body                     []byte
}

func (r request) String() string {
	s := r.verb + " " + r.resource
	if r.name != "" {
		s += " " + r.name
	}
	if r.ns != "" {
		s += " in namespace " + r.ns
	}
	if len(r.header) > 0 {
		s += fmt.Sprintf(" as %v", r.header)
	}
	return s
}

// methods are the HTTP methods of verbs.
var methods = map[string]string{
	"get":              "GET",
	"list":             "GET",
	"watch":            "GET",
	"create":           "POST",
	"update":           "PUT",
	"patch":            "PATCH",
	"delete":           "DELETE",
	"deletecollection": "DELETE",
}

// httpClient makes requests without the checks of a client of Kubernetes.
type httpClient struct {
	*http.Client
	host string
}

func newHTTPClient(t *testing.T, config *rest.Config) *httpClient {
	t.Helper()
	c, err := rest.HTTPClientFor(rest.CopyConfig(config))
	require.NoError(t, err)
	host := config.Host
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	return &httpClient{Client: c, host: host}
}

// answer is what the API server has answered.
type answer struct {
	status int
	body   []byte
}

// denied reports whether the API server has refused a request for lack of rights.
func (a answer) denied() bool { return a.status == http.StatusForbidden }

func (w *leakWorld) do(m *insider, r request) answer {
	a, err := m.http.do(w.t, r)
	if err != nil {
		w.t.Errorf("%s: %v: %v", m.id, r, err)
	}
	return a
}

func (c *httpClient) do(t *testing.T, r request) (answer, error) {
	query := url.Values{}
	switch r.verb {
	case "watch":
		query.Set("watch", "1")
		query.Set("timeoutSeconds", "1")
	case "get", "list":
	default:
		query.Set("dryRun", "All")
	}
	for {
		req, err := http.NewRequestWithContext(t.Context(), methods[r.verb], c.host+r.path+"?"+query.Encode(),
			bytes.NewReader(r.body))
		if err != nil {
			return answer{}, err
		}
		req.Header = r.header.Clone()
		if req.Header == nil {
			req.Header = http.Header{}
		}
		req.Header.Set("Content-Type", "application/json")
		if r.verb == "patch" {
			req.Header.Set("Content-Type", "application/merge-patch+json")
		}
		resp, err := c.Do(req)
		if err != nil {
			return answer{}, err
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch {
		case err != nil:
			return answer{}, err
		case resp.StatusCode == http.StatusUnauthorized:
			return answer{}, fmt.Errorf("the API server does not know the credentials: %s", b)
		case resp.StatusCode != http.StatusTooManyRequests:
			return answer{resp.StatusCode, b}, nil
		}
	}
}

// attempted is what an insider has tried.
type attempted struct {
	mu       sync.Mutex
	attempts int
	leaks    []string
	read     []byte         // everything that the API server has answered
	used     map[int]bool   // the rights
	against  map[string]int // attempts, by member
}

// unused returns the rights that were not used.
func (a *attempted) unused(all []right) (out []string) {
	for i, r := range all {
		if !a.used[i] {
			out = append(out, r.verbs+" "+r.resources)
		}
	}
	return out
}

// try makes all requests of an insider. A leak is an answer that no right allows, and an answer
// that contains anything of a cluster with which the insider has no clusterset in common.
func (w *leakWorld) try(m *insider) *attempted {
	out := &attempted{used: map[int]bool{}, against: map[string]int{}}
	all := append(w.requests(m), w.questions(m)...)
	next := make(chan request)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for r := range next {
				w.judge(m, r, w.do(m, r), out)
			}
		})
	}
	for _, r := range all {
		next <- r
	}
	close(next)
	wg.Wait()
	slices.Sort(out.leaks)
	return out
}

// judge notes whether an answer is a leak.
func (w *leakWorld) judge(m *insider, r request, a answer, out *attempted) {
	found := w.search(m, r, a)
	out.mu.Lock()
	defer out.mu.Unlock()
	out.attempts++
	out.read = append(append(out.read, a.body...), '\n')
	out.leaks = append(out.leaks, found...)
	for _, other := range w.strangers(m) {
		if slices.Contains(w.namespacesOf(setsOfMembers[other]), r.ns) || strings.Contains(r.name, other) {
			out.against[other]++
		}
	}
	if a.denied() {
		return
	}
	for i, right := range m.rights {
		if slices.Contains(strings.Fields(right.resources), r.resource) &&
			slices.Contains(strings.Fields(right.verbs), r.verb) &&
			len(r.header) == 0 && right.where(w, m, r.ns) &&
			right.what(w, m, r) {
			out.used[i] = true
			return
		}
	}
	out.leaks = append(out.leaks, fmt.Sprintf("%s may %v: %d %.200s", m.id, r, a.status, a.body))
}
