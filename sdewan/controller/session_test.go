package controller

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// What a CNF refuses is sent once in a sync, although others are accepted, unless what it may be
// missing has come.
func TestRefusedIsSentOnce(t *testing.T) {
	b := newBox(t)
	sent := map[string]int{}
	refuse := map[string]int{"bad1": 9, "bad2": 9, "late": 1, "waits": 1} // how many times
	b.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		name := about(r)
		if name == "" || r.Method == http.MethodDelete {
			return false
		}
		if sent[name]++; sent[name] > refuse[name] {
			return false
		}
		http.Error(w, "no", http.StatusUnprocessableEntity)
		return true
	})
	b.Put(rest.Policies, policy("old"))
	s := b.sync(
		want(policy("late"), policy("p"), mwan3("bad1", "p", "1"), mwan3("waits", "late", "1"), mwan3("a", "p", "1"),
			&rest.Zone{Name: "bad2", Network: []string{"net1"}}),
	)
	require.Len(t, s.refused, 2)
	require.Equal(t, map[string]int{
		"p": 1, "bad2": 1,
		"a":    2,             // it is moved behind waits
		"late": 2,             // a policy was removed: there may have been too many
		"bad1": 2, "waits": 2, // another policy came
	}, sent)
	clear(sent)
	s = b.sync(
		want(policy("late"), policy("p"), mwan3("bad1", "p", "1"), mwan3("waits", "late", "1"), mwan3("a", "p", "1"),
			mwan3("b", "p", "1"), &rest.Zone{Name: "bad2", Network: []string{"net1"}}),
	)
	require.Len(t, s.refused, 2)
	require.Equal(t, map[string]int{"bad1": 1, "b": 1, "bad2": 1}, sent)
}

// What a CNF refuses first, and accepts later in the same sync, is not reported, however slowly it
// answers; what stays refused is.
func TestRefusalIsReportedWhenFinal(t *testing.T) {
	b := newBox(t)
	var slow, full atomic.Bool
	b.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		name := about(r)
		if slow.Load() && name != "" {
			time.Sleep(reportEvery + 100*time.Millisecond)
		}
		if name != "bad" && (name != "p" || !full.Load() && !slices.Contains(b.Names(rest.Policies), "old")) {
			return false
		}
		http.Error(w, "no", http.StatusUnprocessableEntity)
		return true
	})
	var reported []id
	sync := func(objects ...rest.Object) synced {
		reported = nil
		s, err := b.memory.sync(
			t.Context(),
			b.client,
			want(objects...),
			syncOptions{report: func(refused map[id]error) {
				for key := range refused {
					reported = append(reported, key)
				}
			}},
		)
		require.NoError(t, err)
		return s
	}
	slow.Store(true)
	b.Put(rest.Policies, policy("old"))
	s := sync(policy("p"), &rest.Zone{Name: "bad", Network: []string{"net1"}})
	require.Equal(t, []id{{rest.Zones, "bad"}}, reported, "old is removed, and then p is accepted")
	require.Len(t, s.refused, 1)

	slow.Store(false)
	require.Empty(t, sync().refused)
	full.Store(true)
	require.Len(t, sync(policy("p")).refused, 1)
	full.Store(false)
	slow.Store(true)
	s = sync(policy("p"), mwan3("a", "p", "1"))
	require.Empty(t, reported, "p is tried last, and then its rule is accepted")
	require.Empty(t, s.refused)
}

// An object about which the CNF does not answer does not stop the others, and is tried last from
// then on. When the CNF has changed it after all, its service is restarted.
func TestHostileHangingObject(t *testing.T) {
	b := newBoxWithin(t, 500*time.Millisecond)
	var mu sync.Mutex
	var log []string
	sent := func() (names []string) { // since the last call
		mu.Lock()
		defer mu.Unlock()
		names = log
		log = nil
		return names
	}
	b.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		name := about(r)
		if name != "" {
			mu.Lock()
			log = append(log, name)
			mu.Unlock()
		}
		if name != "bad" {
			return false
		}
		<-r.Context().Done()
		return true
	})
	s := b.sync(want(policy("bad"), policy("a"), mwan3("r", "a", "1"), &rest.Proposal{Name: "x"}))
	require.Len(t, s.refused, 1)
	require.ErrorContains(t, s.refused[id{rest.Policies, "bad"}], "the CNF does not answer: it took too long")
	require.Empty(t, s.unsent)
	require.Equal(t, []string{"a"}, b.EffectiveNames(rest.Policies))
	require.Equal(t, []string{"r"}, b.EffectiveNames(rest.Rules))
	require.Equal(t, []string{"x"}, b.EffectiveNames(rest.Proposals))
	sent()
	b.Writes()
	all := want(policy("bad"), policy("a"), mwan3("r", "a", "1"), &rest.Proposal{Name: "x2"})
	require.Len(t, b.sync(all).refused, 1)
	require.Equal(t, []string{"x2", "x", "bad"}, sent())
	require.NotContains(t, b.Writes(), "restart mwan3", "nothing has changed")
	b.Put(rest.Policies, policy("bad"))
	require.Empty(t, b.sync(all).refused)
	require.Equal(t, []string{"restart mwan3"}, b.Writes())
	b.sync(all)
	require.Empty(t, b.Writes())

	// What was done is no longer tried last.
	b.Answer(func(http.ResponseWriter, *http.Request) bool { return false })
	require.NoError(t, b.client.Delete(t.Context(), rest.Policies, "bad"))
	b.Writes()
	require.Empty(
		t,
		b.sync(
			want(policy(
				"bad"), policy("a"), mwan3("r", "a", "1"), &rest.Zone{Name: "z3", Network: []string{"net1"}})).refused,
	)
	require.Equal(t, []string{"POST mwan3/policies", "POST firewall/zones"}, b.Writes()[:2])
}

// Nor does such an object stop the others if the CNF says of its status only that it has failed.
func TestHangingObjectAndBrokenStatus(t *testing.T) {
	b := newBoxWithin(t, 500*time.Millisecond)
	b.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case about(r) == "bad":
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // an empty answer could still arrive
		case r.URL.Path == rest.StatusPath("effect"):
			http.Error(w, "no", http.StatusInternalServerError)
		default:
			return false
		}
		return true
	})
	_, err := b.memory.sync(t.Context(), b.client, want(policy("bad"), policy("a")), syncOptions{})
	require.ErrorContains(t, err, "reading its status: the CNF answers 500")
	require.Equal(t, []string{"a"}, b.Names(rest.Policies))
}

// A CNF that answers about no object ends a sync soon. So does one that answers nothing any more:
// that is no reason to try an object last.
func TestHostileHangingCNF(t *testing.T) {
	b := newBoxWithin(t, 500*time.Millisecond)
	var hung atomic.Int64
	var dead atomic.Bool
	b.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		if about(r) == "" && (!dead.Load() || hung.Load() == 0 || r.URL.Path == rest.Base) {
			return false
		}
		hung.Add(1)
		<-r.Context().Done()
		return true
	})
	all := want(policy("a"), policy("b"), policy("c"), policy("d"), &rest.Zone{Name: "z", Network: []string{"net1"}})
	s := b.sync(all)
	require.Len(t, s.refused, 2)
	require.Len(t, s.unsent, 3)
	require.ErrorContains(t, s.stopped, "the CNF did not answer when it was sent 2 objects")
	require.EqualValues(t, maxHangs, hung.Load())
	s = b.sync(all)
	require.Len(t, s.refused, 4, "two others")
	require.Equal(t, map[id]bool{{rest.Zones, "z"}: true}, s.unsent)

	hung.Store(0)
	dead.Store(true)
	_, err := b.memory.sync(t.Context(), b.client, all[:2], syncOptions{})
	require.ErrorContains(t, err, "the CNF does not answer: it took too long")
	require.Len(t, b.memory.refusals, 4, "they are tried last again")

	b.memory = newMemory()
	hung.Store(0)
	_, err = b.memory.sync(t.Context(), b.client, all, syncOptions{})
	require.ErrorContains(t, err, "changing mwan3/policies/a: the CNF does not answer: it took too long")
	require.EqualValues(t, 2, hung.Load())
	require.Empty(t, b.memory.refusals)
}

// A deleted rule is gone from a pod that does not have its object; otherwise what was not sent or
// restarted concerns it.
func TestDeletedRuleOnPod(t *testing.T) {
	p := &batch.Mwan3Policy{}
	p.Name = "p"
	p.DeletionTimestamp = new(metav1.Now())
	x := rule{Rule: p, kind: sdewan.Kinds()[0]}
	key := id{x.kind.Collection, p.Name}
	aim, desires := aimOf([]rule{x}, nil, services{}, func(*rest.Collection, string) bool { return false })
	require.Equal(t, []string{"p"}, desires[0].deleted)
	unsent := synced{unsent: map[id]bool{key: true}, stopped: errSlow}
	require.Empty(t, aim.on(x, unsent).reason)
	unsent.remains = map[id]bool{key: true}
	require.Equal(t, Unfinished, aim.on(x, unsent).reason)
}
