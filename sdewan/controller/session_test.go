package controller

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/sdewan/rest"
)

// What a CNF refuses is sent once in a sync, although others are accepted, unless what it may be missing has come.
func TestRefusedIsSentOnce(t *testing.T) {
	b := newBox(t)
	sent := map[string]int{}
	refuse := map[string]int{"bad1": 9, "bad2": 9, "late": 1, "waits": 1} // how many times
	b.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		var o struct{ Name string }
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.Method == http.MethodGet || json.Unmarshal(body, &o) != nil || o.Name == "" {
			return false
		}
		if sent[o.Name]++; sent[o.Name] > refuse[o.Name] {
			return false
		}
		http.Error(w, "no", 422)
		return true
	})
	b.Put(rest.Policies, policy("old"))
	s := b.sync(want(policy("late"), policy("p"), mwan3("bad1", "p", "1"), mwan3("waits", "late", "1"), mwan3("a", "p", "1"), &rest.Zone{Name: "bad2", Network: []string{"net1"}}))
	require.Len(t, s.refused, 2)
	require.Equal(t, map[string]int{"p": 1, "bad2": 1,
		"a":    2,             // it is moved behind waits
		"late": 2,             // a policy was removed: there may have been too many
		"bad1": 2, "waits": 2, // another policy came
	}, sent)
	clear(sent)
	s = b.sync(want(policy("late"), policy("p"), mwan3("bad1", "p", "1"), mwan3("waits", "late", "1"), mwan3("a", "p", "1"), mwan3("b", "p", "1"), &rest.Zone{Name: "bad2", Network: []string{"net1"}}))
	require.Len(t, s.refused, 2)
	require.Equal(t, map[string]int{"bad1": 1, "b": 1, "bad2": 1}, sent)
}
