package controller

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan/rest"
)

// A CNF that refuses objects slowly delays no report: each rule has the reason as soon as it is known.
func TestHostileSlowRefusals(t *testing.T) {
	w := newWorld(t)
	pod := w.cnf("cnf-1", 1)[0]
	var refused atomic.Int64
	pod.Answer(func(wr http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || r.URL.Path != rest.Policies.Path() {
			return false
		}
		select {
		case <-time.After(2 * time.Second):
		case <-r.Context().Done():
		}
		http.Error(wr, "it is full", 422)
		refused.Add(1)
		return true
	})
	var rules []*batch.Mwan3Policy
	for i := range 6 {
		p := w.policy("cnf-1", fmt.Sprint("p", i))
		w.create(p)
		rules = append(rules, p)
	}
	w.run()
	for i, p := range rules[:3] {
		require.Contains(t, w.waits(p, Rejected), "pod "+pod.name+": the CNF answers 422: it is full")
		require.LessOrEqual(t, int(refused.Load()), i+2, "reported while the sync goes on")
	}
	require.Contains(t, w.event(Rejected), "it is full")
	for _, p := range rules {
		w.waits(p, Rejected)
	}
	pod.Answer(nil)
}
