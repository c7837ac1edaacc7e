package controller

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// Pods of one CNF that stall leave workers to pods that have not failed, and to the pods of other
// CNFs of the namespace.
func TestPodsTakeTurns(t *testing.T) {
	s := newScene(t)
	q := newPodQueue(s.syncs)
	names := func() (names []string) {
		for q.Ready() {
			k, _ := q.Get()
			names = append(names, k.pod)
		}
		return names
	}
	s.pods = nil
	for i := range podsAtOnce {
		s.add(fmt.Sprint("stalls-", i))
	}
	s.add("good")
	for _, p := range s.pods {
		q.Add(s.key(p.Name))
	}
	q.Add(podKey{types.NamespacedName{Namespace: s.cnf.Namespace, Name: "other"}, "other"})
	begun := names()
	require.Len(t, begun, podsAtOnce+1)
	require.Contains(t, begun, "other")
	require.NotContains(t, begun, "good")
	for i := range podsAtOnce {
		name := fmt.Sprint("stalls-", i)
		s.sync(name, outcome{problem: stuck})
		q.Done(s.key(name))
		if i == 0 {
			require.Equal(t, []string{"good"}, names(), "it waits for one of them")
			s.sync("good", outcome{})
			q.Done(s.key("good"))
		}
	}
	for _, p := range s.pods {
		q.Add(s.key(p.Name))
	}
	begun = names()
	require.Len(t, begun, failedAtOnce+1)
	require.Contains(t, begun, "good")
}
