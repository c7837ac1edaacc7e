package exchange_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// encoded is text that may be base64, of either alphabet.
var encoded = regexp.MustCompile(`[A-Za-z0-9+/_-]{16,}`)

// plain returns text, and everything in it that is base64, decoded so many times.
func plain(text []byte, times int) []byte {
	out := bytes.Clone(text)
	if times == 0 {
		return out
	}
	for _, word := range encoded.FindAll(text, -1) {
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if b, err := e.DecodeString(string(word)); err == nil {
				out = append(append(out, '\n'), plain(b, times-1)...)
			}
		}
	}
	return out
}

// search returns what an answer tells an insider of clusters with which it has no clusterset in
// common. An error repeats the name in the request, which is no news.
func (w *leakWorld) search(m *insider, r request, a answer) (leaks []string) {
	body := a.body
	if r.name != "" && a.status >= 400 {
		body = bytes.ReplaceAll(body, []byte(r.name), []byte("NAME"))
	}
	if bytes.Contains([]byte(r.resource), []byte("selfsubjectaccessreviews")) && r.ns != "" && !w.reviewHolds(m, r, a) {
		leaks = append(leaks, fmt.Sprintf("%s may, as the API server says: %v: %.300s", m.id, r, a.body))
	}
	return append(leaks, w.searchText(m, body, r.String())...)
}

func (w *leakWorld) searchText(m *insider, text []byte, where string) (leaks []string) {
	text = plain(text, 2)
	for _, other := range w.strangers(m) {
		for _, mark := range marks(other) {
			if bytes.Contains(text, []byte(mark)) {
				leaks = append(leaks, fmt.Sprintf("%s reads %s of %s: %s", m.id, mark, other, where))
			}
		}
	}
	return leaks
}

// reviewHolds reports whether an insider has no rights in the clustersets of others, as far as the
// API server says in a SelfSubjectAccessReview.
func (w *leakWorld) reviewHolds(m *insider, r request, a answer) bool {
	review := &authorizationv1.SelfSubjectAccessReview{}
	if r.ns == w.NS || inItsSets(w, m, r.ns) || json.Unmarshal(a.body, review) != nil {
		return true
	}
	return !review.Status.Allowed
}

// searchHome searches what a member has in its own cluster, what its agent logs, and its status.
func (w *leakWorld) searchHome(m *insider) (leaks []string) {
	for _, list := range []client.ObjectList{
		&submarinerv1.ClusterList{},
		&submarinerv1.EndpointList{},
		&v1alpha1.CablePoliciesList{},
		&v1alpha1.ExportedServicesList{},
		&corev1.ConfigMapList{},
		&corev1.EventList{},
	} {
		require.NoError(w.t, m.client.List(w.t.Context(), list, client.InNamespace(m.ns)))
		b, err := json.Marshal(list)
		require.NoError(w.t, err)
		leaks = append(leaks, w.searchText(m, b, fmt.Sprintf("%T in its own cluster", list))...)
	}
	leaks = append(leaks, w.searchText(m, fmt.Append(nil, m.ex.Status()), "the status of its exchange")...)
	return append(leaks, w.searchText(m, []byte(m.log.String()), "its log")...)
}

// requireSeen requires that the search finds all marks in what the hub has read: otherwise it would
// find nothing anywhere.
func (w *leakWorld) requireSeen(read []byte) {
	w.t.Helper()
	text := string(plain(read, 2))
	for id := range setsOfMembers {
		for _, mark := range marks(id) {
			if !strings.HasPrefix(mark, "uid-") { // which only the administrator reads
				require.True(w.t, strings.Contains(text, mark), "the hub does not read %s of %s", mark, id)
			}
		}
	}
}
